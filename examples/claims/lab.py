"""The laboratory: one data set, one way to train, one way to look, and records of it all."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np

from claims.records import Records, Result, built_in_texts
from keras_addnorm.data import TokenizerPair, load_translation, make_training_dataset
from keras_addnorm.diagnostics import observe
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

Batch = tuple[dict[str, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large everything is: the width of the models, the data, the length of trainings."""

    hidden_dim: int = 32
    num_heads: int = 2
    vocabulary_size: int = 700
    pairs: int = 6000
    batch_size: int = 16
    length: int = 24
    steps: int = 250
    seed: int = 1
    # Which runs there are, not what one run is.
    depths: tuple[int, ...] = (2, 6, 12, 18, 24)
    copy_layers: tuple[int, ...] = (1, 2, 4, 8)
    batch_sizes: tuple[int, ...] = (1, 2, 4, 16, 64)
    seeds: tuple[int, ...] = (1, 2, 3)
    hundreds: tuple[int, ...] = (100, 200)

    @property
    def middle_depth(self) -> int:
        """The depth of the claims that look at one depth only."""
        return self.depths[len(self.depths) // 2]

    def of_a_run(self) -> dict[str, int]:
        """What one run depends on."""
        grids = ("depths", "copy_layers", "batch_sizes", "seeds", "hundreds")
        fields = dataclasses.asdict(self).items()
        return {name: value for name, value in fields if name not in grids}


FULL = Scale()
QUICK = Scale(
    hidden_dim=8,
    vocabulary_size=300,
    pairs=300,
    batch_size=4,
    length=48,
    steps=3,
    depths=(2, 4),
    copy_layers=(1, 2),
    batch_sizes=(1, 4),
    seeds=(1, 2),
    hundreds=(6,),
)


INITIALIZATIONS: dict[str, Callable[[int, int], float]] = {
    "glorot": lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out)),
    "he": lambda fan_in, fan_out: math.sqrt(2 / fan_in),
    "std_1": lambda fan_in, fan_out: 1.0,
}
"""The standard deviation of a kernel's first values, by name."""


@dataclasses.dataclass(frozen=True)
class Training:
    """One training from scratch: the model's Add & Norm and depth, and how it is trained.

    `layers` counts those of encoder and decoder together, half of them each. The rate rises
    linearly over `warmup_steps` and then stays. Another initialisation than Glorot's multiplies
    all first kernels of the two stacks, so that DeepNorm's gain, for example, stays. A `seed` other
    than the scale's draws other first weights and another order of the sentences.
    """

    scheme: str
    layers: int
    learning_rate: float = 0.002
    warmup_steps: int = 50
    initialization: str = "glorot"
    norm: Any = "layer_norm"
    batch_size: int | None = None
    sorted_by_length: bool = False
    seed: int | None = None

    def config(self, scale: Scale) -> Seq2SeqConfig:
        """The model's shape."""
        return Seq2SeqConfig(
            source_vocabulary_size=scale.vocabulary_size,
            target_vocabulary_size=scale.vocabulary_size,
            num_encoder_layers=self.layers // 2,
            num_decoder_layers=self.layers // 2,
            hidden_dim=scale.hidden_dim,
            intermediate_dim=2 * scale.hidden_dim,
            num_heads=scale.num_heads,
            dropout=0.0,
            scheme=self.scheme,
            norm=self.norm,
            share_embeddings=True,
        )

    def rates(self, steps: int) -> list[float]:
        """The learning rate of each step."""
        warmup = max(1, self.warmup_steps)
        return [self.learning_rate * min(1.0, (step + 1) / warmup) for step in range(steps)]


