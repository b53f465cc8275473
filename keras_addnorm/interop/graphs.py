"""A model as three graphs of named tensors, for other runtimes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
from keras import ops

from keras_addnorm import __version__
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers import positions
from keras_addnorm.models import Seq2SeqTransformer, merge_lora

Tensor = Any
Size = int | str

_SELF, _CROSS = "self_attention", "cross_attention"


@dataclass(frozen=True)
class Sizes:
    """The sizes of the graphs' axes; a name stands for an axis of any length.

    Args:
        max_length: Length of the self-attentions' caches: how many tokens can be decoded. A state
            of fixed size (SSRU, average attention) has none.
        batch: Number of sources.
        rows: Number of rows that are decoded at once, a multiple of `batch`: hypotheses of one
            source, side by side, share what their cross-attention reads.
        source_length: Number of source tokens.
        target_length: Number of target tokens of the teacher-forced model.

    Raises:
        ValueError: If a size is not positive.
    """

    max_length: int
    batch: Size = "batch"
    rows: Size = "rows"
    source_length: Size = "source_length"
    target_length: Size = "target_length"

    def __post_init__(self) -> None:
        for name, size in dataclasses.asdict(self).items():
            if not isinstance(size, str) and (not isinstance(size, int) or size < 1):
                raise ArgumentError(
                    f"`{name}` of the export has to be a positive integer.", value=size
                )


@dataclass(frozen=True)
class NamedTensor:
    """An input or an output of a graph; a name in its shape stands for an axis of any length."""

    name: str
    shape: tuple[Size, ...]
    dtype: str


@dataclass(frozen=True)
class Graph:
    """A traced function of named tensors.

    Attributes:
        name: Its name.
        function: TensorFlow's concrete function, which returns a dict.
        inputs: Its inputs.
        outputs: Its outputs.
    """

    name: str
    function: Any
    inputs: tuple[NamedTensor, ...]
    outputs: tuple[NamedTensor, ...]


def trace(model: Seq2SeqTransformer, sizes: Sizes) -> tuple[Graph, Graph, Graph]:
    """Trace a model with TensorFlow.

    The outputs of the encoder are, by name, inputs of the decoder's step: the mask of the source,
    empty caches for the self-attentions, and what the cross-attentions read. The step returns the
    self-attentions' caches for its next call, with `new_` in front of their names: in some formats
    an output cannot have the name of an input.

    Args:
        model: The model.
        sizes: How long the axes are.

    Returns:
        The graphs `teacher_forced`, `encoder` and `decoder_step`.

    Raises:
        RuntimeError: If Keras runs on another backend.
        ValueError: If the model does not compute in float32, is quantised, or has fewer positions.
    """
    _require_tensorflow()
    model = merge_lora(model)
    _require_float32(model)
    _require_positions(model, sizes)
    source = NamedTensor("source", (sizes.batch, sizes.source_length), "int32")
    target = NamedTensor("target", (sizes.batch, sizes.target_length), "int32")
    mask = NamedTensor("source_mask", source.shape, "bool")
    token = NamedTensor("token", (sizes.rows,), "int32")
    index = NamedTensor("index", (), "int32")
    vocabulary_size = model.config.target_vocabulary_size

    def teacher_forced(source: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"logits": model({"source": source, "target": target}, training=False)}

    def encoder(source: Tensor) -> dict[str, Tensor]:
        memory, source_mask = model.encode(source)
        cache = model.initial_cache(memory, ops.shape(source)[0], sizes.max_length)
        return {"source_mask": source_mask, **_by_name(cache)}

    def decoder_step(
        token: Tensor, index: Tensor, source_mask: Tensor, **caches: Tensor
    ) -> dict[str, Tensor]:
        cache = _by_layer(caches, structure)
        logits, cache = model.decode_step(token, cache, index, source_mask)
        kept = _by_name(cache, kinds=[_SELF])
        return {"logits": logits, **{f"new_{name}": kept[name] for name in kept}}

    # Of one source and one position, for its structure alone.
    memory, _ = model.encode(ops.zeros((1, 1), dtype="int32"))
    structure = model.initial_cache(memory, 1, 1)
    encode = _concrete(encoder, [source])
    caches = _CacheTensors(sizes, encode.structured_outputs, _by_name(structure))
    logits = NamedTensor("logits", (*target.shape, vocabulary_size), "float32")
    next_logits = NamedTensor("logits", (sizes.rows, vocabulary_size), "float32")
    taken = (token, index, mask, *caches.of(sizes.rows))
    kept = [
        dataclasses.replace(tensor, name=f"new_{tensor.name}")
        for tensor in caches.of(sizes.rows, kinds=[_SELF])
    ]
    given = (source, target)
    return (
        Graph("teacher_forced", _concrete(teacher_forced, given), given, (logits,)),
        Graph("encoder", encode, (source,), (mask, *caches.of(sizes.batch))),
        Graph("decoder_step", _concrete(decoder_step, taken), taken, (next_logits, *kept)),
    )


def write_card(
    folder: Path,
    format_name: str,
    files: Mapping[str, str],
    graphs: Iterable[Graph],
    model: Seq2SeqTransformer,
    sizes: Sizes,
    never: list[int],
    versions: Mapping[str, str],
) -> None:
    """Write `model.json`: what there is to run, and what one has to know for it.

    Args:
        folder: The folder of the export.
        format_name: The name of the format.
        files: The file of each graph.
        graphs: The graphs.
        model: The model.
        sizes: How long the axes are.
        never: The ids that no output holds.
        versions: Of the packages that made the files.
    """
    config = model.config
    card = {
        "format": format_name,
        "max_length": sizes.max_length,
        "special_ids": {
            "pad_id": config.pad_id,
            "start_id": config.start_id,
            "end_id": config.end_id,
        },
        "never_generated": never,
        "graphs": {
            graph.name: {
                "file": files[graph.name],
                "inputs": [dataclasses.asdict(tensor) for tensor in graph.inputs],
                "outputs": [dataclasses.asdict(tensor) for tensor in graph.outputs],
            }
            for graph in graphs
        },
        "config": config.to_dict(),
        "versions": {"keras_addnorm": __version__, "keras": keras.__version__, **versions},
    }
    text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
    (folder / "model.json").write_text(text, encoding="utf-8")


def _require_tensorflow() -> None:
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "The graphs of an export are traced with TensorFlow. Expected Keras to run on it. "
            f"Received: the backend {keras.backend.backend()!r}. Save the model, start Python "
            "with KERAS_BACKEND=tensorflow, load the model there (files are the same on every "
            "backend), and export it."
        )


def _require_float32(model: Seq2SeqTransformer) -> None:
    policy = model.decoder.dtype_policy
    if policy.compute_dtype != "float32":
        raise ArgumentError(
            "The graphs of an export compute in float32.",
            "a model that does",
            'Make one with the same config and dtype="float32", and give it the weights: '
            "set_weights(model.get_weights()).",
            received=f"a model with the dtype policy {policy.name!r}",
        )


def _require_positions(model: Seq2SeqTransformer, sizes: Sizes) -> None:
    limit = model.config.max_length
    if not isinstance(model.decoder_embedding.position_encoding, positions.LearnedPositions):
        return
    for name in ("max_length", "source_length", "target_length"):
        size = getattr(sizes, name)
        if isinstance(size, int) and size > limit:
            raise ArgumentError(
                "The export would be longer than the table of learned positions.",
                f"{name} <= {limit}",
                value=size,
            )


def _concrete(function: Callable[..., dict[str, Tensor]], inputs: Iterable[NamedTensor]) -> Any:
    import tensorflow as tf

    # By name: the decoder's step takes as many caches as the model has.
    specs = {
        tensor.name: tf.TensorSpec(
            [None if isinstance(size, str) else size for size in tensor.shape],
            tensor.dtype,
            tensor.name,
        )
        for tensor in inputs
    }
    return tf.function(function, autograph=False).get_concrete_function(**specs)


def _by_name(
    cache: list[dict[str, Any]], kinds: Iterable[str] = (_SELF, _CROSS)
) -> dict[str, Tensor]:
    # The cache of a pruned sublayer is empty, and other runtimes do not like empty tensors.
    return {
        name: tensor
        for index, layer in enumerate(cache)
        for kind in kinds
        for name, tensor in _parts(f"{kind}_{index}", layer[kind])
        if 0 not in tensor.shape
    }


def _parts(name: str, entry: Any) -> list[tuple[str, Tensor]]:
    """Return the tensors of one cache: a tensor, or a dict of the parts of a state."""
    if not isinstance(entry, dict):
        return [(name, entry)]
    return [(f"{name}_{part}", tensor) for part, tensor in entry.items()]


def _by_layer(caches: dict[str, Tensor], structure: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return named caches in the structure of the decoder's."""
    empty = ops.zeros((1, 0), dtype="float32")

    def entry(name: str, example: Any) -> Any:
        if not isinstance(example, dict):
            return caches.get(name, empty)
        return {part: caches[f"{name}_{part}"] for part in example}

    return [
        {kind: entry(f"{kind}_{index}", example) for kind, example in layer.items()}
        for index, layer in enumerate(structure)
    ]


@dataclass(frozen=True)
class _CacheTensors:
    sizes: Sizes
    traced: Mapping[str, Any]
    """The encoder's outputs, among them the caches."""

    caches: Iterable[str]
    """The names of the caches."""

    def of(self, rows: Size, kinds: Iterable[str] = (_SELF, _CROSS)) -> tuple[NamedTensor, ...]:
        """Return the caches, those of the self-attentions with a number of rows."""
        return tuple(
            NamedTensor(name, self._shape(name, rows), self.traced[name].dtype.name)
            for name in self.caches
            for kind in kinds
            if name.startswith(kind)
        )

    def _shape(self, name: str, rows: Size) -> tuple[Size, ...]:
        sizes, shape = self.sizes, tuple(self.traced[name].shape)
        if name.startswith(_CROSS):
            return (sizes.batch, 2, sizes.source_length, *shape[3:])
        is_state = len(shape) == 2
        return (rows, *shape[1:]) if is_state else (rows, 2, sizes.max_length, *shape[3:])
