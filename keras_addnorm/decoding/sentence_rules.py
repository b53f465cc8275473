r"""Where sentences end: substitutions that put a mark behind each of them.

The rules are one list of regular expressions, applied in order by Python's `re` and, in an exported
graph, by TensorFlow's RE2. So they keep to what both understand in the same way: characters and
classes of characters written out (no `\s`, `\w`, `\b`, which Python reads as Unicode and RE2 as
ASCII), groups, `^`, and no look-around. No rule can fail after a repetition without a limit:
Python would take quadratic time where RE2 takes linear time.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from keras_addnorm.basics.languages import fold

# Abbreviations are short lists of frequent ones: what is missing splits a sentence in two, which is
# translated in two parts; nothing is lost. A word that is also an ordinary word of another language
# stands in its own language's list only.


@dataclasses.dataclass(frozen=True)
class Abbreviations:
    """The abbreviations of a language, without their last dot.

    Those that often end a sentence, as "etc." does, are left out: in the middle of one a word in
    lower case follows, before which no text is split.

    Args:
        words: A dot behind these ends no sentence.
        before_numbers: A dot behind these ends no sentence if a number follows.
        has_ordinals: Whether a number with a dot is an ordinal number ("am 3. Mai").
        ends: Marks that end a sentence in this language only.
    """

    words: tuple[str, ...] = ()
    before_numbers: tuple[str, ...] = ()
    has_ordinals: bool = False
    ends: str = ""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Those that no language uses as a word: they hold where the language is not known, too.
COMMON = Abbreviations(
    _words(
        "Mr Mrs Ms Messrs Dr Drs dr Prof prof St Ste Sgt Lt Capt Cpt Hr Frl Sra Srta Dra Sig Mgr "
        "Jr Sr vs e.g i.e cf approx aprox al z.B z.Bsp d.h u.a u.U i.d.R o.ä s.o s.u bzw bspw "
        "ca vgl evtl ggf inkl exkl zzgl p.ej p.ex c.-à-d M.Sc B.Sc Ph.D Dipl Ing"
    ),
    _words("No Nos no Nr nr Art art Fig fig Figs Abb Tab Vol vol Bd Kap Ch Sec Eq pp p S n° Abs"),
)
_LANGUAGES = {
    "cs": Abbreviations(_words("např tzv tj mj resp ing mudr judr phdr"), (), True),
    "da": Abbreviations(_words("f.eks bl.a ca dvs evt hr fr mht nr pga"), (), True),
    "de": Abbreviations(
        _words(
            "Hrn Fr St Abt Allg Bes Bez Co Dir Dres Forts Gebr Geb geb gest Ges Hl hl Hrsg Ing Jh "
            "Jhdt Mag Med Min Mio Mrd Mill Mitgl Mod Nachf Pfr Phil Pos Präs Red Rd Std Str Tel "
            "Univ Verf Vors Wiss allg bes bez bzgl d.i d.J d.M dgl einschl engl entspr frz geg "
            "ggü gem i.A i.S i.V insb insbes jur lat lfd m.E max med mind min n.Chr v.Chr österr "
            "phil rd sog Jan Feb Apr Aug Sep Sept Okt Nov Dez sen jun v.a wg z.T z.Zt zit zw"
        ),
        _words("Anl Anm Aufl Pkt Ziff Zi Rn Z"),
        True,
    ),
    "el": Abbreviations(_words("π.χ κ.λπ κ.ά δηλ κ κα"), (), False, ";"),
    "en": Abbreviations(
        _words(
            "Adj Adm Adv Asst Ave Bldg Blvd Brig Bros Col Comdr Cmdr Cpl Dept Det Dist Esq Ft Gen "
            "Gov Hon Hosp Insp Lt Maj Mlle Mme Mt Mtn Pfc Pres Pte Pvt Rep Reps Rd Rev Sen Sens "
            "Sec Supt Surg Univ ca Jan Feb Mar Apr Aug Sept Sep Oct Nov Dec esp incl est"
        ),
        _words("Apt Ex Para Pt Rm Sect ch eds ed par"),
    ),
    "es": Abbreviations(
        _words("Ud Uds Vd Vds D Dña Excmo Ilmo Lic Gral Avda Av pág págs núm tel EE.UU")
    ),
    "et": Abbreviations(_words("nt st vt"), (), True),
    "fi": Abbreviations(_words("esim mm ks ns n ym"), (), True),
    "fr": Abbreviations(_words("MM Mme Mlle Mgr Me av env chap éd boul art"), _words("t vol")),
    "hr": Abbreviations(_words("npr tj dipl ing mr"), (), True),
    "hu": Abbreviations(_words("pl ill kb ún id ifj"), (), True),
    "it": Abbreviations(_words("Sigg Sig.ra Dott Ing Avv Arch Geom Rag On pag sig dott")),
    "lt": Abbreviations(_words("pvz t.y t.t"), (), True),
    "lv": Abbreviations(_words("piem u.c utt t.i"), (), True),
    "nl": Abbreviations(
        _words("dhr mevr mw drs mr ir ing bijv bv d.w.z m.b.t o.a t.a.v t.n.v n.a.v blz ong")
    ),
    "no": Abbreviations(_words("f.eks bl.a ca dvs evt hr fr nr pga"), (), True),
    "pl": Abbreviations(
        _words("np tzn tj tzw ul al pl inż mgr hab ks św im godz m.in r gen płk ok zob"), (), True
    ),
    "pt": Abbreviations(_words("Exmo Ilmo D Sto Sta Eng Av pág págs nº tel")),
    "ro": Abbreviations(_words("dl dna dvs nr str pag ş.a ex")),
    "ru": Abbreviations(_words("ул д кв стр т.е т.к др им проф акад рис тыс млн")),
    "sk": Abbreviations(_words("napr tzv tj resp ing mudr judr phdr"), (), True),
    "sl": Abbreviations(_words("npr tj ga g oz inž mag"), (), True),
    "sr": Abbreviations(_words("npr tj нпр тј"), (), True),
    "sv": Abbreviations(_words("t.ex bl.a ca dvs el fr.o.m m.fl m.m o.s.v s.k")),
    "tr": Abbreviations(_words("vb vs örn bkz Sn Av Yrd Doç"), (), True),
    "uk": Abbreviations(_words("вул буд кв ім проф акад рис тис млн")),
}
for _code, _like in {"nn": "no", "bs": "hr"}.items():
    _LANGUAGES[_code] = _LANGUAGES[_like]


def abbreviations_of(language: str | None) -> Abbreviations:
    """Return the abbreviations of a language, those that all languages share among them."""
    own = _LANGUAGES.get(fold(language or ""), Abbreviations())
    return dataclasses.replace(
        own,
        words=tuple(dict.fromkeys(COMMON.words + own.words)),
        before_numbers=tuple(dict.fromkeys(COMMON.before_numbers + own.before_numbers)),
    )


# Unicode's noncharacters, of which no text has to consist.
MARK = "\ufdd0"
_PROTECTED = "\ufdd1"

LINE_BREAKS = "\n\x0b\x0c\r\x85\u2028\u2029"
_BLANKS = "\t \xa0\u1680\u2000-\u200a\u202f\u205f\u3000\x1c-\x1f"
_WHITE = LINE_BREAKS + _BLANKS
WHITE_SPACE_CLASS = f"[{_WHITE}]"
# All of them, for `str.strip`.
WHITE_SPACE = "".join(c for c in map(chr, range(0x3001)) if re.match(WHITE_SPACE_CLASS, c))

LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8 at most."""


