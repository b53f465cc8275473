"""The configuration of a run: frozen dataclasses that are read from TOML and from flags.

The dataclasses below are the one place where a setting, its default and its help text are written:
the TOML reader, the command line's flags and `config.toml` in the run directory follow from them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_addnorm.runs.errors import UserError, unknown_name

if typing.TYPE_CHECKING:
    from keras_addnorm.data.buckets import Bucketing

SCHEDULES = ("inverse_square_root", "noam", "cosine", "constant")
# How a limit of the gradients is meant, by the name of Keras' own argument.
CLIPS = {"weight": "clipnorm", "all": "global_clipnorm", "value": "clipvalue"}
# What the layers compute in; weights are float32 throughout.
PRECISIONS = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}
# What can choose the best epoch, and whether a high value is good.
BEST_METRICS = {
    "val_loss": False,
    "val_perplexity": False,
    "val_accuracy": True,
    "val_bleu": True,
    "val_chrf": True,
}
TOKENIZER_KINDS = ("bpe", "unigram")
# Which devices train together; the objects are those of `keras_addnorm.distribution`.
DISTRIBUTIONS = ("none", "data", "model")


def _setting(default: Any, text: str, **metadata: Any) -> Any:
    """A dataclass field with its help text, and `flag=` where the flag's name differs."""
    return field(default=default, metadata={"help": text, **metadata})


def _require(condition: bool, key: str, expected: str, received: object) -> None:
    if not condition:
        raise UserError(f"{key} must be {expected}, received {received!r}.")


@dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes numbers."""

    kind: str = _setting("bpe", "SentencePiece model: bpe or unigram", flag="tokenizer")
    vocabulary_size: int = _setting(6000, "number of sub-word pieces")
    joint: bool = _setting(True, "one vocabulary for both languages")

    def __post_init__(self) -> None:
        if self.kind not in TOKENIZER_KINDS:
            raise unknown_name("tokenizer.kind", self.kind, TOKENIZER_KINDS)
        _require(
            self.vocabulary_size > 4,
            "tokenizer.vocabulary_size",
            "more than 4 (four ids are reserved)",
            self.vocabulary_size,
        )


@dataclass(frozen=True)
class ModelChoice:
    """A preset and what to change in it: any field of `Seq2SeqConfig` but the vocabulary sizes."""

    preset: str = _setting("tiny", "tiny, small, base or big")
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingConfig:
    """How the model is trained."""

    epochs: int = _setting(20, "how often the training pairs are seen")
    tokens_per_batch: int = _setting(4096, "padded tokens a batch holds, on its longer side")
    num_buckets: int = _setting(
        6, "how many lengths batches are padded to; chosen for the least padding"
    )
    max_length: int | None = _setting(
        None,
        "tokens of the longest pair that is trained on; by default 128, or the largest of "
        "bucket_lengths",
        flag="max-pair-length",
    )
    bucket_lengths: tuple[int, ...] = _setting(
        (), "the lengths that batches are padded to, if they are not to be chosen"
    )
    label_smoothing: float = _setting(0.1, "share of the probability spread over all pieces")
    r_drop: float = _setting(
        0.0, "see each row twice and punish what dropout makes them differ by, such as 5; 0 = no"
    )
    subword_sampling: float = _setting(
        0.0, "split words anew in each epoch; with bpe, leave a merge out so often, such as 0.05"
    )
    schedule: str = _setting("inverse_square_root", f"learning rate: {', '.join(SCHEDULES)}")
    peak_learning_rate: float = _setting(
        0.002, "learning rate at the end of the warm-up (for noam: a factor)"
    )
    warmup_steps: int = _setting(1000, "steps until the learning rate is at its peak")
    cooldown_epochs: int = _setting(
        0, "let the learning rate fall to 0 over the last N epochs; 0 = leave it to the schedule"
    )
    beta_2: float = _setting(0.98, "decay of Adam's second moment")
    epsilon: float = _setting(1e-9, "Adam's epsilon")
    clipnorm: float | None = _setting(None, "limit of the gradients")
    clip_by: str = _setting(
        "weight", "what clipnorm limits: the norm of each weight's, the norm of all, or each value"
    )
    batches_per_update: int = _setting(
        1, "gradient accumulation: one update for N batches, as if they were one"
    )
    precision: str = _setting("float32", f"what layers compute in: {', '.join(PRECISIONS)}")
    jit_compile: bool = _setting(True, "compile the training step with XLA")
    average_last: int = _setting(
        1, "translate with the mean of the last N epochs' weights; 1 = with the best epoch's"
    )
    keep_last: int = _setting(2, "how many epochs' checkpoints are kept")
    checkpoint_minutes: float = _setting(
        10.0, "write a checkpoint inside an epoch every N minutes; 0 = only at its end"
    )
    checkpoint_batches: int = _setting(
        0, "write a checkpoint inside an epoch every N batches, too; 0 = never"
    )
    best_metric: str = _setting("val_loss", f"what is best: {', '.join(BEST_METRICS)}")
    keep_best: int = _setting(1, "how many of the best epochs' weights are kept")
    ema: float = _setting(
        0.0, "momentum of a moving average of the weights, such as 0.999; 0 = none"
    )
    early_stopping: int = _setting(
        0, "stop after N epochs that did not better best_metric; 0 = never"
    )
    score_every: int = _setting(
        0, "translate the validation split every N epochs and log BLEU and chrF; 0 = never"
    )
    score_pairs: int = _setting(200, "how many validation pairs score_every translates")
    monitor_every: int = _setting(
        0, "log the residual stream of each sublayer every N steps to residuals.csv; 0 = never"
    )
    strict: bool = _setting(
        False, "stop if the data holds empty, too long, repeated, copied or broken pairs"
    )
    distribution: str = _setting(
        "none",
        "devices that train together: none; data, a copy of the weights on each; model, copies "
        "spread over several devices (KERAS_BACKEND=jax)",
    )
    devices_per_model: int = _setting(
        0, "with distribution model: devices of a copy; 0 = all of a process"
    )
    rows_multiple_of: int = _setting(
        1, "batches have a multiple of N rows, so that N devices can share them"
    )
    start_from: str = _setting(
        "", "run directory to start with: its tokenisers and weights, for fine-tuning"
    )
    seed: int = _setting(42, "seed of weights, dropout and shuffling")

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise unknown_name("training.schedule", self.schedule, SCHEDULES)
        for key, known in (
            ("best_metric", BEST_METRICS),
            ("clip_by", CLIPS),
            ("precision", PRECISIONS),
            ("distribution", DISTRIBUTIONS),
        ):
            if getattr(self, key) not in known:
                raise unknown_name(f"training.{key}", getattr(self, key), known)
        for key in (
            "epochs",
            "batches_per_update",
            "num_buckets",
            "tokens_per_batch",
            "average_last",
            "keep_last",
            "keep_best",
            "rows_multiple_of",
            "score_pairs",
            "warmup_steps",
        ):
            value = getattr(self, key)
            _require(value >= 1, f"training.{key}", "at least 1", value)
        for key in (
            "r_drop",
            "subword_sampling",
            "cooldown_epochs",
            "checkpoint_minutes",
            "checkpoint_batches",
            "devices_per_model",
            "early_stopping",
            "score_every",
            "monitor_every",
        ):
            value = getattr(self, key)
            _require(value >= 0, f"training.{key}", "at least 0", value)
        _require(
            0 < self.peak_learning_rate < math.inf,
            "training.peak_learning_rate",
            "above 0 and finite",
            self.peak_learning_rate,
        )
        _require(
            self.cooldown_epochs <= self.epochs,
            "training.cooldown_epochs",
            f"at most training.epochs = {self.epochs}",
            self.cooldown_epochs,
        )
        _require(
            self.cooldown_epochs == 0 or self.schedule != "constant",
            "training.cooldown_epochs",
            "0 with training.schedule = 'constant', whose rate is a variable",
            self.cooldown_epochs,
        )
        _require(0 <= self.seed < 2**32, "training.seed", "from 0 to below 2**32", self.seed)
        _require(
            0 <= self.label_smoothing < 1,
            "training.label_smoothing",
            "from 0 to below 1",
            self.label_smoothing,
        )
        _require(0 <= self.ema < 1, "training.ema", "from 0 to below 1", self.ema)
        lengths = list(self.bucket_lengths)
        _require(
            min(lengths, default=2) > 1 and lengths == sorted(set(lengths)),
            "training.bucket_lengths",
            "rising lengths above 1",
            lengths,
        )
        longest = self.max_length
        _require(longest is None or longest > 1, "training.max_length", "above 1", longest)

    @property
    def bucketing(self) -> Bucketing:
        """The lengths of batches and their sizes, as the data pipeline takes them."""
        # Imports NumPy: --help does not need it.
        from keras_addnorm.data.buckets import Bucketing

        return Bucketing(
            self.num_buckets,
            self.bucket_lengths or None,
            self.max_length,
            self.tokens_per_batch,
            self.rows_multiple_of,
        )


@dataclass(frozen=True)
class EvaluationConfig:
    """How translations are searched for and how many are shown."""

    num_beams: int = _setting(5, "width of the beam search; 1 = greedy")
    length_penalty: float = _setting(0.6, "exponent of the length penalty; 0 = none")
    max_length: int | None = _setting(
        None, "tokens a translation has at most; by default the model's max_length"
    )
    shortlist: int = _setting(
        0, "target tokens that are weighed for a batch: faster, not exact; 0 = all"
    )
    batch_size: int = _setting(64, "sentences translated at a time")
    samples: int = _setting(10, "how many translations are shown")

    def __post_init__(self) -> None:
        for key in ("num_beams", "batch_size"):
            value = getattr(self, key)
            _require(value >= 1, f"evaluation.{key}", "at least 1", value)
        _require(self.samples >= 0, "evaluation.samples", "at least 0", self.samples)
        fits = self.shortlist == 0 or self.shortlist >= 4
        _require(fits, "evaluation.shortlist", "0 or at least 4", self.shortlist)


@dataclass(frozen=True)
class RunConfig:
    """All that a run depends on.

    Attributes:
        data: A TensorFlow Datasets name, a folder of parallel text, or `demo` for the built-in set.
        source: The language to translate from.
        target: The language to translate to.
        tokenizer: How text becomes numbers.
        model: The preset and what is changed in it.
        training: How the model is trained.
        evaluation: How translations are searched for.

    Example:
        >>> config = RunConfig.from_dict({"data": "corpus", "source": "en", "target": "de"})
        >>> config.replace({"training.epochs": 3}).training.epochs
        3
    """

    data: str = _setting("demo", "data set name, folder of parallel text, or demo")
    source: str = _setting("en", "language to translate from")
    target: str = _setting("de", "language to translate to")
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelChoice = field(default_factory=ModelChoice)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        _require(bool(self.data), "data", "a data set name or a folder", self.data)
        _require(self.source != self.target, "target", "another language than source", self.target)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> RunConfig:
        """Builds a configuration from nested tables, as TOML has them.

        Args:
            settings: The settings; what is left out keeps its default.

        Returns:
            The configuration.

        Raises:
            UserError: If a key is not known or a value has the wrong type.
        """
        return typing.cast(RunConfig, _build(cls, settings, ""))

    @classmethod
    def read(cls, path: str | Path) -> RunConfig:
        """Reads a TOML file.

        Args:
            path: The file.

        Returns:
            The configuration.

        Raises:
            UserError: If the file is missing, is not TOML, or holds something unknown.
        """
        return cls.from_dict(read_toml(path))

    def to_dict(self) -> dict[str, Any]:
        """Returns the nested tables that `from_dict` takes."""
        settings = dataclasses.asdict(self)
        model = settings["model"]
        settings["model"] = {"preset": model["preset"], **model["overrides"]}
        return settings

    def to_toml(self) -> str:
        """Returns the whole configuration, defaults included, as TOML."""
        return _to_toml(self.to_dict())

    def replace(self, changes: Mapping[str, Any]) -> RunConfig:
        """Returns a copy with some settings changed.

        Args:
            changes: New values by dotted key, such as `{"training.epochs": 3}`.

        Returns:
            The new configuration.
        """
        return RunConfig.from_dict(merge(self.to_dict(), changes))


@dataclass(frozen=True)
class Leaf:
    """One setting, as the command line sees it."""

    key: str
    flag: str
    kind: Any
    help: str
    default: Any


def leaves(config_class: type = RunConfig, prefix: str = "") -> Iterator[Leaf]:
    """Lists every single setting of a configuration class, tables resolved.

    Args:
        config_class: A configuration dataclass.
        prefix: The dotted key of its table, with the final dot.

    Yields:
        One `Leaf` for each setting that has a help text.
    """
    kinds = typing.get_type_hints(config_class)
    for item in dataclasses.fields(config_class):
        kind = kinds[item.name]
        if dataclasses.is_dataclass(kind):
            yield from leaves(typing.cast(type, kind), f"{prefix}{item.name}.")
        elif "help" in item.metadata:
            flag = item.metadata.get("flag", item.name).replace("_", "-")
            yield Leaf(f"{prefix}{item.name}", flag, kind, item.metadata["help"], item.default)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Reads a TOML file into nested dictionaries.

    Args:
        path: The file.

    Returns:
        Its tables.

    Raises:
        UserError: If the file is missing or is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"There is no configuration file {str(path)!r}. "
            "Give the path of a TOML file, or leave --config out and use flags."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise UserError(f"{str(path)!r} is not a TOML file: {error}") from None


def parse_assignment(text: str) -> tuple[str, Any]:
    """Reads `key=value` as `--set` takes it: the value is TOML, or else a plain string.

    Args:
        text: For instance `model.hidden_dim=64` or `model.scheme=deep_norm`.

    Returns:
        The dotted key and the value.

    Raises:
        UserError: If there is no equals sign.

    Example:
        >>> parse_assignment("model.hidden_dim=64")
        ('model.hidden_dim', 64)
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes key=value, such as model.hidden_dim=64; received {text!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def merge(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Lays changes by dotted key over nested tables.

    Args:
        settings: Nested tables.
        changes: New values by dotted key.

    Returns:
        New nested tables; the arguments are left as they were.
    """
    merged = {
        key: merge(value, {}) if isinstance(value, Mapping) else value
        for key, value in settings.items()
    }
    for dotted, value in changes.items():
        *tables, last = dotted.split(".")
        table = merged
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise UserError(f"{dotted!r}: {name!r} is a single value, not a table of settings.")
        table[last] = value
    return merged


def _build(config_class: type, settings: object, prefix: str) -> Any:
    """Makes one configuration dataclass from a table, refusing what it does not know."""
    if not isinstance(settings, Mapping):
        raise UserError(f"{prefix.rstrip('.')!r} must be a table, received {settings!r}.")
    kinds = typing.get_type_hints(config_class)
    if config_class is ModelChoice:
        return _build_model_choice(settings)
    values = {}
    for name, value in settings.items():
        if name not in kinds:
            raise unknown_name("setting", f"{prefix}{name}", (f"{prefix}{k}" for k in kinds))
        kind = kinds[name]
        if dataclasses.is_dataclass(kind):
            values[name] = _build(typing.cast(type, kind), value, f"{prefix}{name}.")
        else:
            values[name] = convert(f"{prefix}{name}", value, kind)
    return config_class(**values)


def _build_model_choice(settings: Mapping[str, Any]) -> ModelChoice:
    overrides = dict(settings)
    preset = convert("model.preset", overrides.pop("preset", ModelChoice.preset), str)
    return ModelChoice(preset, overrides)


def convert(key: str, value: Any, kind: Any) -> Any:
    """Checks one value against the type of its setting.

    Args:
        key: The dotted key, for the message.
        value: The value, as TOML or a flag gives it.
        kind: The annotated type: bool, int, float, str, a tuple of ints, or one of these or None.

    Returns:
        The value, an int made a float and a list a tuple where the setting asks for that.

    Raises:
        UserError: If the value has another type.
    """
    if isinstance(kind, types.UnionType):
        return None if value is None else convert(key, value, typing.get_args(kind)[0])
    if typing.get_origin(kind) is tuple:
        if isinstance(value, list | tuple):
            return tuple(convert(key, item, int) for item in value)
    elif kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    name = "a list of whole numbers" if typing.get_origin(kind) is tuple else kind.__name__
    raise UserError(f"{key} must be {name}, received {value!r} ({type(value).__name__}).")


def _to_toml(settings: Mapping[str, Any], prefix: str = "") -> str:
    """Writes nested tables as TOML; what is None is left out, as TOML has no word for it."""
    lines = [
        f"{key} = {_toml_value(value)}"
        for key, value in settings.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{prefix}{key}]", _to_toml(value, f"{prefix}{key}.").rstrip("\n")]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_items(value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def _toml_items(values: Iterable[Any]) -> Iterator[str]:
    return (_toml_value(value) for value in values)
