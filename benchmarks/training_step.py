"""Time of one training step: ours, keras-hub's blocks and torch's, in turn in one process.

All three train the same encoder-decoder Transformer (tied embeddings, Pre-LN, Adam, label
smoothing 0.1, dropout 0.1) on the same random batch. Busy cores are printed beside each median:
a run that had less of the machine than its rival shows there.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable

import keras
import keras_hub
import measure
import numpy as np
import torch

from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

DROPOUT, SMOOTHING = 0.1, 0.1


@dataclasses.dataclass(frozen=True)
class Size:
    """Shape of the model and of its batch."""

    layers: int
    hidden_dim: int
    intermediate_dim: int
    num_heads: int
    vocabulary_size: int
    batch_size: int
    length: int


SIZES = {
    "tiny": Size(4, 128, 256, 4, 10_000, 128, 32),
    "base": Size(3, 512, 2048, 8, 8_000, 16, 64),
}

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
Step = Callable[[Batch], float]


def ours(size: Size) -> Step:
    config = Seq2SeqConfig(
        source_vocabulary_size=size.vocabulary_size,
        target_vocabulary_size=size.vocabulary_size,
        num_encoder_layers=size.layers,
        num_decoder_layers=size.layers,
        hidden_dim=size.hidden_dim,
        intermediate_dim=size.intermediate_dim,
        num_heads=size.num_heads,
        dropout=DROPOUT,
        scheme="pre_ln",
        share_embeddings=True,
    )
    return _keras_step(Seq2SeqTransformer(config))


def keras_hub_blocks(size: Size) -> Step:
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedding = keras_hub.layers.ReversibleEmbedding(
        size.vocabulary_size, size.hidden_dim, mask_zero=True
    )
    positions = keras_hub.layers.SinePositionEncoding()
    shape = {
        "intermediate_dim": size.intermediate_dim,
        "num_heads": size.num_heads,
        "dropout": DROPOUT,
        "normalize_first": True,
    }

    def embed(ids: keras.KerasTensor) -> keras.KerasTensor:
        x = embedding(ids) * size.hidden_dim**0.5
        return keras.layers.Dropout(DROPOUT)(x + positions(x))

    x, y = embed(source), embed(target)
    source_mask = keras.ops.not_equal(source, 0)
    for _ in range(size.layers):
        x = keras_hub.layers.TransformerEncoder(**shape)(x, padding_mask=source_mask)
    x = keras.layers.LayerNormalization()(x)
    for _ in range(size.layers):
        y = keras_hub.layers.TransformerDecoder(**shape)(y, x, encoder_padding_mask=source_mask)
    y = keras.layers.LayerNormalization()(y)
    logits = embedding(y, reverse=True)
    return _keras_step(keras.Model({"source": source, "target": target}, logits))


def _keras_step(model: keras.Model) -> Step:
    model.compile(
        optimizer=keras.optimizers.Adam(1e-4),
        loss=MaskedSparseCategoricalCrossentropy(label_smoothing=SMOOTHING),
        jit_compile=True,
    )

    def step(batch: Batch) -> float:
        source, target, labels = batch
        return float(model.train_on_batch({"source": source, "target": target}, labels))

    return step


class TorchSeq2Seq(torch.nn.Module):
    """The same model from torch's own layers."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(size.vocabulary_size, size.hidden_dim)
        self.transformer = torch.nn.Transformer(
            size.hidden_dim,
            size.num_heads,
            size.layers,
            size.layers,
            size.intermediate_dim,
            DROPOUT,
            batch_first=True,
            norm_first=True,
        )
        self.dropout = torch.nn.Dropout(DROPOUT)
        angles = torch.arange(size.length)[:, None] * 10000 ** (
            -torch.arange(0, size.hidden_dim, 2) / size.hidden_dim
        )
        self.positions = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.scale = size.hidden_dim**0.5

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        causal = torch.nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        x, y = (
            self.dropout(self.embedding(ids) * self.scale + self.positions)
            for ids in (source, target)
        )
        h = self.transformer(
            x,
            y,
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=source == 0,
            memory_key_padding_mask=source == 0,
        )
        return h @ self.embedding.weight.T


def torch_layers(size: Size) -> Step:
    model = TorchSeq2Seq(size)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    loss_function = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=SMOOTHING)

    def step(batch: Batch) -> float:
        source, target, labels = (torch.from_numpy(array).long() for array in batch)
        optimizer.zero_grad()
        loss = loss_function(model(source, target).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


CONTENDERS = {
    "keras-addnorm": ours,
    "keras-hub blocks": keras_hub_blocks,
    "torch eager": torch_layers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--rounds", type=int, default=12, help="timed steps of each contender")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    size = SIZES[arguments.size]

    rng = np.random.default_rng(0)
    shape = (3, size.batch_size, size.length)
    source, target, labels = rng.integers(3, size.vocabulary_size, shape).astype("int32")
    batch = (source, target, labels)
    steps = {name: functools.partial(make(size), batch) for name, make in CONTENDERS.items()}
    timings = measure.in_turn(steps, rounds=arguments.rounds)

    print(f"{arguments.size}: {size}, {arguments.rounds} rounds")
    print(measure.table(timings, reference=next(iter(CONTENDERS))))
    if arguments.json:
        measure.write_json(arguments.json, {"size": dataclasses.asdict(size), "figures": timings})


if __name__ == "__main__":
    main()
