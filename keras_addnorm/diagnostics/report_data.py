"""The data of a report: its numbers and verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.diagnostics.effective_depth import EffectiveDepth


@dataclasses.dataclass(frozen=True)
class NormStatistics:
    """A norm of an Add & Norm, seen over the real positions of the batch.

    Attributes:
        slot: `"pre_norm"`, `"branch_norm"` or `"post_norm"`.
        input_mean: Mean in front of the norm.
        input_variance: Mean variance over the channels of a position in front of the norm.
        output_mean: Mean behind it.
        output_variance: Mean variance over the channels behind it.
        gain: Root mean square of its gain; `None` if it has none.
    """

    slot: str
    input_mean: float
    input_variance: float
    output_mean: float
    output_variance: float
    gain: float | None


@dataclasses.dataclass(frozen=True)
class AttentionStatistics:
    """An attention's heads, seen over the real queries of the batch.

    Attributes:
        entropy: Mean entropy of each head, in nats.
        entropy_share: The same as a share of log n, n the number of keys that a query can see: 1
            is looking everywhere evenly, 0 at one token.
        similarity: How alike each two heads look, from -1 to 1; see `head_similarity`.
        free_weights: How many weights of a head are free: of each query, one fewer than the keys
            that it can see. None if it was not counted.
        patterns: The mean weight of each head on the previous token, its own, the next, the first
            and the last one, and of a head that looks everywhere evenly; see `head_patterns`. None
            in a report of before there were patterns.
    """

    entropy: tuple[float, ...]
    entropy_share: tuple[float, ...]
    similarity: tuple[tuple[float, ...], ...]
    free_weights: int | None = None
    patterns: dict[str, tuple[float, ...]] | None = None


@dataclasses.dataclass(frozen=True)
class StreamStatistics:
    """The streams and the memory around a sublayer, for a scheme that has several or keeps some.

    Means and largest values are over the real positions of the batch. What a scheme does not have
    is `None`, or empty.

    Attributes:
        rms: Root mean square of each stream behind the sublayer.
        memory_rms: That of each memory behind it, oldest first.
        cosine: Mean cosine between each two streams behind it; 0 where one is zero.
        read: Mean weight with which the sublayer reads each stream.
        write: Mean weight with which its output goes into each.
        mixing: Mean mixing matrix: a row for each stream that is made, a column for each that it
            is made of.
        row_error: Largest distance of a row's sum from 1, in the matrix of any position.
        column_error: That of a column's. A doubly stochastic matrix has 0 for both, and no entry
            below 0.
        smallest_mixing: Smallest entry of the matrix of any position.
        depth: Mean weights over what the sublayer reads, or leaves, of the depth below it, the
            oldest (the embedding) first.
        depth_entropy: Mean over the positions of the entropy of `|a| / sum |a|`, `a` these weights,
            in nats; at most the log of their number.

    Example:
        >>> StreamStatistics(rms=(1.0, 2.0), cosine=((1.0, 0.5), (0.5, 1.0))).mean_cosine
        0.5
    """

    rms: tuple[float, ...] = ()
    memory_rms: tuple[float, ...] = ()
    cosine: tuple[tuple[float, ...], ...] = ()
    read: tuple[float, ...] | None = None
    write: tuple[float, ...] | None = None
    mixing: tuple[tuple[float, ...], ...] | None = None
    row_error: float | None = None
    column_error: float | None = None
    smallest_mixing: float | None = None
    depth: tuple[float, ...] | None = None
    depth_entropy: float | None = None

    @property
    def mean_cosine(self) -> float | None:
        """Mean of the cosines between different streams; `None` if there is but one."""
        size = len(self.cosine)
        pairs = [self.cosine[i][j] for i in range(size) for j in range(i)]
        return sum(pairs) / len(pairs) if pairs else None


@dataclasses.dataclass(frozen=True)
class SublayerReport:
    """The numbers of one sublayer, over the real positions of the batch.

    Attributes:
        name: `"encoder/0/self_attention"` and so on; see `observe`.
        residual_rms: Root mean square of the stream x in front of it.
        branch_rms: That of its output F(x).
        merged_rms: That of the stream y behind its Add & Norm.
        residual_ratio: ‖F(x)‖ / ‖x‖.
        cosine: Mean over the positions of cos(x, y).
        effect: ‖y - y₀‖ / ‖y₀‖, where y₀ is the stream behind the Add & Norm if the sublayer gave
            zeros: how much of the stream is its doing, whatever the scheme.
        gradient_norm: Norm of the loss's gradient at x.
        weight_gradient_norm: Norm of the loss's gradient at all its weights together; `None` if
            its weights are not known, as for an `AddNorm` in a model of your own.
        norms: The norms of its Add & Norm.
        dead_units: Share of the feed-forward units that do nothing; `None` for an attention.
        attention: The heads; `None` for a feed-forward sublayer.
        skip_cost: How much larger the loss of the batch is if the sublayer gives zeros; `None` if
            that was not measured. See `effective_depth`.
        streams: Streams, memory and the weights between them; `None` for a scheme of one stream
            without memory.
        residual_mean: Mean of x over its channels; `None` in a report of before there were means.
        branch_mean: That of F(x).
        merged_mean: That of y.
    """

    name: str
    residual_rms: float
    branch_rms: float
    merged_rms: float
    residual_ratio: float
    cosine: float
    effect: float
    gradient_norm: float
    weight_gradient_norm: float | None
    norms: tuple[NormStatistics, ...]
    dead_units: float | None
    attention: AttentionStatistics | None
    skip_cost: float | None = None
    streams: StreamStatistics | None = None
    residual_mean: float | None = None
    branch_mean: float | None = None
    merged_mean: float | None = None

    @property
    def stack(self) -> str:
        """`"encoder"` of `"encoder/0/self_attention"`; empty for an `AddNorm` alone."""
        return self.name.partition("/")[0] if "/" in self.name else ""

    @property
    def layer(self) -> str:
        """`"encoder/0"` of `"encoder/0/self_attention"`; empty for an `AddNorm` alone."""
        return self.name.rpartition("/")[0]

    @property
    def kind(self) -> str:
        """`"self_attention"` of `"encoder/0/self_attention"`."""
        return self.name.rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """Where the heads of one attention look in one sentence.

    Attributes:
        name: The sublayer.
        queries: The tokens that look, one a row.
        keys: The tokens that are looked at, one a column.
        weights: By head, row and column.
    """

    name: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: tuple[tuple[tuple[float, ...], ...], ...]


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """Where a number becomes a verdict.

    Args:
        swamping_effect: A sublayer that changes the stream by more than this many times the
            stream's own size swamps it: what earlier layers wrote can hardly be read any more.
            A Pre-LN model of 4 + 4 layers trained on Multi30k reaches 1.3 in its first
            feed-forward sublayer and stays below 0.8 elsewhere.
        swamping_ratio: So does one whose output is this many times as large as the stream, unless
            what its scheme makes of it (a small learned gain) changes the stream by less than its
            own size.
        identity_effect: A sublayer that changes the stream by less than this share of it is nearly
            the identity. At its start a DeepNorm of 18 + 18 layers changes it by 0.013.
        gradient_fall: If the gradient at the first sublayer of a stack is less than this share of
            that at the last, it vanishes on its way down. At the start, the `tiny` preset with
            Post-LN has 0.2 in a decoder of 4 layers and 0.001 in one of 18.
        gradient_rise: If it is more than this many times that at the last, it explodes. At the
            start, Pre-LN has 8 in an encoder of 18 layers, and 9 layers without norms have 19,000.
        norm_gain: A norm whose gain has a root mean square below this passes on next to nothing;
            gains start at 1.
        norm_variance: A norm whose input varies less than this over the channels divides by its
            epsilon, not by the deviation: it no longer normalises.
        head_similarity: Two heads whose attention weights are this alike copy each other; 1 is
            equality. The trained Multi30k model has at most 0.66, fresh models at most 0.71.
        head_free_weights: With fewer free weights than these, as in one short sentence, two heads
            are alike by chance: fresh heads reach 0.92 with 6, and 0.77 with 36 or more.
        dead_units: A feed-forward sublayer with more than this share of dead units wastes them;
            the trained Multi30k model has at most 0.16.

    Raises:
        ValueError: If one is no number: with NaN nothing would ever be found.
    """

    swamping_effect: float = 4.0
    swamping_ratio: float = 10.0
    identity_effect: float = 0.01
    gradient_fall: float = 1e-2
    gradient_rise: float = 3e2
    norm_gain: float = 0.05
    norm_variance: float = 1e-5
    head_similarity: float = 0.95
    head_free_weights: int = 50
    dead_units: float = 0.5

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            is_infinite = isinstance(value, float) and math.isinf(value)
            if not is_infinite and not is_number(value):
                raise ArgumentError(
                    f"`{name}` is what numbers are compared with.", "a number", **{name: value}
                )


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One finding.

    Attributes:
        kind: What it is, one word for programs: `"swamped"`, `"near_identity"`,
            `"vanishing_gradient"`, `"exploding_gradient"`, `"norm_collapsed"`, `"copied_heads"`,
            `"dead_units"`, `"no_skip"`, `"no_final_norm"`, `"not_finite"`, or `"healthy"` if there
            is nothing else to say.
        sublayers: The sublayers that it is about, the worst first.
        text: What was found and what it means.
        threshold: The threshold behind it, in words; empty of `"healthy"`.
        advice: What to do about it.
    """

    kind: str
    sublayers: tuple[str, ...]
    text: str
    threshold: str
    advice: str

    def __str__(self) -> str:
        threshold = f"({self.threshold})" if self.threshold else ""
        return " ".join(filter(None, (self.text, threshold, self.advice)))


