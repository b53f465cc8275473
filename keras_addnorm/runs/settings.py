"""The configuration of a run: frozen dataclasses that TOML files and flags fill.

This is the one place where a setting, its default, its help text and its limits are written: the
TOML reader, the command line's flags and `config.toml` in the run directory follow from it.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import SettingsError
from keras_addnorm.basics.fields import (
    Limits,
    Rule,
    Setting,
    check_settings,
    check_types,
    convert,
    from_table,
    list_settings,
    setting,
)
from keras_addnorm.basics.languages import require_code
from keras_addnorm.runs.choices import (
    BEAM_STOPPINGS,
    BEST_METRICS,
    BLEU_TOKENIZERS,
    CLIPS,
    DATA_FORMATS,
    DISTRIBUTIONS,
    INITIALIZERS,
    LENGTH_PENALTIES,
    LENGTH_PENALTY,
    NORMALIZATIONS,
    NORMS,
    NUM_BEAMS,
    OPTIMIZERS,
    PRECISIONS,
    PRESET_SCHEME,
    PRESETS,
    SCHEDULES,
    SCHEMES,
    SELF_ATTENTIONS,
    SPLITTINGS,
    TOKENIZER_KINDS,
)
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.toml_files import by_dotted_key, merge, naming_file, read_toml, to_toml

if typing.TYPE_CHECKING:
    from keras_addnorm.data.buckets import Bucketing
    from keras_addnorm.decoding import Search, Shortlist


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is split into tokens."""

    kind: str = setting(
        "bpe",
        "kind of SentencePiece model",
        flag="tokenizer-kind",
        alias="tokenizer",
        choices=TOKENIZER_KINDS,
    )
    vocabulary_size: int = setting(
        6000, "number of subword pieces, with the four reserved ones", minimum=5
    )
    joint: bool = setting(True, "one vocabulary for both languages")
    normalization: str = setting(
        "nfc",
        "Unicode form of all texts: nfc keeps m² and m2 apart, nfkc makes them one",
        choices=NORMALIZATIONS,
    )
    user_defined_symbols: tuple[str, ...] = setting(
        (), "texts that are always one piece and never changed, such as <2de>"
    )
    byte_fallback: bool = setting(
        False, "spell characters that the vocabulary lacks by 256 pieces of bytes"
    )
    character_coverage: float = setting(
        1.0,
        "share of the text's characters that the vocabulary spells; 0.9995 for many scripts",
        above=0,
        maximum=1,
    )
    sample_pairs: int = setting(
        200_000,
        "most training pairs that the tokenizer is trained on: a random sample, where there are "
        "more; 1 kB of memory a pair",
        flag="tokenizer-sample-pairs",
        minimum=1,
    )

    def __post_init__(self) -> None:
        check_types(self, "tokenizer")
        check_settings(self, "tokenizer")


def _field_of_the_model(
    name: str, kind: type, help: str, default: Any = None, **limits: Any
) -> Setting:
    return Setting(f"model.{name}", name.replace("_", "-"), kind, help, default, Limits(**limits))


# Where the default is None, it is the preset's.
_FIELDS_OF_THE_MODEL = (
    _field_of_the_model(
        "scheme",
        str,
        "the scheme of Add & Norm; by default post_ln of students",
        PRESET_SCHEME,
        choices=SCHEMES,
    ),
    _field_of_the_model("norm", str, "the norm in it", "layer_norm", choices=NORMS),
    _field_of_the_model(
        "kernel_initializer",
        str,
        "initial values of the kernels",
        "glorot_uniform",
        choices=INITIALIZERS,
    ),
    _field_of_the_model(
        "self_attention",
        str,
        "self-attention of the decoder; all but the first keep a state of fixed size; by default "
        "ssru of students",
        "multi_head_attention",
        choices=SELF_ATTENTIONS,
    ),
    _field_of_the_model("num_encoder_layers", int, "depth of the encoder", minimum=1),
    _field_of_the_model("num_decoder_layers", int, "depth of the decoder", minimum=1),
    _field_of_the_model("hidden_dim", int, "width of the residual stream", minimum=1),
    _field_of_the_model("intermediate_dim", int, "width of the feed-forward", minimum=1),
    _field_of_the_model("num_heads", int, "number of attention heads", minimum=1),
    _field_of_the_model(
        "dropout",
        float,
        "share that dropout drops; by default 0 of students",
        0.1,
        minimum=0,
        below=1,
    ),
)


