"""The same encoder-decoder Transformer from four libraries, for the scripts that compare them.

All are Pre-LN with final norms, one embedding for source, target and output, sinusoidal positions,
and train with Adam on cross-entropy with label smoothing, padding left out. A library is imported
where it is used: not every machine has all of them.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

if TYPE_CHECKING:
    import torch

LEARNING_RATE, SMOOTHING = 1e-4, 0.1
OURS, KERAS, KERAS_HUB, TORCH = "keras-addnorm", "Keras layers", "keras-hub", "torch"

# Source, target and labels, as `keras_addnorm.data` makes them; all integer arrays.
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Size:
    """Shape of a model: n + n layers."""

    layers: int
    hidden_dim: int
    intermediate_dim: int
    num_heads: int
    vocabulary_size: int
    dropout: float = 0.1

    def training_flops(self, batch_size: int, length: int) -> int:
        """Operations of the matrix products of a training step, two for each weight and token.

        The backward pass has two products for each of the forward pass. Causal attention counts
        in full, as it is usually counted, and source and target are of one length.
        """
        tokens, width, inner = batch_size * length, self.hidden_dim, self.intermediate_dim
        # An encoder layer has one attention, a decoder layer two: four kernels and two products.
        attention = 4 * width**2 + 2 * length * width
        layers = self.layers * (3 * attention + 2 * 2 * width * inner)
        return 3 * 2 * tokens * (layers + width * self.vocabulary_size)


SIZES = {
    "tiny": Size(4, 128, 256, 4, 10_000),
    "base": Size(3, 512, 2048, 8, 8_000),
    "base 6+6": Size(6, 512, 2048, 8, 8_000),
    "big": Size(6, 1024, 4096, 16, 8_000),
}


def random_batch(size: Size, batch_size: int, length: int) -> Batch:
    """Random tokens without padding, ours and every peer's costliest case."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, size.vocabulary_size, (3, batch_size, length)).astype("int32")
    return ids[0], ids[1], ids[2]


def ours(size: Size, **settings: Any) -> Seq2SeqTransformer:
    """The model of this library; `settings` are further fields of its configuration."""
    return Seq2SeqTransformer(
        Seq2SeqConfig(
            source_vocabulary_size=size.vocabulary_size,
            target_vocabulary_size=size.vocabulary_size,
            num_encoder_layers=size.layers,
            num_decoder_layers=size.layers,
            hidden_dim=size.hidden_dim,
            intermediate_dim=size.intermediate_dim,
            num_heads=size.num_heads,
            dropout=size.dropout,
            scheme="pre_ln",
            share_embeddings=True,
            **settings,
        )
    )


def never_ending(model: Seq2SeqTransformer) -> Seq2SeqTransformer:
    """Change random weights so that no hypothesis ends: every search makes all its steps."""
    # As they start, sublayers add so little that a tied model repeats its last token for ever.
    for weight in model.decoder.weights:
        if weight.name == "kernel":
            weight.assign(2.0 * weight)
    # One direction is that of padding, start and end, and of no other token. The last norm's offset
    # points away from it, so far that these three never come near the best.
    width = model.config.hidden_dim
    direction = np.random.default_rng(2).normal(size=width).astype("float32")
    direction /= np.linalg.norm(direction)
    table = keras.ops.convert_to_numpy(model.decoder_embedding.embeddings)
    table = table - np.outer(table @ direction, direction)
    table[:3] = -direction
    model.decoder.final_norm.beta.assign((2 * width**0.5 + 20) * direction)
    model.decoder_embedding.embeddings.assign(table)
    return model


class _TiedEmbedding(keras.layers.Embedding):
    """Scaled embeddings with sinusoidal positions; reversed, the logits of hidden states."""

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if reverse:
            return keras.ops.matmul(inputs, keras.ops.transpose(self.embeddings))
        x = super().call(inputs) * self.output_dim**0.5
        steps = np.arange(0, self.output_dim, 2, dtype="float32") / self.output_dim
        positions = keras.ops.arange(keras.ops.shape(inputs)[1], dtype="float32")[:, None]
        angles = positions * 10000.0**-steps
        table = keras.ops.concatenate([keras.ops.sin(angles), keras.ops.cos(angles)], -1)
        return x + keras.ops.cast(table, x.dtype)

    def compute_output_spec(self, inputs: Any, reverse: bool = False) -> keras.KerasTensor:
        shape = inputs.shape[:2]
        if reverse:
            return keras.KerasTensor((*shape, self.input_dim), self.compute_dtype)
        return keras.KerasTensor((*shape, self.output_dim), self.compute_dtype)


def keras_layers(size: Size) -> keras.Model:
    """What a user of Keras writes without any other library."""
    layers = keras.layers
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedding = _TiedEmbedding(size.vocabulary_size, size.hidden_dim)
    key_dim = size.hidden_dim // size.num_heads

    def embed(ids: Any) -> Any:
        return layers.Dropout(size.dropout)(embedding(ids))

    def sublayer(x: Any, branch: Callable[[Any], Any]) -> Any:
        return x + layers.Dropout(size.dropout)(branch(layers.LayerNormalization()(x)))

    def attention(x: Any, **arguments: Any) -> Any:
        return layers.MultiHeadAttention(size.num_heads, key_dim)(x, **arguments)

    def feed_forward(x: Any) -> Any:
        inner = layers.Dense(size.intermediate_dim, activation="relu")(x)
        return layers.Dense(size.hidden_dim)(inner)

    mask = keras.ops.expand_dims(keras.ops.not_equal(source, 0), 1)
    x, y = embed(source), embed(target)
    for _ in range(size.layers):
        x = sublayer(x, lambda h: attention(h, value=h, attention_mask=mask))
        x = sublayer(x, feed_forward)
    memory = layers.LayerNormalization()(x)
    for _ in range(size.layers):
        y = sublayer(y, lambda h: attention(h, value=h, use_causal_mask=True))
        y = sublayer(y, lambda h: attention(h, value=memory, attention_mask=mask))
        y = sublayer(y, feed_forward)
    logits = embedding(layers.LayerNormalization()(y), reverse=True)
    return keras.Model({"source": source, "target": target}, logits)


