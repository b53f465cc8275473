"""`prune`: a model without the sublayers that contribute least, and what that costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.diagnostics.batch_loss import LossLike, require_loss
from keras_addnorm.diagnostics.report import Report
from keras_addnorm.layers.pruned import require_sublayers
from keras_addnorm.models import Seq2SeqTransformer, rebuild
from keras_addnorm.models.seq2seq import require_model
from keras_addnorm.training import (
    MaskedSparseCategoricalCrossentropy,
    Perplexity,
    bleu_tokenizer,
    evaluate_translations,
)
from keras_addnorm.training.scores import checked_texts

Evaluate = Callable[[Seq2SeqTransformer], Mapping[str, float]]
"""Takes a model that is not compiled and returns its scores by name."""


@dataclasses.dataclass(frozen=True)
class PruneCost:
    """What leaving some sublayers out costs.

    Attributes:
        sublayers: Those that were left out; none in the first row of a table.
        scores: What `evaluate` found, by name.
        cost: Each score minus that of the model that nothing was pruned of: a higher loss is a
            cost, and so is a lower BLEU.
        weights: Number of weights that the model has.
    """

    sublayers: tuple[str, ...]
    scores: Mapping[str, float]
    cost: Mapping[str, float]
    weights: int


@dataclasses.dataclass(frozen=True)
class PruneResult:
    """A pruned model and its price list; `print` it for a table.

    Attributes:
        model: The model without all of the sublayers.
        table: The model as it was, then without each sublayer by itself, then without all.
    """

    model: Seq2SeqTransformer
    table: tuple[PruneCost, ...]

    def __str__(self) -> str:
        scores = list(self.table[0].scores)
        heads = ["without", "weights", *(head for name in scores for head in (name, "cost"))]
        lines = [heads, *(_cells(row, scores) for row in self.table)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])],
            ).rstrip()
            for line in lines
        )


@dataclasses.dataclass(frozen=True)
class Validation:
    """An `evaluate` for `prune`: loss and perplexity of a data set, and BLEU of translations.

    Args:
        data: Batches of inputs and labels, as `Model.evaluate` takes them; `None` for no loss.
        sources: Sentences to translate; none for no BLEU.
        references: Their translations.
        translate: `translate(model, sources)`, which returns one text for each; as in
            `keras_addnorm.training.TranslationScore`.
        loss: `loss(labels, outputs)`, or the name of a loss; `None` for
            `MaskedSparseCategoricalCrossentropy` with the model's `pad_id`.
        language: The language of the references, which chooses how BLEU splits them into words.

    Raises:
        TypeError: If a text is not a string.
        ValueError: If there is nothing to evaluate, texts without references or a way to translate
            them, or a loss that is no function.
    """

    data: Any = None
    sources: Sequence[str] = ()
    references: Sequence[str] = ()
    translate: Callable[[Any, list[str]], Sequence[str]] | None = None
    loss: LossLike | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        if self.data is None and not self.sources:
            raise ArgumentError(
                "There is nothing to validate on.", "`data`, `sources` or both", received="neither"
            )
        require_loss(self.loss)
        bleu_tokenizer(self.language)
        if self.sources and not callable(self.translate):
            raise ArgumentError(
                "The sources need someone to translate them.",
                "`translate`, a function of a model and texts",
                translate=self.translate,
            )
        if self.sources:
            checked_texts(self.sources, "sources")
            if len(checked_texts(self.references, "references")) != len(self.sources):
                raise ArgumentError(
                    "Each source needs one reference.",
                    received=f"{len(self.sources)} sources and {len(self.references)} references",
                )

    def __call__(self, model: Seq2SeqTransformer) -> dict[str, float]:
        """Score a model.

        Args:
            model: The model; it is compiled anew.

        Returns:
            `"loss"` and `"perplexity"`, `"bleu"`: those that there is something for.
        """
        scores: dict[str, float] = {}
        if self.data is not None:
            pad_id = model.config.pad_id
            loss = self.loss or MaskedSparseCategoricalCrossentropy(pad_id=pad_id)
            model.compile(loss=loss, metrics=[Perplexity(pad_id=pad_id)])
            scores |= model.evaluate(self.data, return_dict=True, verbose=0)
            if self.loss is None:  # Keras' mean over batches depends on their sizes.
                scores["loss"] = math.log(scores["perplexity"])
        if self.translate is not None:
            hypotheses = list(self.translate(model, list(self.sources)))
            scores["bleu"] = evaluate_translations(
                hypotheses, self.references, language=self.language
            ).bleu
        return {name: float(score) for name, score in scores.items()}


def prune(
    model: Seq2SeqTransformer,
    sublayers: Report | Iterable[str],
    *,
    evaluate: Evaluate | None = None,
) -> PruneResult:
    """Leave sublayers out of a model, and measure what each of them and all of them cost.

    In the place of a pruned sublayer stands `F(x) = 0`, which has no weights and no cache. What
    that means is up to the scheme: with Pre-LN `y = x`, with Post-LN `y = LN(x)`. Norms and gains
    that nothing needs any more go, too. The pruned model is one like any other: its config lists
    the sublayers in `pruned_sublayers`, and it saves, exports, translates and trains.

    Args:
        model: The model; it stays as it is.
        sublayers: Their names, such as `"encoder/0/self_attention"`; or a `Report`, for those
            that it calls nearly the identity.
        evaluate: Scores a model; called with the model as it is, without each sublayer by itself,
            and without all of them. For instance a `Validation`; `None` to measure nothing.

    Returns:
        The pruned model, not compiled, and the table.

    Raises:
        ValueError: If there is no sublayer of such a name, or `evaluate` is no function or returns
            something else than scores.
        TypeError: If it is no `Seq2SeqTransformer`.

    Example:
        >>> from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
        >>> config = Seq2SeqConfig.preset(
        ...     "tiny", source_vocabulary_size=11, target_vocabulary_size=11, scheme="pre_ln"
        ... )
        >>> result = prune(Seq2SeqTransformer(config), ["encoder/2/feed_forward"])
        >>> result.model.config.pruned_sublayers
        ('encoder/2/feed_forward',)
        >>> result.table[0].weights - result.table[-1].weights
        66176
    """
    config = require_model(model).config
    if not isinstance(sublayers, Report | Iterable):
        raise ArgumentError(
            "Sublayers are left out by their names.",
            "a list of names, or a Report",
            value=sublayers,
        )
    if evaluate is not None and not callable(evaluate):
        raise ArgumentError(
            "`evaluate` scores a model.",
            "a function of a model, such as a Validation, or None",
            evaluate=evaluate,
        )
    names = require_sublayers(_names(sublayers), config.sublayer_names)
    pruned = rebuild(model, pruned_sublayers=(*config.pruned_sublayers, *names))
    if evaluate is None:
        return PruneResult(pruned, (_row(model, (), {}, {}), _row(pruned, names, {}, {})))
    # A copy, because `evaluate` may compile its model.
    whole = _scores(evaluate(rebuild(model)))
    table = [_row(model, (), whole, whole)]
    singles = [(name,) for name in names] if len(names) > 1 else []
    for some in singles:
        part = rebuild(model, pruned_sublayers=(*config.pruned_sublayers, *some))
        table.append(_row(part, some, _scores(evaluate(part), whole), whole))
    if names:
        table.append(_row(pruned, names, _scores(evaluate(pruned), whole), whole))
    return PruneResult(pruned, tuple(table))


def _names(sublayers: Report | Iterable[str]) -> Iterable[str]:
    if not isinstance(sublayers, Report):
        return sublayers
    return [
        name
        for verdict in sublayers.verdicts
        if verdict.kind == "near_identity"
        for name in verdict.sublayers
    ]


def _scores(scores: Any, whole: Mapping[str, float] | None = None) -> dict[str, float]:
    """What `evaluate` found, if it is scores, and those of the whole model."""
    try:
        found = {name: float(score) for name, score in scores.items() if not isinstance(score, str)}
    except (AttributeError, TypeError, ValueError):
        found = {}
    are_named = all(isinstance(name, str) for name in found)
    if not found or not are_named or found.keys() != (scores if whole is None else whole).keys():
        names = "each name" if whole is None else ", ".join(whole)
        raise ArgumentError(
            "`evaluate` has to return scores.", f"a dict of a number for {names}", value=scores
        )
    return found


def _row(
    model: Seq2SeqTransformer,
    sublayers: tuple[str, ...],
    scores: Mapping[str, float],
    whole: Mapping[str, float],
) -> PruneCost:
    cost = {name: score - whole[name] for name, score in scores.items()}
    return PruneCost(sublayers, dict(scores), cost, model.count_params())


def _cells(row: PruneCost, scores: list[str]) -> list[str]:
    if len(row.sublayers) > 1:
        what = f"all {len(row.sublayers)}"
    else:
        what = row.sublayers[0] if row.sublayers else "(nothing)"
    numbers = [
        f"{value:{style}}"
        for name in scores
        for value, style in ((row.scores[name], ".4f"), (row.cost[name], "+.4f"))
    ]
    return [what, f"{row.weights:,}", *numbers]