@dataclass(frozen=True)
class ModelChoice:
    """A preset and what to change in it: any field of `Seq2SeqConfig` but the vocabulary sizes.

    The scheme is always among the changes, so that a run keeps it whatever the preset's is later.
    """

    preset: str = setting("tiny", "size of the model", choices=tuple(PRESETS))
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self, "model")
        check_settings(self, "model")
        overrides = {"scheme": PRESETS[self.preset], **self.overrides}
        object.__setattr__(self, "overrides", overrides)
        numbers = [one for one in _FIELDS_OF_THE_MODEL if one.kind is not str]
        given = [one for one in numbers if one.name in self.overrides]
        wrong = []
        for one in given:
            value = convert(one.key, self.overrides[one.name], one.kind)
            wrong += one.complaints(value)
        if wrong:
            raise SettingsError(wrong)

    @property
    def has_the_scheme_of_its_preset(self) -> bool:
        """Whether the preset's own scheme is among the changes."""
        return bool(self.overrides["scheme"] == PRESETS[self.preset])

    @staticmethod
    def more_settings() -> tuple[Setting, ...]:
        """Returns the fields of `Seq2SeqConfig` that have a flag."""
        return _FIELDS_OF_THE_MODEL

    @classmethod
    def from_table(cls, settings: Mapping[str, Any]) -> ModelChoice:
        """Makes a choice from the table `model`, in which the changes stand beside the preset."""
        overrides = dict(settings)
        preset = convert("model.preset", overrides.pop("preset", cls.preset), str)
        return cls(preset, overrides)


# Updates of a warm-up, where there are enough of them.
WARMUP = 1000