class Substitution(NamedTuple):
    """Each match of `pattern` is replaced by `rewrite`, which may use its groups.

    Args:
        pattern: A regular expression that `re` and RE2 read in the same way.
        rewrite: The replacement.
    """

    pattern: str
    rewrite: str


class Rules(NamedTuple):
    """Substitutions that put `MARK` between the sentences of a text.

    The text between two marks keeps the white space that follows it. White space at the beginning
    of the text is taken away.

    Args:
        substitutions: The rules, to be applied in this order.
        breaks: The characters, as the inside of a class, of which one stands between each two
            sentences.
        ending: A pattern of what a single sentence may end with.
    """

    substitutions: tuple[Substitution, ...]
    breaks: str
    ending: str

    @property
    def one_sentence(self) -> str:
        """A pattern of whole texts that are certainly a single sentence, as most texts are."""
        return f"[^{self.breaks}]*{self.ending}"


def _class(characters: Iterable[str]) -> str:
    """Write a set of characters as the inside of a class, in ranges."""
    codes = set(map(ord, characters))
    firsts = sorted(code for code in codes if code - 1 not in codes)
    lasts = sorted(code for code in codes if code + 1 not in codes)
    return "".join(
        re.escape(chr(first)) + (f"-{re.escape(chr(last))}" if last > first else "")
        for first, last in zip(firsts, lasts, strict=True)
    )