def _keras_hub() -> types.SimpleNamespace:
    """The layers of keras-hub, without the tokenizers that the package itself imports."""
    if "keras_hub" not in sys.modules:
        root = importlib.util.find_spec("keras_hub")
        if root is None:
            raise ModuleNotFoundError("No module named 'keras_hub'", name="keras_hub")
        package = types.ModuleType("keras_hub")
        package.__path__ = list(root.submodule_search_locations or ())
        package.__spec__ = root  # Who asks whether keras-hub is here wants one.
        sys.modules["keras_hub"] = package
    modules = {
        "ReversibleEmbedding": "reversible_embedding",
        "SinePositionEncoding": "sine_position_encoding",
        "TransformerEncoder": "transformer_encoder",
        "TransformerDecoder": "transformer_decoder",
    }
    place = "keras_hub.src.layers.modeling."
    return types.SimpleNamespace(
        **{name: getattr(importlib.import_module(place + m), name) for name, m in modules.items()}
    )


def keras_hub_layers(size: Size) -> keras.Model:
    """The model from keras-hub's own blocks, embedding and positions."""
    hub = _keras_hub()
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedding = hub.ReversibleEmbedding(size.vocabulary_size, size.hidden_dim, mask_zero=True)
    positions = hub.SinePositionEncoding()
    shape = {
        "intermediate_dim": size.intermediate_dim,
        "num_heads": size.num_heads,
        "dropout": size.dropout,
        "normalize_first": True,
    }

    def embed(ids: Any) -> Any:
        x = embedding(ids) * size.hidden_dim**0.5
        return keras.layers.Dropout(size.dropout)(x + positions(x))

    x, y = embed(source), embed(target)
    source_mask = keras.ops.not_equal(source, 0)
    for _ in range(size.layers):
        x = hub.TransformerEncoder(**shape)(x, padding_mask=source_mask)
    x = keras.layers.LayerNormalization()(x)
    for _ in range(size.layers):
        y = hub.TransformerDecoder(**shape)(y, x, encoder_padding_mask=source_mask)
    y = keras.layers.LayerNormalization()(y)
    return keras.Model({"source": source, "target": target}, embedding(y, reverse=True))


KERAS_MODELS: dict[str, Callable[[Size], keras.Model]] = {
    OURS: ours,
    KERAS: keras_layers,
    KERAS_HUB: keras_hub_layers,
}


def compiled(model: keras.Model, jit_compile: bool = True) -> keras.Model:
    """Give a Keras model the optimiser and the loss that all contenders train with."""
    model.compile(
        optimizer=keras.optimizers.Adam(LEARNING_RATE),
        loss=MaskedSparseCategoricalCrossentropy(label_smoothing=SMOOTHING),
        jit_compile=jit_compile,
    )
    return model


def torch_model(size: Size, device: str = "cpu", max_length: int = 1024) -> torch.nn.Module:
    """The model from torch's own `nn.Transformer`."""
    import torch

    class Seq2Seq(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(size.vocabulary_size, size.hidden_dim)
            # As ours: logits of a tied model explode where the table is not this small.
            torch.nn.init.normal_(self.embedding.weight, std=size.hidden_dim**-0.5)
            self.transformer = torch.nn.Transformer(
                size.hidden_dim,
                size.num_heads,
                size.layers,
                size.layers,
                size.intermediate_dim,
                size.dropout,
                batch_first=True,
                norm_first=True,
            )
            self.dropout = torch.nn.Dropout(size.dropout)
            angles = torch.arange(max_length)[:, None] * 10000 ** (
                -torch.arange(0, size.hidden_dim, 2) / size.hidden_dim
            )
            positions = torch.cat([angles.sin(), angles.cos()], -1)
            self.register_buffer("positions", positions, persistent=False)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            causal = torch.nn.Transformer.generate_square_subsequent_mask(
                target.shape[1], device=target.device
            )
            x, y = (
                self.dropout(
                    self.embedding(ids) * size.hidden_dim**0.5 + self.positions[: ids.shape[1]]
                )
                for ids in (source, target)
            )
            # A padding mask of floats, as the causal one: torch wants both of one type.
            padding = torch.zeros(source.shape, device=source.device)
            padding = padding.masked_fill(source == 0, float("-inf"))
            h = self.transformer(
                x,
                y,
                tgt_mask=causal,
                tgt_is_causal=True,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
            )
            return h @ self.embedding.weight.T

    return Seq2Seq().to(device)


def torch_step(
    model: torch.nn.Module, device: str = "cpu", dtype: str = "float32"
) -> Callable[[Batch], torch.Tensor]:
    """A training step of a torch model, eager or compiled; it returns the loss as a tensor."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, fused=device != "cpu")
    loss_function = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=SMOOTHING)
    precision = torch.autocast(device, getattr(torch, dtype), enabled=dtype != "float32")

    def step(batch: Batch) -> torch.Tensor:
        source, target, labels = (torch.as_tensor(ids, device=device).long() for ids in batch)
        optimizer.zero_grad()
        with precision:
            loss = loss_function(model(source, target).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