@dataclass(frozen=True)
class TrainingConfig:
    """How the model is trained."""

    epochs: int = setting(20, "passes over the training pairs", minimum=1)
    max_updates: int = setting(
        0, "end after N updates, in place of the epochs; 0 = after the epochs", minimum=0
    )
    validate_every: int = setting(
        0,
        "validate every N updates in place of every epoch; what is said of an epoch and its end "
        "below (checkpoints, best weights, early stopping, scores) is then said of these N; 0 = "
        "every epoch",
        minimum=0,
    )
    tokens_per_batch: int = setting(
        4096,
        "tokens in a batch, padding included, on its longer side",
        known_as=("batch-size",),
        minimum=1,
    )
    num_buckets: int = setting(
        6, "number of lengths that batches are padded to; chosen for the least padding", minimum=1
    )
    max_length: int | None = setting(
        None,
        "length in tokens of the longest training pair; by default 128, or the largest of "
        "bucket_lengths",
        alias="max-pair-length",
        minimum=2,
    )
    bucket_lengths: tuple[int, ...] = setting(
        (), "the lengths that batches are padded to, in place of num_buckets", minimum=2
    )
    label_smoothing: float = setting(
        0.1, "share of the probability spread over all tokens", minimum=0, below=1
    )
    r_drop: float = setting(
        0.0, "R-Drop: weight of the divergence of two dropout passes, such as 5; 0 = off", minimum=0
    )
    subword_sampling: float = setting(
        0.0,
        "subword regularisation: new pieces in each epoch; with bpe, the probability that a merge "
        "is dropped, such as 0.05; 0 = off",
        minimum=0,
    )
    schedule: str = setting("inverse_square_root", "learning rate schedule", choices=SCHEDULES)
    peak_learning_rate: float = setting(
        0.002,
        "learning rate at the end of the warm-up; with noam, a factor of the rate",
        known_as=("learning-rate", "lr"),
        above=0,
    )
    warmup_steps: int | None = setting(
        None,
        "updates until the learning rate is at its peak; by default 1000, or a quarter of all "
        "updates if that is less (noam: always 1000, as its peak depends on them)",
        minimum=1,
    )
    cooldown_epochs: int = setting(
        0,
        "let the learning rate fall to 0 over the last N epochs; 0 = leave it to the schedule",
        minimum=0,
    )
    optimizer: str = setting(
        "adam",
        "what updates the weights; muon is for kernels, and leaves the other weights to Adam",
        choices=OPTIMIZERS,
    )
    beta_2: float = setting(0.98, "decay of Adam's second moment", minimum=0, below=1)
    epsilon: float = setting(1e-9, "Adam's epsilon", above=0)
    clipnorm: float | None = setting(None, "limit of the gradients", above=0)
    clip_by: str = setting(
        "weight",
        "what clipnorm limits: the gradient norm of each weight, the norm of all, or each value",
        choices=tuple(CLIPS),
    )
    batches_per_update: int = setting(
        1, "gradient accumulation: batches whose gradients make one update", minimum=1
    )
    precision: str = setting("float32", "what the layers compute in", choices=tuple(PRECISIONS))
    jit_compile: bool = setting(True, "compile the training step with XLA")
    average_last: int = setting(
        1,
        "translate with the mean weights of the last N epochs; 1 = with the best epoch's",
        minimum=1,
    )
    keep_last: int = setting(2, "number of epochs whose checkpoints are kept", minimum=1)
    checkpoint_minutes: float = setting(
        10.0, "write a checkpoint within an epoch every N minutes; 0 = only at its end", minimum=0
    )
    checkpoint_batches: int = setting(
        0, "write a checkpoint within an epoch every N batches as well; 0 = never", minimum=0
    )
    best_metric: str = setting(
        "val_perplexity",
        "metric that chooses the best epoch; the loss, a mean over batches, depends on their sizes",
        choices=tuple(BEST_METRICS),
    )
    keep_best: int = setting(1, "number of best epochs whose weights are kept", minimum=1)
    ema: float = setting(
        0.0,
        "momentum of an exponential moving average of the weights, such as 0.999; 0 = none",
        minimum=0,
        below=1,
    )
    early_stopping: int = setting(
        0,
        "stop after N epochs in a row without a better best_metric; 0 = never",
        known_as=("patience",),
        minimum=0,
    )
    score_every: int = setting(
        0,
        "translate the validation split every N epochs and log BLEU and chrF; 0 = never",
        minimum=0,
    )
    score_pairs: int = setting(
        200, "number of validation pairs that score_every translates", minimum=1
    )
    monitor_every: int = setting(
        0,
        "log the residual stream of each sublayer every N steps to residuals.csv; 0 = never",
        minimum=0,
    )
    strict: bool = setting(
        False,
        "stop if training pairs are empty, too long, repeated, copied, wrongly encoded or in "
        "another split",
    )
    distribution: str = setting(
        "none",
        "devices that train together: data = a copy of the weights on each; model = each copy "
        "spread over several devices, fsdp = a part of the weights and of each batch on each, "
        "both with KERAS_BACKEND=jax",
        choices=DISTRIBUTIONS,
    )
    devices_per_model: int = setting(
        0, "with distribution model: devices of a copy; 0 = all of a process", minimum=0
    )
    rows_multiple_of: int = setting(
        1, "make the rows of a batch a multiple of N, so that N devices can share them", minimum=1
    )
    start_from: str = setting(
        "",
        "for fine-tuning: run directory whose tokenizers and weights the run starts with",
        metavar="DIR",
    )
    guided_alignment: float = setting(
        0.0,
        "weight of a loss that teaches cross-attention from word alignments, such as 0.1; 0 = off",
        minimum=0,
    )
    alignments: str = setting(
        "",
        "for guided_alignment: file of word alignments in Pharaoh's format, a line for each "
        "training pair; by default the run aligns the pieces itself",
        metavar="FILE",
    )
    teacher: str = setting(
        "",
        "run directory of a teacher with the same vocabulary, whose distribution over each token "
        "is a second target",
        metavar="DIR",
    )
    distillation: float = setting(1.0, "weight of the teacher's distribution", above=0)
    temperature: float = setting(1.0, "what logits of teacher and student are divided by", above=0)
    eight_bits: bool = setting(
        False,
        "for fine-tuning: keep kernels and tables on a grid of eight bits from the first update on",
    )
    lora_rank: int = setting(
        0,
        "for fine-tuning: train two small matrices of this rank beside each kernel and table in "
        "place of all weights; 0 = all weights",
        minimum=0,
    )
    seed: int = setting(42, "seed of weights, dropout and shuffling", minimum=0, maximum=2**32 - 1)

    def __post_init__(self) -> None:
        check_types(self, "training")
        epochs, lengths, is_constant = self.epochs, self.bucket_lengths, self.schedule == "constant"
        rising = list(lengths) == sorted(set(lengths))
        is_multiple = self.validate_every != 0 and self.max_updates % self.validate_every == 0
        check_settings(
            self,
            "training",
            [
                Rule(
                    "cooldown_epochs",
                    bool(self.max_updates) or self.cooldown_epochs <= epochs,
                    f"at most training.epochs = {epochs}",
                ),
                Rule(
                    "max_updates",
                    self.max_updates == 0 or is_multiple,
                    f"a multiple of training.validate_every = {self.validate_every}"
                    if self.validate_every
                    else "training.validate_every with it, of which it is a multiple",
                ),
                Rule(
                    "cooldown_epochs",
                    not (self.cooldown_epochs and is_constant),
                    "0 with training.schedule = 'constant', whose rate is a variable",
                ),
                Rule("bucket_lengths", rising, "rising lengths"),
                Rule(
                    "lora_rank",
                    not self.lora_rank or bool(self.start_from),
                    "0 without training.start_from, whose weights stay as they are",
                ),
                Rule(
                    "alignments",
                    not self.alignments or self.guided_alignment > 0,
                    "none without training.guided_alignment, which reads them",
                ),
            ],
        )

    def warmup(self, updates: int) -> int:
        """Returns the updates of the warm-up: `warmup_steps`, or what fits the training.

        Args:
            updates: Number of updates of the whole training.

        Returns:
            The number.
        """
        if self.warmup_steps is not None:
            return self.warmup_steps
        # The peak of noam depends on it.
        return WARMUP if self.schedule == "noam" else max(1, min(WARMUP, updates // 4))

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

    num_beams: int = setting(
        NUM_BEAMS, "width of the beam search; 1 = greedy", known_as=("beam-size",), minimum=1
    )
    length_penalty: float = setting(LENGTH_PENALTY, "exponent of the length penalty; 0 = none")
    length_penalty_kind: str = setting(
        "gnmt",
        "what scores are divided by: gnmt = ((5 + n) / 6)^length_penalty, average = "
        "n^length_penalty, for n tokens",
        choices=LENGTH_PENALTIES,
    )
    beam_stopping: str = setting(
        "nothing_better",
        "when a beam search is done with a sentence: nothing_better = when no other hypothesis can "
        "become better; current_length = when num_beams have ended and no other is better now, as "
        "by default in transformers; enough_finished = when num_beams have ended, the quickest",
        choices=tuple(BEAM_STOPPINGS),
    )
    max_length: int | None = setting(
        None,
        "length limit of a translation in tokens; by default the model's max_length",
        minimum=1,
    )
    max_length_factor: float = setting(
        0.0,
        "a translation has at most so many tokens for each token of its source, and one more; 0 = "
        "as many as max_length says",
        known_as=("max-length-factor",),
        minimum=0,
    )
    min_length: int = setting(
        0, "tokens that a translation has at least, its end included; 0 = any number", minimum=0
    )
    no_repeat_ngram: int = setting(
        0, "no N tokens in a row come twice in a translation; 0 = they may", minimum=0
    )
    forbidden_ids: tuple[int, ...] = setting(
        (), "ids of tokens that no translation holds", known_as=("bad-words-ids",), minimum=0
    )
    shortlist: int = setting(
        0,
        "number of target tokens that a batch chooses from: faster, not exact; 0 = all",
        off=0,
        minimum=4,
    )
    splitting: str = setting(
        "sentences",
        "what a text is split into: sentences; long_texts = sentences if it is longer than the "
        "model; none = it is cut off there",
        choices=SPLITTINGS,
    )
    batch_size: int = setting(64, "sentences translated at a time", minimum=1)
    samples: int = setting(10, "number of translations that are shown", minimum=0)
    bleu_tokenizer: str = setting(
        "auto",
        "how sacreBLEU splits texts into words; auto = as the target language asks for, or the "
        "script of the references",
        choices=BLEU_TOKENIZERS,
    )

    def __post_init__(self) -> None:
        check_types(self, "evaluation")
        limit = self.max_length
        fits = limit is None or self.min_length <= limit
        rule = Rule("min_length", fits, f"at most evaluation.max_length = {limit}")
        check_settings(self, "evaluation", [rule])

    def search(
        self,
        num_return: int = 1,
        *,
        language: str | None = None,
        shortlist: Shortlist | None = None,
    ) -> Search:
        """Returns the search, as all of `keras_addnorm` takes it.

        Args:
            num_return: Number of translations of each text.
            language: The language of the texts, whose abbreviations are known.
            shortlist: The target tokens that are weighed; `None` for all.

        Returns:
            The search.
        """
        # Imports Keras: --help does not need it.
        from keras_addnorm.decoding import Beam, Greedy, Search, length_penalties

        alpha = self.length_penalty
        named = {"name": self.length_penalty_kind, "alpha": alpha}
        penalty = length_penalties.get(named if alpha else 0.0)
        stopping = BEAM_STOPPINGS[self.beam_stopping]
        is_beam = self.num_beams > 1
        rules: dict[str, dict[str, Any]] = {
            "min_length": {"length": self.min_length},
            "no_repeat_ngram": {"size": self.no_repeat_ngram},
            "forbidden_tokens": {"tokens": self.forbidden_ids},
        }
        if self.max_length_factor:
            rules["max_length"] = {"length": 1, "source_factor": self.max_length_factor}
        knows_language = {} if self.splitting == "none" else {"language": language}
        return Search(
            Beam(self.num_beams, penalty, num_return, stopping) if is_beam else Greedy(penalty),
            max_length=self.max_length,
            constraints=[{"name": name, **one} for name, one in rules.items() if any(one.values())],
            shortlist=shortlist,
            splitting={"name": self.splitting, **knows_language},
        )


# The settings of [evaluation] that translations depend on.
SEARCH_SETTINGS = tuple(
    item.name
    for item in dataclasses.fields(EvaluationConfig)
    if item.name not in ("batch_size", "samples", "bleu_tokenizer")
)

# How files are read, and which parts of the data are used: they say nothing about other data.
FILE_SETTINGS = ("data_format", "source_column", "target_column")
SPLIT_SETTINGS = ("split", "validation")


@dataclass(frozen=True)
class RunConfig:
    """Everything that a run depends on.

    Attributes:
        data: A file of sentence pairs, a folder of parallel text, a TensorFlow Datasets name, or
            `demo` for the built-in set.
        source: The language to translate from.
        target: The language to translate to.
        data_format: The format of the files, where their names do not tell.
        source_column: The column of the source language, where the file does not tell.
        target_column: The column of the target language.
        split: What is trained on, but for validation pairs in it.
        validation: The split, or the file, to validate on; empty for `validation`, and where there
            is none, for some training pairs that are held out.
        licence: Under which licence the weights may be used, for the card of an export; a run that
            starts from another one inherits it.
        tokenizer: How text becomes numbers.
        model: The preset and the changes to it.
        training: How the model is trained.
        evaluation: How translations are searched for.

    Example:
        >>> config = RunConfig.from_dict({"data": "corpus", "source": "en", "target": "de"})
        >>> config.replace({"training.epochs": 3}).training.epochs
        3
    """

    data: str = setting(
        "demo",
        "file of sentence pairs, folder of parallel text, data set name, demo, or - for stdin",
        metavar="FILE|DIR|NAME",
    )
    source: str = setting("en", "language to translate from", metavar="LANG")
    target: str = setting("de", "language to translate to", metavar="LANG")
    data_format: str = setting(
        "auto", "format of files whose names do not tell it", choices=DATA_FORMATS
    )
    source_column: str = setting(
        "", "name or number, from 1, of the source column, where the file does not tell"
    )
    target_column: str = setting("", "name or number of the target column")
    split: str = setting("train", "split to train on, such as train[:10%]")
    validation: str = setting(
        "",
        "split or file to validate on, such as train[:1%]; by default validation, and where "
        "there is none, some training pairs that are held out",
    )
    licence: str = setting("", "licence of the weights, for the card of an export")
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelChoice = field(default_factory=ModelChoice)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        check_types(self, "")
        rules = [
            Rule("data", bool(self.data), "a data set name or a folder"),
            Rule("target", self.source != self.target, "another language than source"),
        ]
        check_settings(self, "", rules)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> RunConfig:
        """Builds a configuration from nested tables, as TOML has them.

        Args:
            settings: The settings; what is left out keeps its default.

        Returns:
            The configuration.

        Raises:
            UserError: If a key is not known or a value is wrong; it names all of these.
        """
        return typing.cast(RunConfig, from_table(cls, settings))

    def require_codes(self) -> None:
        """Checks that the languages of a new run are codes; one that is there keeps its names.

        Raises:
            UserError: If one is something else, such as an English name.
        """
        with as_user_errors():
            require_code("source", self.source)
            require_code("target", self.target)

    def search(self, num_return: int = 1, shortlist: Shortlist | None = None) -> Search:
        """Returns the search of the run for texts of its source language."""
        return self.evaluation.search(num_return, language=self.source, shortlist=shortlist)

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
        with naming_file(path):
            return cls.from_dict(read_toml(path))

    def to_dict(self) -> dict[str, Any]:
        """Returns the nested tables that `from_dict` takes."""
        settings = dataclasses.asdict(self)
        model = settings["model"]
        settings["model"] = {"preset": model["preset"], **model["overrides"]}
        return settings

    def to_toml(self) -> str:
        """Returns the whole configuration, defaults included, as TOML."""
        return to_toml(self.to_dict())

    def replace(self, changes: Mapping[str, Any]) -> RunConfig:
        """Returns a copy with some settings changed.

        Args:
            changes: New values by dotted key, such as `{"training.epochs": 3}`. With another
                preset comes its scheme, if the scheme was that of the preset before.

        Returns:
            The new configuration.
        """
        settings = self.to_dict()
        if "model.preset" in changes and self.model.has_the_scheme_of_its_preset:
            del settings["model"]["scheme"]
        return RunConfig.from_dict(merge(settings, changes))


# Settings that came after 0.1.0: run directories of that version are without them.
_LATER = {
    *("data_format", "source_column", "target_column", "split", "validation", "licence"),
    *(f"tokenizer.{name}" for name in ("normalization", "user_defined_symbols", "byte_fallback")),
    *("tokenizer.character_coverage", "tokenizer.sample_pairs", "training.lora_rank"),
    *(f"training.{name}" for name in ("guided_alignment", "alignments", "teacher")),
    *(f"training.{name}" for name in ("distillation", "temperature", "eight_bits")),
    *(f"training.{name}" for name in ("max_updates", "validate_every", "optimizer")),
    *(f"evaluation.{name}" for name in ("length_penalty_kind", "beam_stopping", "min_length")),
    *(f"evaluation.{name}" for name in ("no_repeat_ngram", "splitting", "bleu_tokenizer")),
    *(f"evaluation.{name}" for name in ("max_length_factor", "forbidden_ids")),
}


def missing_settings(settings: Mapping[str, Any]) -> list[str]:
    """Lists the dotted keys that `to_toml` writes, and that the file of a run lacks."""
    given = by_dotted_key(settings)
    always = (
        one.key
        for one in list_settings(RunConfig)
        if one.default is not None and one not in _FIELDS_OF_THE_MODEL and one.key not in _LATER
    )
    return [key for key in always if key not in given]