@dataclasses.dataclass(frozen=True)
class ReportData:
    """What one forward and backward pass shows of a model.

    Attributes:
        loss: The loss of the batch.
        sublayers: The numbers of each sublayer, in the order in which they ran.
        verdicts: What stands out, in words; one `"healthy"` if nothing does.
        thresholds: Where a number becomes a verdict.
        attention_maps: Of the sentence that was given, one an attention.
    """

    loss: float
    sublayers: tuple[SublayerReport, ...]
    verdicts: tuple[Verdict, ...]
    thresholds: Thresholds = dataclasses.field(default_factory=Thresholds)
    attention_maps: tuple[AttentionMap, ...] = ()

    @property
    def effective_depth(self) -> EffectiveDepth | None:
        """The loss without each sublayer; `None` if it was not measured."""
        costs = {item.name: item.skip_cost for item in self.sublayers}
        measured = {name: self.loss + cost for name, cost in costs.items() if cost is not None}
        return EffectiveDepth(self.loss, measured) if measured else None

    @property
    def without_heads(self) -> str:
        """Which self-attentions have no weights to show (SSRU, average attention); empty if none.

        One sentence, for those who read the report.
        """
        names = [
            item.name
            for item in self.sublayers
            if item.kind == "self_attention" and item.attention is None
        ]
        return f"No attention weights in {', '.join(names)}." if names else ""

    @property
    def is_healthy(self) -> bool:
        """Whether nothing stands out."""
        return all(verdict.kind == "healthy" for verdict in self.verdicts)


def by_stack(sublayers: Iterable[SublayerReport]) -> dict[str, list[SublayerReport]]:
    """Return the sublayers of each stack, by its name."""
    stacks: dict[str, list[SublayerReport]] = {}
    for item in sublayers:
        stacks.setdefault(item.stack, []).append(item)
    return stacks
