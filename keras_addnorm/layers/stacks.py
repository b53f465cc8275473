"""Stacks of layers, with the final norm where their scheme needs one."""

from __future__ import annotations

import abc
import dataclasses
import functools
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import keras

from keras_addnorm import norms, schemes
from keras_addnorm.basics.argument_checks import require_int
from keras_addnorm.basics.arguments import KerasArguments, takes
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.block import ConfiguredLayer, TransformerBlock
from keras_addnorm.layers.block_config import BlockConfig
from keras_addnorm.layers.checkpointing import checkpointed
from keras_addnorm.layers.decoder_layer import TransformerDecoderLayer
from keras_addnorm.layers.encoder_layer import TransformerEncoderLayer
from keras_addnorm.layers.initializers import seeds_kept
from keras_addnorm.layers.learned_arrays import LearnedArrays
from keras_addnorm.layers.masks import explicit_or_implicit
from keras_addnorm.layers.positions import PositionsLike
from keras_addnorm.layers.pruned import require_sublayers, within
from keras_addnorm.layers.self_attention import MULTI_HEAD_ATTENTION
from keras_addnorm.layers.shapes import pack, require_sequences, unpack

Tensor = Any
Shape = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class _Depth:
    num_layers: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackArguments(BlockConfig, _Depth, KerasArguments):
    """What the constructor of a stack takes; `TransformerEncoder` says what each field means."""

    num_other_layers: int = 0
    pruned_sublayers: Iterable[str] = ()
    gradient_checkpointing: bool = False