class Lab:
    """Measures, unless the records have the result already."""

    def __init__(self, scale: Scale, records: Records) -> None:
        self.scale = scale
        self.records = records
        self._trainable: tuple[Seq2SeqConfig, TrainableModel] | None = None

    def measure(self, name: str, key: dict[str, Any], measure: Callable[[], Result]) -> Result:
        """Return what `measure()` returns, now or in an earlier run at this scale."""
        whole = {"name": name, **key, "scale": self.scale.of_a_run(), "texts": built_in_texts()}
        return self.records.get_or_measure(whole, measure)

    def train(self, training: Training) -> Result:
        """Train from scratch: the loss of each step, and of held-out sentences at the end."""
        key = dataclasses.asdict(training)
        return self.measure("training", key, lambda: self._train(training))

    def profile(self, training: Training, *, trained: bool) -> Result:
        """Look at each sublayer of a model: before training, or after it, with its losses."""

        def look() -> Result:
            curve = self._train(training) if trained else {}
            model = self.trained_model if trained else self.ready(training)
            return {**curve, **model.profile(self.batches(training)[0])}

        name = "profile after training" if trained else "profile before training"
        key = dataclasses.asdict(training)
        if not trained:  # What matters only in training does not make another model.
            for field in ("learning_rate", "warmup_steps", "batch_size", "sorted_by_length"):
                del key[field]
        return self.measure(name, key, look)

    @functools.cached_property
    def task(self) -> Task:
        """The sentences; loaded only if something has to be measured."""
        return Task.load(self.scale)

    def floor(self) -> float:
        """What a model reaches that knows only how frequent each token is, in nats."""
        key = {"what": "frequencies of the target tokens"}
        return float(self.measure("floor", key, lambda: {"loss": self.task.train.floor()})["loss"])

    def fresh_model(self, training: Training) -> TrainableModel:
        """A new model with the first weights of the seed."""
        return TrainableModel(training.config(self.scale), self.scale.seed)

    @property
    def trained_model(self) -> TrainableModel:
        """The model of the last training."""
        assert self._trainable is not None
        return self._trainable[1]

    def batches(self, training: Training) -> list[Batch]:
        """The batches of a training, in order."""
        size = training.batch_size or self.scale.batch_size
        sentences = self.task.train
        if training.seed is not None:
            sentences = sentences.shuffled(training.seed)
        return sentences.batches(size, training.sorted_by_length, self.scale.seed)

    def ready(self, training: Training) -> TrainableModel:
        """The model of a training at its first weights."""
        config = training.config(self.scale)
        if self._trainable is None or self._trainable[0] != config:
            # The compiled step of a deep model is large: let the old one go first.
            self._trainable = None
            keras.backend.clear_session()
            gc.collect()
            self._trainable = (config, self.fresh_model(training))
        model = self._trainable[1]
        model.start_again(training.initialization, training.seed or self.scale.seed)
        return model

    def _train(self, training: Training) -> Result:
        model = self.ready(training)
        curve = model.train(self.batches(training), training.rates(self.scale.steps))
        return {**curve, **model.test(self.task.held_out.batches(self.scale.batch_size))}


class TrainableModel:
    """A model with its compiled training step, which can be put back to its first weights.

    Compiling a deep model takes longer than training it for a few hundred small steps.
    """

    def __init__(self, config: Seq2SeqConfig, seed: int) -> None:
        self.config = config
        self.model = self._new_model(seed)
        self.optimizer = keras.optimizers.Adam(0.001, beta_2=0.98, epsilon=1e-9)
        self.model.compile(
            optimizer=self.optimizer, loss=MaskedSparseCategoricalCrossentropy(), jit_compile=True
        )
        self._initial = {seed: self.model.get_weights()}

    def _new_model(self, seed: int) -> keras.Model:
        keras.utils.set_random_seed(seed)
        return Seq2SeqTransformer(self.config)

    def start_again(self, initialization: str = "glorot", seed: int | None = None) -> None:
        """Put back the initial weights, with kernels of another size, and forget all moments.

        Another seed than that of the last start takes the weights of a new model.
        """
        if seed is not None and seed not in self._initial:
            self._initial = {seed: self._new_model(seed).get_weights()}
        (initial,) = self._initial.values()
        std = INITIALIZATIONS[initialization]
        weights = [
            weight * (std(*weight.shape) / INITIALIZATIONS["glorot"](*weight.shape))
            if variable.path.endswith("/kernel")
            else weight
            for variable, weight in zip(self.model.weights, initial, strict=True)
        ]
        self.model.set_weights(weights)
        for variable in self.optimizer.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype))

    def train(self, batches: Sequence[Batch], rates: Iterable[float]) -> Result:
        """Train for one step a rate; stop early where the loss is no number any more."""
        started, losses = time.perf_counter(), []
        for step, rate in enumerate(rates):
            self.optimizer.learning_rate.assign(rate)
            losses.append(float(self.model.train_on_batch(*batches[step % len(batches)])))
            if not math.isfinite(losses[-1]):
                break
        return {
            "losses": [rounded(loss) for loss in losses],
            "seconds": round(time.perf_counter() - started, 2),
        }

    def test(self, batches: Sequence[Batch]) -> Result:
        """The loss of held-out sentences: as one would use the model, and as in training."""
        losses = [float(self.model.test_on_batch(*batch)) for batch in batches]
        # A step of size 0: only norms that know training from inference see a difference.
        self.optimizer.learning_rate.assign(0.0)
        in_training = [float(self.model.train_on_batch(*batch)) for batch in batches]
        return {
            "held_out_loss": rounded(np.mean(losses)),
            "held_out_loss_in_training_mode": rounded(np.mean(in_training)),
        }

    def profile(self, batch: Batch) -> Result:
        """The stream x, the branch F(x) and the stream behind it, y, at each sublayer in order.

        Over real positions: root mean squares of x, F(x) and y - x, the cosine between x and y,
        and the variance of y over all channels and positions.
        """
        inputs, _ = batch
        with observe(self.model) as observation:
            self.model(inputs)
        found: dict[str, list[Any]] = {
            "names": [],
            "rms_residual": [],
            "rms_branch": [],
            "rms_change": [],
            "cosine": [],
            "variance": [],
        }
        for record in observation:
            real = inputs["source" if record.name.startswith("encoder") else "target"] != 0
            x, f, y = (
                np.asarray(keras.ops.convert_to_numpy(tensor), "float64")[real]
                for tensor in (record.residual, record.branch, record.merged)
            )
            found["names"].append(record.name)
            found["rms_residual"].append(_rms(x))
            found["rms_branch"].append(_rms(f))
            found["rms_change"].append(_rms(y - x))
            found["cosine"].append(float(np.mean(_cosines(x, y))))
            found["variance"].append(float(np.var(y)))
        return found


