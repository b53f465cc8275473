"""Whether texts look like the language that they are taken for: by function words and scripts."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from keras_addnorm.basics.languages import fold, tidy
from keras_addnorm.basics.printing import printable
from keras_addnorm.data.line_report import LineChecker
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.scripts import script_of

# Pairs from the start of a file that tell its languages: a sorted file begins with short texts.
_PAIRS_LOOKED_AT = 2_000
_SOURCES_LOOKED_AT = 20
_LONGEST_TEXT = 1000
_WIDTH = 60
_WORD = re.compile(r"[^\W\d_]+")

# Words that sentences of a language have. Articles and prepositions that names are made of, such as
# `de la` and `van der`, stand apart.
_WORDS = {
    code: frozenset(words.split())
    for code, words in {
        "bg": "и не в аз че на той с това как но а по се да е са ще си ли",
        "ca": "que no és un una per amb es i ha jo però molt més això als hi va seva",
        "cs": "je se že na to v nebo ale jsem jsou byl by jako jeho tak který když pro není mě si",
        "da": "og er det ikke jeg en at på han med til har som hun vi af var meget noget et hvad",
        "de": "und ist nicht ich ein eine einen mit es sie er wir sich dass auch war wie hat haben "
        "sind das zu für auf wird noch nur aber einem einer",
        "el": "και να το δεν είναι η του με για που ο θα τα από ένα στο τι μου",
        "en": "the and is are was were you that it this have has not with they he she his her what "
        "we my your i a of to in on for at be do",
        "es": "que no es un una por con para se lo su me te muy pero como está hay ella yo son más "
        "fue esta este ser tiene en mi",
        "et": "on ja ei ta ma et see oli kui mis aga seda ka mind oma olen tema siis kes",
        "fi": "on ja ei se hän minä että oli en ole mutta kuin niin sen hänen minun tämä mitä olen",
        "fr": "est que qui pas je il elle nous vous une un dans pour avec ce ne se mais été son "
        "cette sont qu suis plus au être",
        "hr": "je se da na u i nije ne sam su bio kao za što ali ili li bi koji to",
        "hu": "a az és nem hogy egy van ez is volt de meg én csak azt mint ki mi már kell lesz",
        "id": "yang dan di tidak ini itu dengan saya untuk dari ke adalah ada akan dia pada apa",
        "it": "che non è un una per con sono ho ha si mi ti come anche più ma questo nel gli io "
        "lui lei hanno era",
        "lt": "ir yra kad ne aš į tai jis su buvo iš bet kaip mano jo ar už",
        "lv": "un ir ka es ne no to viņš ar bija kā par bet tas man uz",
        "nl": "een is niet ik en dat op je hij met voor zijn wat heeft maar ook hebben was ze wij "
        "aan naar er",
        "no": "og er det ikke jeg en at på han med til har som hun vi av var veldig noe et kan hva",
        "pl": "nie się jest na to że w z do jak ale co ja po czy tak był jego dla są mnie",
        "pt": "que não um uma com para por se eu ele ela é está mais mas muito isso foi você são "
        "seu sua tem em minha",
        "ro": "și şi este nu în că o un să a cu la pe mai din care pentru dar era sunt ce",
        "ru": "и не в я что на он с это как но а у по все так его она мы мне",
        "sk": "je sa že na to v alebo ale som sú bol by ako jeho tak ktorý keď pre nie ma si",
        "sl": "je se da na v in ni ne sem so bil kot za z tudi pa kaj ali lahko",
        "sv": "och är det inte jag en att på han med till har som hon vi av var mycket ett kan för",
        "tr": "bir ve bu için ne de da çok ben o mi var değil daha gibi ama ile onun sen",
        "uk": "і не в я що на він з це як але а у по все так його вона ми та",
        "vi": "không là và của có một này người tôi được những cho với anh",
    }.items()
}
_WORDS_OF_NAMES = {
    code: frozenset(words.split())
    for code, words in {
        "ca": "el la els les de del dels d l",
        "da": "den det de fra",
        "de": "der die das den dem des von vom am im",
        "es": "el la los las de del al y",
        "fr": "le la les l d de des du et à aux",
        "it": "il la le i gli l di del della dei dal al e",
        "nl": "de het van der den",
        "no": "den det de fra",
        "pt": "o os as a de do da dos das no na e",
        "ro": "de la lui al",
        "sv": "den det de från",
    }.items()
}
_SCRIPTS = {
    code: script
    for script, codes in {
        "Arabic": "ar fa ur ps",
        "Armenian": "hy",
        "Bengali": "as bn",
        "Chinese/Japanese": "zh ja yue",
        "Cyrillic": "be bg mk ru uk",
        "Devanagari": "hi mr ne",
        "Ethiopic": "am ti",
        "Georgian": "ka",
        "Greek": "el",
        "Gujarati": "gu",
        "Hangul": "ko",
        "Hebrew": "he yi",
        "Kannada": "kn",
        "Khmer": "km",
        "Lao": "lo",
        "Latin": "af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv mt nl no pl pt ro "
        "sk sl sq sv sw tr vi",
        "Malayalam": "ml",
        "Myanmar": "my",
        "Sinhala": "si",
        "Tamil": "ta",
        "Telugu": "te",
        "Thai": "th",
    }.items()
    for code in codes.split()
}
# What is strong evidence that a text is of another language. Names and words without sentences
# have less.
_LEAST_HITS, _LEAST_WORDS, _LEAST_SHARE, _TIMES_AS_MANY = 10, 4, 0.06, 4
_LEAST_HITS_BESIDE, _LEAST_WORDS_BESIDE = 5, 2  # on a side, if the other side has strong evidence
_LEAST_TEXTS, _LEAST_SHARE_OF_SCRIPT = 20, 0.9
_LETTERS_OF_SCRIPT = 4


def notes_on(sources: Sequence[PairSource], languages: tuple[str, str]) -> tuple[str, ...]:
    """What is to be said of columns that were guessed, and of texts that look like other languages.

    Args:
        sources: What pairs are read from.
        languages: What their sides are taken for.

    Returns:
        The notes, each once.
    """
    guessed: dict[str, PairSource] = {}
    for one in sources:
        if one.note:
            guessed.setdefault(one.note, one)
    notes = [note + _example(one, languages) for note, one in guessed.items()]
    for one in sources[:_SOURCES_LOOKED_AT]:
        if said := language_suspicion(_first_pairs(one), *languages):
            notes.append(f"{one.label}: {said[0].lower()}{said[1:]}")
    return tuple(dict.fromkeys(notes))


def _first_pairs(source: PairSource) -> Iterator[tuple[str, str]]:
    """Pairs from the beginning that are neither empty nor broken.

    What is wrong with the rest is said when all of it is read.
    """
    checker = LineChecker("", _LONGEST_TEXT)
    with contextlib.suppress(ValueError, OSError):
        for raw in itertools.islice(source.raw_pairs(), _PAIRS_LOOKED_AT):
            pair = checker.check(raw.source, raw.target, fault=raw.fault)
            if pair is not None:
                yield pair


def _example(source: PairSource, languages: tuple[str, str]) -> str:
    """A line with the first pair, such as `es: uno / en: one`, to stand under a note on columns."""
    pair = next(_first_pairs(source), None)
    if pair is None:
        return ""
    shown = (text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..." for text in pair)
    texts = (f"{a}: {b}" for a, b in zip(languages, shown, strict=True))
    return f"\n  {printable(' / '.join(texts))}"


def language_suspicion(pairs: Iterable[tuple[str, str]], source: str, target: str) -> str:
    """What is to be said where texts clearly are in another language than they are taken for.

    Frequent words tell it, for some thirty languages, and scripts. Lists of names and of single
    words tell nothing.

    Args:
        pairs: Some source and target texts.
        source: The language that the first ones are taken for.
        target: That of the others.

    Returns:
        A sentence; empty if nothing is suspicious, or the texts are too few to tell.

    Example:
        >>> from keras_addnorm.data.language_check import language_suspicion
        >>> pairs = [("I am not here, and you are.", "Ich bin nicht da, und du bist es.")] * 5
        >>> language_suspicion(pairs, "en", "de")
        ''
        >>> language_suspicion(pairs, "de", "en").partition(":")[0]
        "The side taken for 'de' looks like 'en', and the other way round"
    """
    # A text that was copied says nothing about one of the sides.
    both = [pair for pair in pairs if pair[0] != pair[1]]
    sides = [_Side([pair[side] for pair in both]) for side in (0, 1)]
    claimed = source, target
    if _is_swapped(sides, claimed):
        return (
            f"The side taken for {source!r} looks like {target!r}, and the other way round: swap "
            "source and target?"
        )
    said = [
        f"the side taken for {language!r} {what}"
        for side, language in zip(sides, claimed, strict=True)
        if (what := side.looks_unlike(language))
    ]
    if not said:
        return ""
    text = ", and ".join(said)
    return f"{text[0].upper()}{text[1:]}: are these the right languages and columns?"


class _Side:
    """The words and scripts of the texts of one side."""

    def __init__(self, texts: Sequence[str]) -> None:
        # A text of one word may be that of any language: `no`, `es`, `on`.
        words = (_WORD.findall(text.casefold()) for text in texts)
        self._words = Counter(word for text in words if len(text) > 1 for word in text)
        scripts = Counter(filter(None, map(script_of, texts)))
        self._script = ""
        if scripts:
            script, count = scripts.most_common(1)[0]
            if count >= max(_LEAST_TEXTS, _LEAST_SHARE_OF_SCRIPT * scripts.total()):
                self._script = script

    def has_script_of(self, language: str) -> bool:
        """Whether nearly all texts are in the one script of a language."""
        return bool(self._script) and _script(language) == self._script

    def has_another_script(self, language: str) -> bool:
        """Whether nearly all texts are in a script that a language is not written in."""
        return bool(self._script) and _script(language) not in ("", self._script)

    def share(self, language: str) -> float:
        """The share of function words of a language among all words."""
        return self._hits(_WORDS[language]) / max(1, self._words.total())

    def is_rather(self, language: str, claimed: str) -> bool:
        """Whether the texts clearly have the words of a language and not those of another."""
        of_claimed = _WORDS.get(claimed, frozenset())
        own, others = _WORDS[language] - of_claimed, of_claimed - _WORDS[language]
        hits = self._hits(own)
        return (
            hits >= max(_LEAST_HITS, _LEAST_SHARE * self._words.total())
            and sum(word in self._words for word in own) >= _LEAST_WORDS
            and hits >= _TIMES_AS_MANY * self._hits(others)
        )

    def can_rather_be(self, language: str, claimed: str) -> bool:
        """Whether the texts have some words of a language, also of names, and not of another."""
        both = [
            _WORDS[code] | _WORDS_OF_NAMES.get(code, frozenset()) for code in (language, claimed)
        ]
        own, others = both[0] - both[1], both[1] - both[0]
        hits = self._hits(own)
        return (
            hits >= max(_LEAST_HITS_BESIDE, _TIMES_AS_MANY * self._hits(others))
            and sum(word in self._words for word in own) >= _LEAST_WORDS_BESIDE
        )

    def looks_unlike(self, claimed: str) -> str:
        """What the texts look like in place of a language; empty if they can be in it."""
        is_of_another = self.has_another_script(claimed)
        code = fold(claimed)
        if not is_of_another and (code not in _WORDS or _has_script_of_its_own(claimed)):
            return ""
        found = [one for one in _WORDS if one != code and self.is_rather(one, code)]
        if found:
            return f"looks like {max(found, key=self.share)!r}"
        return f"is in {self._script} script" if is_of_another else ""

    def _hits(self, words: frozenset[str]) -> int:
        return sum(self._words[word] for word in words)


def _is_swapped(sides: Sequence[_Side], claimed: tuple[str, str]) -> bool:
    """Whether each side is in the language that the other one is taken for."""
    if all(
        side.has_another_script(own) and side.has_script_of(other)
        for side, own, other in zip(sides, claimed, reversed(claimed), strict=True)
    ):
        return True
    codes = fold(claimed[0]), fold(claimed[1])
    known = [code in _WORDS for code in codes]
    if all(known):
        turned = list(zip(sides, reversed(codes), codes, strict=True))
        return any(side.is_rather(other, own) for side, other, own in turned) and all(
            side.is_rather(other, own) or side.can_rather_be(other, own)
            for side, other, own in turned
        )
    if not any(known):
        return False
    # Of the language without words here, only that the other one's are on its side.
    side = known.index(False)
    other = codes[1 - side]
    return sides[side].is_rather(other, codes[side]) and sides[side].share(
        other
    ) >= _TIMES_AS_MANY * sides[1 - side].share(other)


def _script(language: str) -> str:
    """The one script of a language; empty if it has several, or the code says which."""
    return "" if _has_script_of_its_own(language) else _SCRIPTS.get(fold(language), "")


def _has_script_of_its_own(language: str) -> bool:
    return any(
        len(part) == _LETTERS_OF_SCRIPT and part.isalpha() for part in tidy(language).split("-")[1:]
    )