class TransformerStack(ConfiguredLayer):
    """The base class of both stacks."""

    layer_class: ClassVar[type[TransformerBlock]]
    """What the stack is made of."""

    @takes(StackArguments)
    def __init__(self, arguments: StackArguments) -> None:
        super().__init__(**arguments.for_keras())
        num_layers = arguments.num_layers
        require_int("A stack needs layers.", num_layers=num_layers)
        others = arguments.num_other_layers
        require_int("The other stack has layers.", least=0, num_other_layers=others)
        self._configure(arguments.block)
        self.num_layers = num_layers
        self.num_other_layers = arguments.num_other_layers
        pruned = arguments.pruned_sublayers
        self.pruned_sublayers = require_sublayers(pruned, self.sublayer_names(num_layers))
        self._require_first_values()
        self.gradient_checkpointing = arguments.gradient_checkpointing
        self._warn_of_norm()

    @classmethod
    def sublayer_names(cls, num_layers: int) -> tuple[str, ...]:
        """Return all sublayers' names, `"0/self_attention"` and so on, in their order."""
        indices = range(num_layers)
        return tuple(f"{index}/{name}" for index in indices for name in cls.layer_class.sublayers)

    @abc.abstractmethod
    def call(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run the layers."""

    def compute_output_spec(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return shape and dtype of the output, of a plain call without tracing the layers."""
        require_sequences(self.name, x=x)
        if kwargs.get("cache") is not None or kwargs.get("return_attention_scores"):
            return super().compute_output_spec(x, *args, **kwargs)
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)

    @abc.abstractmethod
    def _position(self, layer_index: int) -> schemes.StackPosition:
        """Return where a layer of this stack stands."""

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_other_layers": self.num_other_layers,
            "pruned_sublayers": list(self.pruned_sublayers),
            "gradient_checkpointing": self.gradient_checkpointing,
        }

    def _warn_of_norm(self) -> None:
        needs = self.scheme.needs_scale_invariant_norm
        if needs and not norms.is_scale_invariant(self.norm):
            warnings.warn(
                f"{self.scheme!r} lets the size of the stream go, for a norm to undo. Expected a "
                "norm that factors on its input do not change, such as 'layer_norm' or "
                f"'rms_norm'. Received: norm={self.norm!r}: the model is another than the paper's.",
                stacklevel=2,
            )

    def _require_first_values(self) -> None:
        """Raise a `ValueError` if the self-attention is pruned whose values all others read."""
        is_attention = self.config.self_attention == MULTI_HEAD_ATTENTION
        first = "0/self_attention"
        if self.attention.value_residual and is_attention and first in self.pruned_sublayers:
            raise ArgumentError(
                f"With `value_residual` all layers of the {self.side} read the values of its first "
                "self-attention, which cannot be pruned.",
                f"names without {first!r}",
                pruned_sublayers=list(self.pruned_sublayers),
            )

    def _build_layers(self, *shapes: Shape | None) -> None:
        self.layers = []
        arguments = {**vars(self.config), "positions": self._layer_positions()}
        for index in range(self.num_layers):
            # The linear decay rule: early layers, which all later ones build on, stay longer.
            arguments["drop_path"] = self.drop_path * (index + 1) / self.num_layers
            with seeds_kept():  # A weight's seed is drawn when the weight is made.
                layer = self.layer_class(
                    **arguments,
                    pruned_sublayers=within(self.pruned_sublayers, str(index)),
                    position=self._position(index),
                    dtype=self.dtype_policy,
                    name=f"layer_{index}",
                )
            layer.build(*shapes)
            self.layers.append(layer)
        scheme = self.scheme
        self.embedding_norm = self._make_norm(
            "embedding_norm", scheme.needs_embedding_norm, shapes[0]
        )
        self.final_norm = self._make_norm("final_norm", scheme.needs_final_norm, shapes[0])
        names = self.layers[-1].built_sublayers
        position = self._position(self.num_layers - 1).at(names[-1], names)
        self._end_plan = scheme.end_plan(position)
        self.stream_ends = None
        if self._end_plan.arrays:
            arrays = self._end_plan.arrays
            self.stream_ends = LearnedArrays(arrays, dtype=self.dtype_policy, name="stream_ends")
            self.stream_ends.build(shapes[0])
        names = self._end_plan.extra_norms
        self.end_norms = {name: self._make_norm(name, True, shapes[0]) for name in names}

    def _make_norm(self, name: str, is_needed: bool, shape: Shape | None) -> norms.Norm | None:
        if not is_needed:
            return None
        norm = norms.get(self.norm)(epsilon=self.epsilon, dtype=self.dtype_policy, name=name)
        norm.build(shape)
        return norm

    def _open(self, x: Tensor, padding_mask: Tensor | None, training: bool | None) -> Any:
        """Return what the layers hand on: the stream, or the state of several."""
        require_sequences(self.name, x=x)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x, padding_mask=padding_mask, training=training)
        return self.scheme.open(x)

    def _run(
        self, layer: TransformerBlock, first_values: Any, *inputs: Any, **options: Any
    ) -> tuple[Tensor, Any, Any, Any]:
        """Return the new state, attention weights, cache, and the values of the first layer."""
        has_values = layer.has_value_residual
        asks = has_values and first_values is None
        if has_values:
            options |= {"first_values": first_values, "return_values": asks}
        outputs = self._call(layer, *inputs, **options)
        has_scores, has_cache = options["return_attention_scores"], options.get("cache") is not None
        x, scores, cache, values = unpack(outputs, has_scores, has_cache, asks)
        return x, scores, cache, values if asks else first_values

    def _call(self, layer: TransformerBlock, *inputs: Any, **options: Any) -> Any:
        # Calls that return more than `x` serve diagnostics and decoding, which need no gradients.
        plain = options.get("cache") is None and not options["return_attention_scores"]
        if self.gradient_checkpointing and options["training"] and plain:
            return checkpointed(layer, *inputs, **options)
        return layer(*inputs, **options)

    def _layer_positions(self) -> PositionsLike:
        """Return the choice of each layer, or, where layers share a table, one object for all."""
        made = position_kinds.relative(self.positions, dtype=self.dtype_policy, name="positions")
        return made if made is not None and made.is_shared else self.positions

    def _finish(self, x: Any, padding_mask: Tensor | None, training: bool | None) -> Tensor:
        made = {} if self.stream_ends is None else dict(self.stream_ends.arrays)
        arguments = {"padding_mask": padding_mask, "training": training}
        ends: dict[str, Any] = {**self.end_norms, "final_norm": self.final_norm}
        for name, norm in ends.items():
            if norm is not None:
                made[name] = functools.partial(norm, **arguments)
        parts = schemes.ResidualParts(self._end_plan, padding_mask, training, **made)
        return self.scheme.close(x, parts)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class TransformerEncoder(TransformerStack):
    """A stack of `TransformerEncoderLayer`s, with a final norm where the scheme needs one.

    Args:
        num_layers: Number of layers, L.
        **block: The fields of `BlockConfig`.
        num_other_layers: Depth of the stack on the other side (the decoder that reads this
            encoder, or the encoder that a decoder reads), 0 if there is none. Schemes that depend
            on the depth of both, such as DeepNorm, read it.
        pruned_sublayers: Sublayers to leave out, such as `"0/self_attention"`: `F(x) = 0` in their
            place.
        gradient_checkpointing: Whether training keeps the input of each layer only, and computes
            its activations again for the gradients: the same numbers with less memory, more time.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If a size or a name does not fit.
        TypeError: If an argument is unknown or missing.

    Weights:
        `layers/transformer_encoder_layer`, `layers/transformer_encoder_layer_1`, ...;
        `embedding_norm/...` and `final_norm/...` where the scheme needs them; `stream_ends/...` and
        `end_norms/...` where a scheme of several streams has weights and norms at the end of the
        stack.

    Example:
    ```python
    import keras
    from keras_addnorm.layers import TransformerEncoder

    x = keras.random.normal((2, 5, 8))
    y = TransformerEncoder(num_layers=2, num_heads=2, intermediate_dim=32, scheme="pre_ln")(x)
    ```
    """

    side = "encoder"
    other_order = TransformerEncoderLayer.other_order
    layer_class = TransformerEncoderLayer

    def build(self, x_shape: Shape) -> None:
        """Make the layers, for an input `(B, T, D)`."""
        self._build_layers(x_shape)

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Encode.

        Args:
            x: `(B, T, D)`.
            padding_mask: `(B, T)`, True at real tokens; `None` for the mask attached to `x`.
            attention_mask: `(B, T, T)` or `(T, T)`, True where a query may attend to a key.
            return_attention_scores: Whether to return the attention weights too.
            training: Whether to apply dropout.

        Returns:
            `(B, T, D)`; with `return_attention_scores`, also a list of weights, one a layer.
        """
        padding_mask = explicit_or_implicit(padding_mask, x)
        x, scores, first_values = self._open(x, padding_mask, training), [], None
        for layer in self.layers:
            x, layer_scores, _, first_values = self._run(
                layer,
                first_values,
                x,
                padding_mask=padding_mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            scores.append(layer_scores)
        return pack(
            self._finish(x, padding_mask, training), scores if return_attention_scores else None
        )

    def _position(self, layer_index: int) -> schemes.StackPosition:
        return schemes.StackPosition(self.num_layers, self.num_other_layers, self.side, layer_index)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class TransformerDecoder(TransformerStack):
    """A stack of `TransformerDecoderLayer`s, with a final norm where the scheme needs one.

    Arguments and errors are those of `TransformerEncoder`. Built without a memory it is a
    decoder-only stack.

    Weights:
        `layers/transformer_decoder_layer`, `layers/transformer_decoder_layer_1`, ...;
        `embedding_norm/...` and `final_norm/...` where the scheme needs them.

    Example:
    ```python
    import keras
    from keras_addnorm.layers import TransformerDecoder

    x, memory = keras.random.normal((2, 5, 8)), keras.random.normal((2, 7, 8))
    y = TransformerDecoder(num_layers=2, num_heads=2, intermediate_dim=32)(x, memory)
    ```
    """

    side = "decoder"
    other_order = TransformerDecoderLayer.other_order
    layer_class = TransformerDecoderLayer

    def build(self, x_shape: Shape, memory_shape: Shape | None = None) -> None:
        """Make the layers, with cross-attention if there is a memory `(B, S, D_memory)`."""
        self._build_layers(x_shape, memory_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        padding_mask: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: list[dict[str, Tensor]] | None = None,
        cache_update_index: int | Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Decode.

        Args:
            x: `(B, T, D)`.
            memory: The encoder's output, `(B, S, D_memory)`; not needed with a cache.
            padding_mask: `(B, T)`, True at real tokens; `None` for the mask attached to `x`.
            memory_padding_mask: `(B, S)`, True at real tokens of the memory; `None` for the mask
                attached to `memory`.
            attention_mask: `(B, T, T)` or `(T, T)` for the self-attention, besides the causal
                mask.
            cache: One dict a layer, from `initial_cache` or an earlier call.
            cache_update_index: Position of `x[:, 0]` in the sequence.
            return_attention_scores: Whether to return the attention weights too.
            training: Whether to apply dropout.

        Returns:
            `(B, T, D)`; with `return_attention_scores`, also a list of dicts, one a layer; with
            `cache`, last, the list of updated caches.
        """
        if cache is None:
            padding_mask = explicit_or_implicit(padding_mask, x)
        memory_padding_mask = explicit_or_implicit(memory_padding_mask, memory)
        x, scores, new_cache = self._open(x, padding_mask, training), [], []
        first_values = None
        for index, layer in enumerate(self.layers):
            x, layer_scores, layer_cache, first_values = self._run(
                layer,
                first_values,
                x,
                memory,
                padding_mask=padding_mask,
                memory_padding_mask=memory_padding_mask,
                attention_mask=attention_mask,
                cache=None if cache is None else cache[index],
                cache_update_index=cache_update_index,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            scores.append(layer_scores)
            new_cache.append(layer_cache)
        return pack(
            self._finish(x, padding_mask, training),
            scores if return_attention_scores else None,
            None if cache is None else new_cache,
        )

    def initial_cache(
        self, batch_size: int | Tensor, max_length: int, memory: Tensor | None = None
    ) -> list[dict[str, Tensor]]:
        """Return the self-attentions' first caches and the projected memory, one dict a layer.

        Args:
            batch_size: Number of rows that will be decoded; with a beam, more than the memory has.
            max_length: Number of positions that will be decoded at most.
            memory: The encoder's output; `None` for a decoder-only stack.

        Returns:
            The `cache` argument of the first call.
        """
        return [layer.initial_cache(batch_size, max_length, memory) for layer in self.layers]

    def _position(self, layer_index: int) -> schemes.StackPosition:
        return schemes.StackPosition(self.num_other_layers, self.num_layers, self.side, layer_index)
