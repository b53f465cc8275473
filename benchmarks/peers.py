"""The same encoder-decoder Transformer from four libraries, for the scripts that compare them.

Equal in all: the matrices and their shapes, hence the number of weights and the operations of the
matrix products, which the tests count; Pre-LN with final norms of epsilon 1e-6; one embedding for
source, target and output, scaled by √D; sinusoidal positions; ReLU; dropout of the embeddings and
of each sublayer's output; source padding masked in both attentions that read the source, a causal
mask in the third; cross-entropy with label smoothing, the mean over real tokens; Adam.

Not equal, since each library trains as its users would have it:

- Ours trains with `training.Adam` and our loss, Keras' and keras-hub's models with Keras' own Adam
  and a loss of the same value in a few lines of Keras, torch with its own loss and its fused Adam.
- keras-hub's blocks drop attention weights, too, and cannot be told otherwise. torch's layers do by
  themselves, and are told otherwise.
- Our model makes its positions itself; the peers share one table.
- Weights are drawn as each library draws them. Only torch's embeddings are drawn as small as ours,
  since its own are far too large for a tied model.

A library is imported where it is used: not every machine has all of them, and a process that
measures one of them should not hold the others.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import keras
    import torch

    from keras_addnorm.models import Seq2SeqTransformer

LEARNING_RATE, SMOOTHING, EPSILON, ADAM_EPSILON = 1e-4, 0.1, 1e-6, 1e-7
# Most positions of a peer's table.
MAX_LENGTH = 1024
OURS, KERAS, KERAS_HUB, TORCH = "keras-addnorm", "Keras layers", "keras-hub", "torch"
TORCH_COMPILED = f"{TORCH}.compile"

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
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

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
            **{"scheme": "pre_ln", "share_embeddings": True, **settings},
        )
    )


def never_ending(model: Seq2SeqTransformer) -> Seq2SeqTransformer:
    """Change random weights so that no hypothesis ends: every search makes all its steps."""
    import keras

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


def sinusoids(max_length: int, width: int) -> np.ndarray:
    """Sinusoidal positions, `(max_length, width)`."""
    rates = 10000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(max_length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype("float32")


def _encoder_decoder(
    size: Size,
    embedding: Callable[..., Any],
    encoder_layer: Callable[[Any, Any], Any],
    decoder_layer: Callable[[Any, Any, Any], Any],
) -> keras.Model:
    """What Keras' and keras-hub's models share: all but the layers."""
    import keras
    from keras import layers, ops

    table = sinusoids(MAX_LENGTH, size.hidden_dim)

    def positioned(x: Any) -> Any:
        positions = ops.convert_to_tensor(table, x.dtype)[: ops.shape(x)[1]]
        return x * size.hidden_dim**0.5 + positions

    add_positions = layers.Lambda(positioned, output_shape=(None, size.hidden_dim))

    def embed(ids: Any) -> Any:
        return layers.Dropout(size.dropout)(add_positions(embedding(ids)))

    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    source_mask = ops.not_equal(source, 0)
    x, y = embed(source), embed(target)
    for _ in range(size.layers):
        x = encoder_layer(x, source_mask)
    x = layers.LayerNormalization(epsilon=EPSILON)(x)
    for _ in range(size.layers):
        y = decoder_layer(y, x, source_mask)
    y = layers.LayerNormalization(epsilon=EPSILON)(y)
    return keras.Model({"source": source, "target": target}, embedding(y, reverse=True))


def keras_layers(size: Size) -> keras.Model:
    """What a user of Keras writes without any other library."""
    from keras import layers

    key_dim = size.hidden_dim // size.num_heads

    def sublayer(x: Any, branch: Callable[[Any], Any]) -> Any:
        h = layers.LayerNormalization(epsilon=EPSILON)(x)
        return x + layers.Dropout(size.dropout)(branch(h))

    def attention(x: Any, **arguments: Any) -> Any:
        return layers.MultiHeadAttention(size.num_heads, key_dim)(x, **arguments)

    def feed_forward(x: Any) -> Any:
        inner = layers.Dense(size.intermediate_dim, activation="relu")(x)
        return layers.Dense(size.hidden_dim)(inner)

    def encoder_layer(x: Any, mask: Any) -> Any:
        x = sublayer(x, lambda h: attention(h, value=h, attention_mask=mask[:, None]))
        return sublayer(x, feed_forward)

    def decoder_layer(y: Any, memory: Any, mask: Any) -> Any:
        y = sublayer(y, lambda h: attention(h, value=h, use_causal_mask=True))
        y = sublayer(y, lambda h: attention(h, value=memory, attention_mask=mask[:, None]))
        return sublayer(y, feed_forward)

    embedding = layers.ReversibleEmbedding(size.vocabulary_size, size.hidden_dim)
    return _encoder_decoder(size, embedding, encoder_layer, decoder_layer)


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
        "TransformerEncoder": "transformer_encoder",
        "TransformerDecoder": "transformer_decoder",
    }
    place = "keras_hub.src.layers.modeling."
    return types.SimpleNamespace(
        **{name: getattr(importlib.import_module(place + m), name) for name, m in modules.items()}
    )


def keras_hub_layers(size: Size) -> keras.Model:
    """The model from keras-hub's own blocks and embedding."""
    hub = _keras_hub()
    shape = {
        "intermediate_dim": size.intermediate_dim,
        "num_heads": size.num_heads,
        "dropout": size.dropout,
        "layer_norm_epsilon": EPSILON,
        "normalize_first": True,
    }

    def encoder_layer(x: Any, mask: Any) -> Any:
        return hub.TransformerEncoder(**shape)(x, padding_mask=mask)

    def decoder_layer(y: Any, memory: Any, mask: Any) -> Any:
        return hub.TransformerDecoder(**shape)(y, memory, encoder_padding_mask=mask)

    embedding = hub.ReversibleEmbedding(size.vocabulary_size, size.hidden_dim)
    return _encoder_decoder(size, embedding, encoder_layer, decoder_layer)


