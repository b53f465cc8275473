r"""Where sentences end: substitutions that put a mark behind each of them.

The rules are one list of regular expressions, applied in order by Python's `re` and, in an exported
graph, by TensorFlow's RE2. So they keep to what both understand in the same way: characters and
classes of characters written out (no `\s`, `\w`, `\b`, which Python reads as Unicode and RE2 as
ASCII), groups, `^`, and no look-around. No rule can fail after a repetition without a limit:
Python would take quadratic time where RE2 takes linear time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from keras_addnorm.decoding.abbreviations import abbreviations_of

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


class Rule(NamedTuple):
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

    substitutions: tuple[Rule, ...]
    breaks: str
    ending: str

    @property
    def one_sentence(self) -> str:
        """A pattern of whole texts that are certainly a single sentence, as most texts are.

        In Python it would take quadratic time: `is_one_sentence` says the same.
        """
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
        Rule(f"({word_begins}(?:{words})\\.)", rf"\1{_PROTECTED}"),
        Rule(f"({word_begins}(?:{numbered})\\.)([{_BLANKS}]?[0-9])", rf"\1{_PROTECTED}\2"),
        # Initials, and letters with a dot each: "J. S. Bach", "the U.S. Army".
        Rule(f"((?:^|[{_WHITE}{_OPENING}.])(?:[{_UPPER}]\\.)+)", rf"\1{_PROTECTED}"),
        # "z. B."
        Rule(
            f"((?:^|[{_WHITE}{_OPENING}])[{_LOWER}]\\.)([{_BLANKS}][{_LOWER}{_UPPER}]\\.)",
            rf"\1{_PROTECTED}\2",
        ),
        # "1. An item".
        Rule(f"((?:^|[{LINE_BREAKS}])[{_BLANKS}]{{0,20}}[0-9]{{1,3}}\\.)", rf"\1{_PROTECTED}"),
    ]
    if known.has_ordinals:
        protect.append(
            Rule(f"({number_begins}(?:[0-9]{{1,3}}|[IVX]{{1,6}})\\.)", rf"\1{_PROTECTED}")
        )
    substitutions = (
        Rule(f"[{MARK}{_PROTECTED}]", ""),
        Rule(f"^[{_WHITE}]+", ""),
        *protect,
        # In French a space stands before the closing mark of a quotation.
        Rule(f"([{ends}](?:[{_CLOSING}]|[{_BLANKS}]»){_AT_MOST}[{_WHITE}]+)", rf"\1{MARK}"),
        # No sentence begins in lower case after a dot or a quotation, unless the word before is too
        # long for an abbreviation or the dot stands alone, as in text that is split into tokens.
        Rule(
            f"((?:[.…][{_CLOSING}]{_AT_MOST}|[{ends}][{_CLOSING}]{{1,8}})[{_WHITE}]+){MARK}"
            f"([{_OPENING}]{_AT_MOST}[{_LOWER}])",
            r"\1\2",
        ),
        Rule(f"([{_LOWER}]{{6}}\\.[{_WHITE}]+)([{_LOWER}])", rf"\1{MARK}\2"),
        Rule(f"([{_WHITE}]\\.[{_WHITE}]+)([{_LOWER}])", rf"\1{MARK}\2"),
        Rule(
            f"([{_STRONG_ENDS}][{_STRONG_ENDS}{ends}]*[{_CLOSING}]*[{_WHITE}]*){MARK}?",
            rf"\1{MARK}",
        ),
        # Chinese and Japanese whose full-width marks were normalised.
        Rule(f"([!?][{_CLOSING}]{_AT_MOST})([{_HAN}])", rf"\1{MARK}\2"),
        Rule(f"([{LINE_BREAKS}][{_WHITE}]*){MARK}?", rf"\1{MARK}"),
        Rule(_PROTECTED, ""),
    )
    all_ends = ends + _STRONG_ENDS
    return Rules(
        substitutions,
        breaks=f"{all_ends}{LINE_BREAKS}{MARK}{_PROTECTED}",
        ending=f"[{all_ends}]*[{_CLOSING}]*[{_WHITE}]*",
    )


JOIN_RULES = (
    # A line break that stood between two segments stays as it was.
    Rule(f"{MARK}([{_BLANKS}]*[{LINE_BREAKS}])", r"\1"),
    # Nothing was said in between, or at the beginning of a line.
    Rule(f"({MARK}[{_BLANKS}]*)(?:{MARK}[{_BLANKS}]*)+", r"\1"),
    Rule(f"([{LINE_BREAKS}]){MARK}[{_BLANKS}]*", r"\1"),
    Rule(f"([{_NO_SPACE_AFTER}][{_ENDS},;:{_CLOSING}]{{0,4}}){MARK}[{_BLANKS}]*", r"\1"),
    Rule(f"{MARK}([{_BLANKS}])", r"\1"),
    Rule(MARK, " "),
)
"""What becomes of the joints of a translated text: a mark and the white space of the source."""


@functools.lru_cache(maxsize=64)
def sentence_rules(language: str | None) -> Rules:
    """Return the rules of a language.

    Args:
        language: The language of the texts, or `None`.

    Returns:
        The rules.
    """
    return _sentence_rules(language)


def substitute(text: str, rules: Iterable[Rule]) -> str:
    """Apply rules to a text.

    Args:
        text: The text.
        rules: The rules.

    Returns:
        The text after the last rule.
    """
    for pattern, rewrite in rules:
        text = _compiled(pattern).sub(rewrite, text)
    return text


def is_one_sentence(text: str, rules: Rules) -> bool:
    """Say whether a text is certainly a single sentence.

    Args:
        text: The text.
        rules: What would split it.

    Returns:
        False if only the rules can tell.
    """
    found = _compiled(f"[{rules.breaks}]").search(text)
    return found is None or bool(_compiled(rules.ending).fullmatch(text, found.start()))


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
