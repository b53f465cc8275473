r"""How a text is split into segments that are translated one by one.

```python
from keras_addnorm.decoding import splitting

splitting.get("sentences")  # Sentences(language=None)
splitting.get({"name": "sentences", "language": "de"})
splitting.split("Dr. Cox waits. He is late!\n你好。再见。", "sentences")
# ['Dr. Cox waits. ', 'He is late!\n', '你好。', '再见。']
```
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

from keras_addnorm.basics import Table
from keras_addnorm.basics.languages import require_language
from keras_addnorm.decoding.sentence_rules import (
    MARK,
    WHITE_SPACE,
    Rules,
    is_one_sentence,
    sentence_rules,
    substitute,
)


class Splitting(abc.ABC):
    """A way to split texts. A subclass is a frozen dataclass.

    It consists of substitutions, so that Python and an exported graph do the same.
    """

    @property
    @abc.abstractmethod
    def rules(self) -> Rules | None:
        """The substitutions that put `MARK` between two segments; `None` for none."""

    @property
    @abc.abstractmethod
    def keeps_what_fits(self) -> bool:
        """Whether a text that the model can read as a whole is one segment."""

    @property
    @abc.abstractmethod
    def cuts_off(self) -> bool:
        """Whether the end of what is longer than the model is left out, not divided further."""


@dataclasses.dataclass(frozen=True)
class _AtSentenceEnds(Splitting):
    """Splits by the rules of a language.

    Args:
        language: The language of the texts, such as `"de"`, whose abbreviations are then known;
            `None` for those that many languages share.
    """

    language: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.language, str | None):
            raise ValueError(
                "A language has a name. Expected a str, such as 'de', or None. "
                f"Received: {self.language!r:.80}"
            )
        if self.language is not None:
            require_language("language", self.language)

    @property
    def rules(self) -> Rules:
        """The substitutions of the language."""
        return sentence_rules(self.language)

    @property
    def cuts_off(self) -> bool:
        """No."""
        return False


@dataclasses.dataclass(frozen=True)
class Sentences(_AtSentenceEnds):
    """Each sentence, and each line, is translated by itself.

    A sentence that the model cannot read as a whole is divided: behind the last comma or the like
    in the second half of what the model reads, else at the last space, else between two tokens.

    Args:
        language: The language of the texts, such as `"de"`, whose abbreviations are then known;
            `None` for those that many languages share.

    Example:
        >>> split("Am 3. Mai kam sie. Er blieb.", Sentences("de"))
        ['Am 3. Mai kam sie. ', 'Er blieb.']
    """

    @property
    def keeps_what_fits(self) -> bool:
        """No."""
        return False


@dataclasses.dataclass(frozen=True)
class LongTexts(_AtSentenceEnds):
    """Only a text that the model cannot read as a whole is split, as `Sentences` does.

    For models that were trained on paragraphs. A line break in a text that fits is a space.

    Args:
        language: As in `Sentences`.
    """

    @property
    def keeps_what_fits(self) -> bool:
        """Yes."""
        return True


@dataclasses.dataclass(frozen=True)
class NoSplitting(Splitting):
    """A text is one segment; what is longer than the model is cut off."""

    @property
    def rules(self) -> None:
        """None."""

    @property
    def keeps_what_fits(self) -> bool:
        """Yes."""
        return True

    @property
    def cuts_off(self) -> bool:
        """Yes."""
        return True


SplittingLike = str | dict[str, Any] | Splitting
"""What `get` makes a way of splitting of."""

_TABLE: Table[Splitting] = Table(
    "way of splitting texts",
    Splitting,  # type: ignore[type-abstract]
    {"sentences": Sentences, "long_texts": LongTexts, "none": NoSplitting},
    module="keras_addnorm.decoding.splitting",
)
names = _TABLE.names
register = _TABLE.register
get = _TABLE.get
serialize = _TABLE.serialize


def split(text: str, splitting: SplittingLike = "sentences") -> list[str]:
    """Split a text into segments, whatever a model can read.

    Args:
        text: The text.
        splitting: How to split.

    Returns:
        The segments, each with the white space that follows it: joined they are the text without
        the white space at its beginning. A blank text is one empty segment.

    Raises:
        TypeError: If the text is no string.
        ValueError: If there is no such way of splitting.

    Example:
        >>> split("Dr. Cox paid $3.50. He left!")
        ['Dr. Cox paid $3.50. ', 'He left!']
    """
    if not isinstance(text, str):
        raise TypeError(f"A text is split. Expected a str. Received: {text!r:.80}")
    rules = get(splitting).rules
    if rules is None:
        return [text]
    if is_one_sentence(text, rules):
        return [text.lstrip(WHITE_SPACE)]
    first, *others = substitute(text, rules.substitutions).split(MARK)
    return [first, *filter(None, others)]