KERAS_MODELS: dict[str, Callable[..., keras.Model]] = {
    OURS: ours,
    KERAS: keras_layers,
    KERAS_HUB: keras_hub_layers,
}


def compiled(name: str, size: Size, jit_compile: bool = True, **settings: Any) -> keras.Model:
    """One of the Keras models with its optimiser and loss; `settings` are those of `ours`."""
    model = KERAS_MODELS[name](size, **settings)
    optimizer, loss = our_training() if name == OURS else _training_in_keras()
    model.compile(optimizer, loss, jit_compile=jit_compile)
    return model


def our_training() -> tuple[keras.optimizers.Optimizer, Callable[[Any, Any], Any]]:
    from keras_addnorm.training import Adam, MaskedSparseCategoricalCrossentropy

    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=SMOOTHING)
    return Adam(LEARNING_RATE, epsilon=ADAM_EPSILON), loss


def _training_in_keras() -> tuple[keras.optimizers.Optimizer, Callable[[Any, Any], Any]]:
    import keras

    return keras.optimizers.Adam(LEARNING_RATE, epsilon=ADAM_EPSILON), smoothed_cross_entropy


def smoothed_cross_entropy(labels: Any, logits: Any) -> Any:
    """Label smoothing as one writes it down in Keras: no rows of targets, in float32."""
    from keras import ops

    log_shares = ops.log_softmax(ops.cast(logits, "float32"))
    labels = ops.cast(labels, "int32")
    found = ops.take_along_axis(log_shares, labels[..., None], axis=-1)[..., 0]
    values = -(1 - SMOOTHING) * found - SMOOTHING * ops.mean(log_shares, axis=-1)
    is_real = ops.cast(labels != 0, values.dtype)
    return ops.sum(values * is_real) / ops.sum(is_real)


def torch_model(size: Size, device: str = "cpu") -> torch.nn.Module:
    """The model from torch's own `nn.Transformer`, with dropout where the others have it."""
    import torch
    from torch import nn

    class Seq2Seq(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(size.vocabulary_size, size.hidden_dim)
            # As ours: logits of a tied model explode where the table is not this small.
            nn.init.normal_(self.embedding.weight, std=size.hidden_dim**-0.5)
            self.transformer = nn.Transformer(
                size.hidden_dim,
                size.num_heads,
                size.layers,
                size.layers,
                size.intermediate_dim,
                size.dropout,
                batch_first=True,
                layer_norm_eps=EPSILON,
                norm_first=True,
            )
            for layer in self.transformer.modules():
                if isinstance(layer, nn.MultiheadAttention):
                    layer.dropout = 0.0  # Of the attention weights.
                elif isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                    layer.dropout.p = 0.0  # Of the activations inside the feed-forward sublayer.
            self.dropout = nn.Dropout(size.dropout)
            positions = torch.from_numpy(sinusoids(MAX_LENGTH, size.hidden_dim))
            self.register_buffer("positions", positions, persistent=False)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            causal = nn.Transformer.generate_square_subsequent_mask(
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
    model: torch.nn.Module, *, compiled: bool = False, device: str = "cpu", dtype: str = "float32"
) -> Callable[[Batch], torch.Tensor]:
    """A training step of a torch model, eager or compiled; it returns the loss as a tensor."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, eps=ADAM_EPSILON, fused=True)
    loss_function = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=SMOOTHING)
    precision = torch.autocast(device, getattr(torch, dtype), enabled=dtype != "float32")

    def loss_of(source: torch.Tensor, target: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss_function(model(source, target).flatten(0, 1), labels.flatten())

    forward = torch.compile(loss_of) if compiled else loss_of

    def step(batch: Batch) -> torch.Tensor:
        arrays = (torch.as_tensor(ids, device=device).long() for ids in batch)
        optimizer.zero_grad()
        with precision:
            loss = forward(*arrays)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
