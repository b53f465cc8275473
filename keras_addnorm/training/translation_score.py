"""Callbacks for `model.fit`."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_addnorm.basics.argument_checks import is_whole, require_bool
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.training.bleu_tokenizers import AUTO, bleu_tokenizer
from keras_addnorm.training.scores import (
    Scores,
    checked_references,
    checked_texts,
    evaluate_translations,
)


class TranslationScore(keras.callbacks.Callback):
    """Translates held-out sentences at the end of an epoch and adds their scores to the logs.

    The logs get `val_bleu` and `val_chrf`, exact sacreBLEU corpus scores, so that `CSVLogger`,
    `ModelCheckpoint(monitor="val_bleu", mode="max")` and `EarlyStopping` see them. Keras calls
    callbacks in the order of the list: put this one **before** those that read the scores.

    With `every=n`, epochs 1, 1 + n, 1 + 2n, … and the last planned one are scored; the others get
    NaN, which keeps the columns of a CSV log and never counts as an improvement. (The patience
    of `EarlyStopping` still counts every epoch.)

    Args:
        sources: Sentences to translate.
        references: Their translations, one each, as plain detokenised text.
        translate: Called as `translate(model, sources)`; returns one string for each source. For
            instance `lambda model, texts: decoding.translate(model, tokenizer, texts).texts`.
        every: Score each so many epochs.
        lowercase: Whether case is ignored.
        language: The language of the references, as `evaluate_translations` takes it.
        tokenizer: `"auto"`, or the name of sacreBLEU's tokeniser in place of the language's.

    Attributes:
        scores: The latest `Scores`, or None before the first.
        history: `(epoch, Scores)` for each scored epoch, epochs counted from 0 as Keras does.
        hypotheses: The latest translations.

    Raises:
        ValueError: If the texts differ in number or are empty, `every` is below 1, the tokeniser is
            unknown, or `translate` returns another number of texts than it was given.
        TypeError: If a text is not a string or `translate` is not callable.
        ImportError: If the given tokeniser needs a package that is not installed.

    Example:
        >>> from keras_addnorm.training import TranslationScore
        >>> echo = lambda model, texts: texts
        >>> callback = TranslationScore(["one two three four"], ["one two three four"], echo)
        >>> logs = {}
        >>> callback.on_epoch_end(0, logs)
        >>> round(logs["val_bleu"], 1)
        100.0
        >>> callback.signatures["bleu"].split("|")[:3]
        ['nrefs:1', 'case:mixed', 'eff:no']
    """

    def __init__(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        translate: Callable[[keras.Model, list[str]], Sequence[str]],
        *,
        every: int = 1,
        lowercase: bool = False,
        language: str | None = None,
        tokenizer: str = AUTO,
    ) -> None:
        super().__init__()
        self.sources = checked_texts(sources, "sources")
        self.references = checked_references(references)
        if len(self.sources) != len(self.references):
            raise ArgumentError(
                "Each source needs one reference.",
                received=f"{len(self.sources)} sources and {len(self.references)} references",
            )
        if not callable(translate):
            raise ArgumentTypeError(
                "translate must be a callable (model, sources) -> translations.",
                received=f"{translate!r} of type {type(translate).__name__}",
            )
        self.translate = translate
        if not is_whole(every, 1):
            raise ArgumentError(
                "every must be an int of at least 1 (score each epoch).", value=every
            )
        self.every = int(every)
        require_bool(lowercase=lowercase)
        self.lowercase = lowercase
        # Here, too, so that a wrong name or a missing package is an error before the first epoch.
        self.tokenizer = bleu_tokenizer(language, tokenizer, references=self.references)
        self.scores: Scores | None = None
        self.history: list[tuple[int, Scores]] = []
        self.hypotheses: list[str] = []

    @property
    def signatures(self) -> dict[str, str]:
        """Signatures of the latest scores, from sacreBLEU, by metric; empty before the first."""
        if self.scores is None:
            return {}
        return {"bleu": self.scores.bleu_signature, "chrf": self.scores.chrf_signature}

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Score the epoch if it is due, and add `val_bleu` and `val_chrf` to `logs`."""
        logs = {} if logs is None else logs
        if not self._is_due(epoch):
            logs["val_bleu"] = logs["val_chrf"] = float("nan")
            return
        self.hypotheses = list(self.translate(self.model, list(self.sources)))
        if len(self.hypotheses) != len(self.sources):
            raise ArgumentError(
                "translate must return one text for each source.",
                received=f"{len(self.hypotheses)} texts for {len(self.sources)} sources",
            )
        self.scores = evaluate_translations(
            self.hypotheses, self.references, self.lowercase, tokenizer=self.tokenizer
        )
        self.history.append((epoch, self.scores))
        logs["val_bleu"], logs["val_chrf"] = self.scores.bleu, self.scores.chrf

    def _is_due(self, epoch: int) -> bool:
        planned = (self.params or {}).get("epochs")
        return epoch % self.every == 0 or epoch + 1 == planned