# The scripts that have capitals: Latin, Greek, Cyrillic, Armenian.
_CASED = [chr(code) for code in (*range(0x590), *range(0x1E00, 0x2000))]
_LOWER = _class(c for c in _CASED if c.islower())
_UPPER = _class(c for c in _CASED if c.isupper())
# Marks behind which white space ends a sentence.
_ENDS = _class(".!?…‽⁇⁈⁉؟۔։።፧៕៚᠃᠉෴᙮")
# Marks that end a sentence by themselves.
_STRONG_ENDS = _class("。！？｡।॥။។")
_CLOSING = _class("\"'”’“‘»«›‹)]}」』）】》〉〕］*_")
_OPENING = _class("\"'“‘„‚”’«»‹›([{「『（【《〈¿¡*_-–—•")
# Scripts that are written without spaces between sentences: Han, kana, their punctuation.
_HAN = "々〇\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f"
HAN = re.compile(f"[{_HAN}]")
_NO_SPACE_AFTER = _HAN + "\u3000-\u3004\u3008-\u301f！-／：-＠［-｠｡-･"
_AT_MOST = "{0,8}"


def _sentence_rules(language: str | None) -> Rules:
    known = abbreviations_of(language)
    ends = _ENDS + _class(known.ends)
    longest_first = sorted(known.words, key=len, reverse=True)
    # "z. B." as well as "z.B."
    words = "|".join(map(re.escape, longest_first)).replace(r"\.", rf"\.[{_BLANKS}]?")
    numbered = "|".join(map(re.escape, known.before_numbers))
    word_begins = f"(?:^|[^{_LOWER}{_UPPER}0-9])"
    number_begins = f"(?:^|[^{_LOWER}{_UPPER}0-9.,])"
    protect = [
        Substitution(f"({word_begins}(?:{words})\\.)", rf"\1{_PROTECTED}"),
        Substitution(f"({word_begins}(?:{numbered})\\.)([{_BLANKS}]?[0-9])", rf"\1{_PROTECTED}\2"),
        # Initials, and letters with a dot each: "J. S. Bach", "the U.S. Army".
        Substitution(f"((?:^|[{_WHITE}{_OPENING}.])(?:[{_UPPER}]\\.)+)", rf"\1{_PROTECTED}"),
        # "z. B."
        Substitution(
            f"((?:^|[{_WHITE}{_OPENING}])[{_LOWER}]\\.)([{_BLANKS}][{_LOWER}{_UPPER}]\\.)",
            rf"\1{_PROTECTED}\2",
        ),
        # "1. An item".
        Substitution(
            f"((?:^|[{LINE_BREAKS}])[{_BLANKS}]{{0,20}}[0-9]{{1,3}}\\.)", rf"\1{_PROTECTED}"
        ),
    ]
    if known.has_ordinals:
        protect.append(
            Substitution(f"({number_begins}(?:[0-9]{{1,3}}|[IVX]{{1,6}})\\.)", rf"\1{_PROTECTED}")
        )
    substitutions = (
        Substitution(f"[{MARK}{_PROTECTED}]", ""),
        Substitution(f"^[{_WHITE}]+", ""),
        *protect,
        # In French a space stands before the closing mark of a quotation.
        Substitution(f"([{ends}](?:[{_CLOSING}]|[{_BLANKS}]»){_AT_MOST}[{_WHITE}]+)", rf"\1{MARK}"),
        # No sentence begins in lower case after a dot or a quotation, unless the word before is too
        # long for an abbreviation or the dot stands alone, as in text that is split into tokens.
        Substitution(
            f"((?:[.…][{_CLOSING}]{_AT_MOST}|[{ends}][{_CLOSING}]{{1,8}})[{_WHITE}]+){MARK}"
            f"([{_OPENING}]{_AT_MOST}[{_LOWER}])",
            r"\1\2",
        ),
        Substitution(f"([{_LOWER}]{{6}}\\.[{_WHITE}]+)([{_LOWER}])", rf"\1{MARK}\2"),
        Substitution(f"([{_WHITE}]\\.[{_WHITE}]+)([{_LOWER}])", rf"\1{MARK}\2"),
        Substitution(
            f"([{_STRONG_ENDS}][{_STRONG_ENDS}{ends}]*[{_CLOSING}]*[{_WHITE}]*){MARK}?",
            rf"\1{MARK}",
        ),
        # Chinese and Japanese whose full-width marks were normalised.
        Substitution(f"([!?][{_CLOSING}]{_AT_MOST})([{_HAN}])", rf"\1{MARK}\2"),
        Substitution(f"([{LINE_BREAKS}][{_WHITE}]*){MARK}?", rf"\1{MARK}"),
        Substitution(_PROTECTED, ""),
    )
    all_ends = ends + _STRONG_ENDS
    return Rules(
        substitutions,
        breaks=f"{all_ends}{LINE_BREAKS}{MARK}{_PROTECTED}",
        ending=f"[{all_ends}]*[{_CLOSING}]*[{_WHITE}]*",
    )


