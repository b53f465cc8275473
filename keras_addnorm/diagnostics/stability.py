"""Forecasts, before any training, whether a model will train."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_addnorm import schemes
from keras_addnorm.basics.argument_checks import is_number, is_whole, require_gain, require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.diagnostics.gradients import loss_gradients
from keras_addnorm.diagnostics.observe import Observation, observe
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

Batch = tuple[dict[str, np.ndarray], np.ndarray]

CALIBRATED: dict[str, int] = {
    **dict.fromkeys(
        ("plain", "no_residual", "no_norm", "post_ln", "pre_ln", "deep_norm", "rezero"), 24
    ),
    **dict.fromkeys(
        (
            "sandwich_ln",
            "res_post_norm",
            "sub_ln",
            "ln_scaling",
            "hybrid_norm",
            "ds_init",
            "keel",
            "gpas",
            "t_fixup",
            "layer_scale",
            "orthogonal",
            "deep_delta",
            "pro_res",
            "b2t",
            "hyper_connections",
            "mhc_lite",
            "mhc",
            "attention_residuals",
            "residual_scalars",
            "dense_former",
            "frac_connections",
            "dlcl",
            "siamese_norm",
            "krom_hc",
        ),
        12,
    ),
}
"""Schemes of whose forecasts, with default fields and layer norm, at least half were right in
`docs/stability.md` and `docs/study_schemes.md`, and their deepest trainings there: layers of
encoder and decoder together."""
_CALIBRATED_NORM = "layer_norm"


class Stability(enum.Enum):
    """The verdict of a forecast, from good to bad."""

    TRAINS = "trains without warm-up"
    NEEDS_WARMUP = "needs warm-up"
    WILL_NOT_TRAIN = "will not train"


@dataclasses.dataclass(frozen=True)
class StabilityThresholds:
    """Where a number becomes a verdict. Each was set on the short trainings in `docs/stability.md`.

    Args:
        lost_signal: Below this token signal, what a stack puts out hardly depends on which tokens
            it reads, and there is nothing to learn from. `plain` models of depth 6 start at 0, and
            Post-LN at 0.001 at depth 24; none of them trained.
        weak_signal: If the token signal falls below this after one trial step at the full rate, the
            first steps of a training without warm-up would wipe it out. Post-LN of depth 6 fell to
            0.12 at rate 0.002 and trained, to 0.04 at rate 0.01 and needed a warm-up.
        steep_gradient: If the gradient at any sublayer is more than this many times that at the
            last, the first steps are far too large for some weights. Pre-LN has 2 at depth 24;
            residual connections without norms have 90 at depth 6 and trained with a warm-up only.
        exploding_gradient: Beyond this, no usual warm-up helped: residual connections without
            norms have 3e4 at depth 12.

    Raises:
        ValueError: If one is no finite number of 0 or more.
    """

    lost_signal: float = 0.006
    weak_signal: float = 0.08
    steep_gradient: float = 30.0
    exploding_gradient: float = 1000.0

    def __post_init__(self) -> None:
        require_gain(**dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class StabilityReason:
    """One observation behind a verdict.

    Attributes:
        verdict: What it alone would mean.
        text: It in words.
        value: The number.
        threshold: The number it was compared with.
        remedy: What would help; empty where nothing has to.
    """

    verdict: Stability
    text: str
    value: float
    threshold: float
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.value:.2g} (threshold {self.threshold:g})"


@dataclasses.dataclass(frozen=True, eq=False)
class StabilityForecast:
    """What `predict_stability` found.

    The arrays have one entry a sublayer, in the order in which they run: encoder, then decoder.

    Attributes:
        verdict: The verdict; `str(forecast)` says it in words, with the remedy.
        reasons: What it rests on, the most serious first.
        learning_rate: The peak learning rate it is about.
        looked_at: The model that was looked at, which may be smaller than the one asked about.
        sublayers: Their names, as `observe` has them.
        activations: Root mean square of the stream in front of each sublayer.
        branch_ratios: Size of the sublayer's output over that of the stream.
        gradients: Norm of the loss's gradient at the stream in front of each sublayer.
        token_signal: Share of the stream behind each sublayer that tells tokens apart.
        token_signal_after_step: The same after one trial step at the full learning rate.
        loss: The loss of random tokens before training; about log of the vocabulary size, if all
            is well.
    """

    verdict: Stability
    reasons: tuple[StabilityReason, ...]
    learning_rate: float
    looked_at: Seq2SeqConfig
    sublayers: tuple[str, ...]
    activations: np.ndarray
    branch_ratios: np.ndarray
    gradients: np.ndarray
    token_signal: np.ndarray
    token_signal_after_step: np.ndarray
    loss: float

    @property
    def is_calibrated(self) -> bool:
        """Whether at least half of the forecasts of such models were right, as far as is on record.

        The records are `docs/stability.md` and `docs/study_schemes.md`. Such models have the same
        scheme, with its default fields, layer norm, and no fewer layers than this one.
        """
        return _missing_record(self.looked_at) is None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON (numbers that are none are `None`)."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            values[field.name] = _plain(value)
        return {**values, "is_calibrated": self.is_calibrated}

    def __str__(self) -> str:
        config = self.looked_at
        scheme = schemes.serialize(schemes.get(config.scheme))["name"]
        head = (
            f"{scheme}, {config.num_encoder_layers}+{config.num_decoder_layers} layers, peak "
            f"learning rate {self.learning_rate:g}: {self.verdict.value}"
        )
        if self.verdict is Stability.WILL_NOT_TRAIN:
            head += f" at this depth without {self.reasons[0].remedy}"
        lines = [head, *(f"- {reason}" for reason in self.reasons)]
        missing = _missing_record(config)
        if missing is not None:
            lines.append(f"- not calibrated for {missing}: take it as a hint")
        return "\n".join(lines)


def predict_stability(
    config: Seq2SeqConfig,
    *,
    learning_rate: float = 0.002,
    max_width: int = 64,
    max_vocabulary_size: int = 512,
    batch_size: int = 4,
    length: int = 16,
    seed: int = 1,
    thresholds: StabilityThresholds | None = None,
) -> StabilityForecast:
    """Predict, at initialisation, whether a model will train, and whether it needs a warm-up.

    One forward and one backward pass on random tokens give the profile of activations and
    gradients over depth. Then one trial step is taken as Adam would take its first one without
    warm-up, each weight by the learning rate against the sign of its gradient, and a second forward
    pass shows what is left. Two quantities decide:

    - the *token signal*: the share of the stream that tells tokens apart, once what is the same at
      all positions of a sequence and what is the same in all sequences at a position are taken
      away. With x of sequence b at position t:
      `rms(x_bt - mean_t x - mean_b x + mean_bt x) / rms(x)`. Where it is lost, the stack cannot
      know which token it looks at (rank collapse), whatever the size of its gradients;
    - the *gradient growth*: the largest gradient at the stream of any sublayer over that at the
      last.

    Depth and Add & Norm stay those of the config. To be fast, the width is at most `max_width`, the
    vocabularies at most `max_vocabulary_size`, and nothing is dropped. The global random seed is
    set to `seed`. The forecast is about usual data and Adam without clipping; `docs/stability.md`
    shows how often it was right.

    Args:
        config: The model's shape.
        learning_rate: The peak learning rate that is planned.
        max_width: The largest `hidden_dim` that is looked at.
        max_vocabulary_size: The largest vocabulary that is looked at.
        batch_size: Sequences of random tokens, at least 2.
        length: Their length, at least 3.
        seed: Seed of the weights and the tokens.
        thresholds: Where a number becomes a verdict; `None` for those of `StabilityThresholds`.

    Returns:
        The forecast.

    Raises:
        ValueError: If the learning rate is not a finite number above 0, or a size is too small.

    Example:
    ```python
    from keras_addnorm.diagnostics import Stability, predict_stability
    from keras_addnorm.models import Seq2SeqConfig

    config = Seq2SeqConfig.preset(
        "tiny", source_vocabulary_size=8000, target_vocabulary_size=8000, scheme="pre_ln",
        num_encoder_layers=2, num_decoder_layers=2,
    )
    forecast = predict_stability(config, learning_rate=0.001)
    assert forecast.verdict is Stability.TRAINS
    print(forecast)
    ```

    Reference:
        Dong et al., "Attention Is Not All You Need: Pure Attention Loses Rank Doubly Exponentially
        with Depth", 2021 (rank collapse); Wang et al., "DeepNet", 2022 (the first update decides);
        Xiong et al., 2020 (warm-up).
    """
    if not isinstance(config, Seq2SeqConfig):
        raise ArgumentError("A forecast is about a model's shape.", "a Seq2SeqConfig", value=config)
    if not isinstance(thresholds, StabilityThresholds | None):
        raise ArgumentError(
            "Numbers become a verdict at thresholds.",
            "StabilityThresholds, or None",
            value=thresholds,
        )
    require_int("A seed draws the weights.", least=0, seed=seed)
    _check(learning_rate, max_width, max_vocabulary_size, batch_size, length)
    thresholds = StabilityThresholds() if thresholds is None else thresholds
    small = _reduced(config, max_width, max_vocabulary_size, length)
    keras.utils.set_random_seed(seed)
    model = Seq2SeqTransformer(small)
    inputs, labels = _random_batch(small, batch_size, length, seed)

    before = _look(model, inputs)
    probes = {record.name: keras.ops.zeros_like(record.residual) for record in before}
    found = loss_gradients(model, inputs, labels, training=True, probes=probes)
    for variable in model.trainable_variables:
        step = learning_rate * np.sign(found.weights[variable.path])
        variable.assign(to_numpy(variable.value) - step)
    after = _look(model, inputs)

    gradients = np.array([_norm(found.residuals[record.name]) for record in before])
    sizes = np.array([(_rms(record.residual), _rms(record.branch)) for record in before])
    signal, signal_after = (
        np.array([_token_signal(record.merged) for record in observation])
        for observation in (before, after)
    )
    ends = _ends([record.name for record in before])
    reasons = _reasons(
        signal=min(signal[ends]),
        signal_after=min(signal_after[ends]),
        growth=_growth(gradients, found.loss),
        learning_rate=learning_rate,
        thresholds=thresholds,
    )
    return StabilityForecast(
        verdict=reasons[0].verdict,
        reasons=reasons,
        learning_rate=learning_rate,
        looked_at=small,
        sublayers=tuple(record.name for record in before),
        activations=sizes[:, 0],
        branch_ratios=sizes[:, 1] / np.maximum(sizes[:, 0], 1e-30),
        gradients=gradients,
        token_signal=signal,
        token_signal_after_step=signal_after,
        loss=found.loss,
    )


def _missing_record(config: Seq2SeqConfig) -> str | None:
    """What no training on record stands behind, or None."""
    scheme = schemes.get(config.scheme)
    deepest = [most for name, most in CALIBRATED.items() if schemes.get(name) == scheme]
    if not deepest:
        return f"{scheme!r}"
    other_norms = _norm_names(config) - {_CALIBRATED_NORM}
    if other_norms:
        return f"the norm {' or '.join(sorted(other_norms))}"
    if config.num_encoder_layers + config.num_decoder_layers > deepest[0]:
        return f"more than {deepest[0]} layers with this scheme"
    return None


def _norm_names(config: Seq2SeqConfig) -> set[str]:
    norm: Any = config.norm
    sides = [norm]
    if isinstance(norm, dict) and "name" not in norm:
        sides = list(norm.values())
    return {str(side["name"] if isinstance(side, dict) else side) for side in sides}


def _check(learning_rate: float, width: int, vocabulary: int, batch: int, length: int) -> None:
    if not is_number(learning_rate, above=0):
        raise ArgumentError(
            "A forecast is about a learning rate.",
            "a finite number above 0",
            "Pass the peak of your schedule.",
            learning_rate=learning_rate,
        )
    least = {"max_width": 4, "max_vocabulary_size": 16, "batch_size": 2, "length": 3}
    received = dict(zip(least, (width, vocabulary, batch, length), strict=True))
    for name, size in received.items():
        if not is_whole(size, least[name]):
            raise ArgumentError(
                "There is too little to look at. Tokens can be told apart only among several "
                "sequences and positions.",
                f"{name} >= {least[name]}",
                value=size,
            )


def _reduced(config: Seq2SeqConfig, width: int, vocabulary: int, length: int) -> Seq2SeqConfig:
    """The same depth and Add & Norm, narrower, and with nothing dropped."""
    heads, head_dim, scale = config.num_heads, config.head_dim, config.embedding_scale
    hidden_dim = config.hidden_dim
    if hidden_dim > width:
        # An even width for each head: rotary positions rotate pairs of channels.
        hidden_dim = min(hidden_dim, 2 * heads * max(1, width // (2 * heads)))
        if head_dim is not None:
            head_dim = 2 * max(1, head_dim * hidden_dim // (2 * config.hidden_dim))
        if scale is not None:  # The rows of a table become larger, by the root of the widths.
            scale *= (hidden_dim / config.hidden_dim) ** 0.5
    drops: dict[str, Any] = {
        field.name: 0.0
        for field in dataclasses.fields(config)
        if "drop" in field.name and isinstance(getattr(config, field.name), int | float)
    }
    # The same special ids coincide, within any vocabulary.
    special = {name: getattr(config, name) for name in ("pad_id", "start_id", "end_id")}
    distinct = sorted(set(special.values()))
    ids: dict[str, Any] = {name: distinct.index(token) for name, token in special.items()}
    return dataclasses.replace(
        config,
        hidden_dim=hidden_dim,
        head_dim=head_dim,
        embedding_scale=scale,
        intermediate_dim=max(1, config.intermediate_dim * hidden_dim // config.hidden_dim),
        source_vocabulary_size=min(config.source_vocabulary_size, vocabulary),
        target_vocabulary_size=min(config.target_vocabulary_size, vocabulary),
        max_length=max(config.max_length, length),
        **drops,
        **ids,
    )


def _random_batch(config: Seq2SeqConfig, batch_size: int, length: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    special = {config.pad_id, config.start_id, config.end_id}

    def tokens(size: int) -> np.ndarray:
        words = np.array([token for token in range(size) if token not in special], "int32")
        return rng.choice(words, (batch_size, length))

    source = tokens(config.source_vocabulary_size)
    labels = tokens(config.target_vocabulary_size)
    start = np.full((batch_size, 1), config.start_id, "int32")
    return {"source": source, "target": np.concatenate([start, labels[:, :-1]], axis=1)}, labels


def _look(model: Any, inputs: dict[str, np.ndarray]) -> Observation:
    with observe(model) as observation:
        model(inputs, training=True)
    return observation


def _ends(names: Sequence[str]) -> list[int]:
    """The last sublayer of the encoder, and that of the decoder."""
    last = max(index for index, name in enumerate(names) if name.startswith("encoder"))
    return [last, len(names) - 1]


def _token_signal(stream: Any) -> float:
    # The first position holds the same start token in all targets.
    x = to_numpy(stream).astype("float64")[:, 1:]
    size = _rms(x)
    if not 0 < size < math.inf:
        return 0.0
    by_sequence, by_position = x.mean(axis=1, keepdims=True), x.mean(axis=0, keepdims=True)
    own = x - by_sequence - by_position + x.mean(axis=(0, 1), keepdims=True)
    return _rms(own) / size


def _growth(gradients: np.ndarray, loss: float) -> float:
    """The largest gradient over the last one; without limit if there is no number any more."""
    if not (math.isfinite(loss) and np.all(np.isfinite(gradients))):
        return math.inf
    return float(gradients.max() / max(gradients[-1], 1e-30))


def _reasons(
    *,
    signal: float,
    signal_after: float,
    growth: float,
    learning_rate: float,
    thresholds: StabilityThresholds,
) -> tuple[StabilityReason, ...]:
    """Each measurement with its own verdict, the worst first."""
    step = f"one trial step at rate {learning_rate:g}"
    skip = "a skip connection that keeps the tokens apart (such as pre_ln, deep_norm or rezero)"
    reasons = [
        _graded(
            "Share of the stream that tells tokens apart, at initialisation",
            signal,
            {thresholds.lost_signal: (Stability.WILL_NOT_TRAIN, skip)},
            falling=True,
        ),
        _graded(
            f"The same after {step}",
            signal_after,
            {
                thresholds.lost_signal: (
                    Stability.WILL_NOT_TRAIN,
                    f"a lower learning rate than {learning_rate:g}, or {skip}",
                ),
                thresholds.weak_signal: (Stability.NEEDS_WARMUP, "a warm-up"),
            },
            falling=True,
        ),
        _graded(
            "Largest gradient at the stream over that at the last sublayer",
            growth,
            {
                thresholds.exploding_gradient: (Stability.WILL_NOT_TRAIN, "a norm"),
                thresholds.steep_gradient: (Stability.NEEDS_WARMUP, "a warm-up"),
            },
            falling=False,
        ),
    ]
    order = list(Stability)
    return tuple(sorted(reasons, key=lambda reason: -order.index(reason.verdict)))


def _graded(
    text: str,
    value: float,
    limits: dict[float, tuple[Stability, str]],
    *,
    falling: bool,
) -> StabilityReason:
    """The verdict of the first limit, from the worst on, that a value has passed."""
    for limit, (verdict, remedy) in limits.items():
        if (value < limit) if falling else (value > limit):
            return StabilityReason(verdict, text, value, limit, remedy)
    return StabilityReason(Stability.TRAINS, text, value, limit)


def _norm(values: Any) -> float:
    return float(np.linalg.norm(np.asarray(values, "float64")))


def _rms(tensor: Any) -> float:
    values = tensor if isinstance(tensor, np.ndarray) else to_numpy(tensor)
    return float(np.sqrt(np.mean(np.square(values.astype("float64")))))


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in (value.tolist() if hasattr(value, "tolist") else value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