@dataclasses.dataclass(frozen=True)
class Sentences:
    """Token ids as arrays of one shape, `(sentences, length)` each."""

    source: np.ndarray
    target: np.ndarray
    labels: np.ndarray

    @classmethod
    def from_dataset(cls, dataset: Any) -> Sentences:
        """All rows of a data set of batches, but for those that only fill up the last one."""
        batches = [(inputs["source"], inputs["target"], labels) for inputs, labels in dataset]
        source, target, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        real = np.any(labels != 0, axis=1)
        return cls(source[real], target[real], labels[real])

    def batches(
        self, batch_size: int, sorted_by_length: bool = False, seed: int = 0
    ) -> list[Batch]:
        """Full batches in the given order, or batches of like lengths in an order by chance."""
        order = np.arange(len(self.labels))
        if sorted_by_length:
            order = np.argsort(np.sum(self.source != 0, axis=1), kind="stable")
        count = len(order) // batch_size
        groups = order[: count * batch_size].reshape(count, batch_size)
        if sorted_by_length:
            groups = np.random.default_rng(seed).permutation(groups)
        return [
            ({"source": self.source[rows], "target": self.target[rows]}, self.labels[rows])
            for rows in groups
        ]

    def shuffled(self, seed: int) -> Sentences:
        """The same sentences in another order."""
        order = np.random.default_rng(seed).permutation(len(self.labels))
        return Sentences(self.source[order], self.target[order], self.labels[order])

    def floor(self) -> float:
        """The entropy of the target tokens' frequencies: a loss, in nats."""
        shares = np.bincount(self.labels[self.labels != 0]) / np.sum(self.labels != 0)
        shares = shares[shares > 0]
        return float(-np.sum(shares * np.log(shares)))


@dataclasses.dataclass(frozen=True)
class Task:
    """English to German from the built-in set."""

    train: Sentences
    held_out: Sentences

    @classmethod
    def load(cls, scale: Scale) -> Task:
        """Read and tokenise."""
        train = load_translation("demo/en-de", split=f"train[:{scale.pairs}]")
        held_out = load_translation("demo/en-de", split="validation[:200]")
        tokenizers = TokenizerPair.train(train, vocabulary_size=scale.vocabulary_size, kind="bpe")
        shape = {
            "bucket_lengths": (scale.length,),
            "tokens_per_batch": scale.length * scale.batch_size,
        }
        order = {"shuffle_seed": scale.seed}
        return cls(
            Sentences.from_dataset(make_training_dataset(train, tokenizers, **shape, **order)),
            Sentences.from_dataset(make_training_dataset(held_out, tokenizers, **shape)),
        )


def final_loss(result: Result, over: int = 20) -> float:
    """The mean loss of the last steps; infinite if training ended in no number."""
    last = result["losses"][-over:]
    return math.inf if None in last else float(np.mean(last))


def branch_ratios(profile: Result) -> np.ndarray:
    """How large each sublayer's branch is relative to the stream, by a model's profile."""
    return np.array(profile["rms_branch"]) / np.array(profile["rms_residual"])


def normalised(vectors: np.ndarray) -> np.ndarray:
    """Rows of mean 0 and variance 1, so that a norm at the end of a stack is no obstacle."""
    vectors = vectors - vectors.mean(axis=1, keepdims=True)
    return vectors / vectors.std(axis=1, keepdims=True)


def rounded(loss: float) -> float | None:
    """A loss for the records; `None` for no number."""
    return round(float(loss), 4) if math.isfinite(loss) else None


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _cosines(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    cosines: np.ndarray = np.sum(x * y, axis=-1) / np.maximum(norms, 1e-30)
    return cosines