JOIN_RULES = (
    # A line break that stood between two segments stays as it was.
    Substitution(f"{MARK}([{_BLANKS}]*[{LINE_BREAKS}])", r"\1"),
    # Nothing was said in between, or at the beginning of a line.
    Substitution(f"({MARK}[{_BLANKS}]*)(?:{MARK}[{_BLANKS}]*)+", r"\1"),
    Substitution(f"([{LINE_BREAKS}]){MARK}[{_BLANKS}]*", r"\1"),
    Substitution(f"([{_NO_SPACE_AFTER}][{_ENDS},;:{_CLOSING}]{{0,4}}){MARK}[{_BLANKS}]*", r"\1"),
    Substitution(f"{MARK}([{_BLANKS}])", r"\1"),
    Substitution(MARK, " "),
)
"""What becomes of the joints of a translated text: a mark and the white space of the source."""


@functools.lru_cache(maxsize=64)
def sentence_rules(language: str | None) -> Rules:
    """Return the rules of a language, or of none in particular."""
    return _sentence_rules(language)


def substitute(text: str, rules: Iterable[Substitution]) -> str:
    """Apply rules to a text, one after the other."""
    for pattern, rewrite in rules:
        text = _compiled(pattern).sub(rewrite, text)
    return text


def is_one_sentence(text: str, rules: Rules) -> bool:
    """Say whether a text is certainly a single sentence; if not, only the rules can tell."""
    found = _compiled(f"[{rules.breaks}]").search(text)
    return found is None or bool(_compiled(rules.ending).fullmatch(text, found.start()))


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
