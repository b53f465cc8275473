"""Heads that match brackets: a small encoder, a score for each head, and a linear probe.

python examples/brackets.py            # some minutes on one core; a table, a row a seed
python examples/brackets.py --smoke    # only tries that it runs

Rows of balanced brackets of two kinds, in which all closing ones look alike: `( [ x ( x x`. Of each
x the model says which kind it closes. For that it has to find the bracket that opened it.

- *Does a head look there?* Its score is the mean weight of an x on its opening bracket. `inspect`
  has such scores for simpler rules (previous, next, own, first and last token), and its printed
  report is shown at the end.
- *Does the stream know how deep it is nested?* A linear probe: least squares from the stream behind
  a layer to the number of open brackets, on rows that it was not fitted to. A probe that finds it
  says that it can be read there, not that the model reads it; so a model that was never trained is
  probed, too.

Three seeds: 90 to 94 % of the kinds are right. In each a head of the second layer has found it,
with a mean weight of 0.48 to 0.57 on the opening bracket; before training no head had more than
0.16. The probe finds 0.47 to 0.55 of the depth's variance behind the last layer, and 0.52 to 0.61
in a model that was never trained: what it reads is there without training.
"""

from __future__ import annotations

import argparse

import keras
import numpy as np

from keras_addnorm.diagnostics import inspect
from keras_addnorm.layers import PositionalEmbedding, TransformerEncoder

LENGTH, KINDS, CLOSING = 12, 2, 2  # the ids: 0 is (, 1 is [, 2 closes either
LAYERS, HEADS, WIDTH = 2, 4, 32


def brackets(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Balanced rows by chance.

    Returns:
        The ids `(count, LENGTH)`; for each closing bracket the place of the one that it closes, and
        -1 for the others; and how many brackets are open behind each.
    """
    rng = np.random.default_rng(seed)
    ids, opened_at = np.zeros((2, count, LENGTH), int)
    for row in range(count):
        stack: list[int] = []
        for place in range(LENGTH):
            must_close, must_open = len(stack) == LENGTH - place, not stack
            if must_close or (not must_open and rng.random() < 0.5):
                ids[row, place], opened_at[row, place] = CLOSING, stack.pop()
            else:
                ids[row, place], opened_at[row, place] = rng.integers(KINDS), -1
                stack.append(place)
    return ids, opened_at, np.cumsum(np.where(ids == CLOSING, -1, 1), axis=1)


def kinds(ids: np.ndarray, opened_at: np.ndarray) -> np.ndarray:
    """The label of each closing bracket, the kind that it closes; -1 at the opening ones."""
    return np.where(opened_at < 0, -1, np.take_along_axis(ids, np.maximum(opened_at, 0), axis=1))


def new_model() -> tuple[keras.Model, PositionalEmbedding, TransformerEncoder]:
    """The model, and the layers that are looked into."""
    embedding = PositionalEmbedding(KINDS + 1, WIDTH, mask_zero=False)
    encoder = TransformerEncoder(LAYERS, num_heads=HEADS, intermediate_dim=64, scheme="pre_ln")
    ids = keras.Input((LENGTH,), dtype="int32")
    model = keras.Model(ids, keras.layers.Dense(KINDS)(encoder(embedding(ids))))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    model.compile(keras.optimizers.Adam(0.003, beta_2=0.98), loss)
    return model, embedding, encoder


def matching_scores(weights: np.ndarray, opened_at: np.ndarray) -> np.ndarray:
    """The mean weight of each head on the bracket that a closing one closes.

    Args:
        weights: `(B, H, T, T)`.
        opened_at: `(B, T)`, -1 where nothing is closed.

    Returns:
        `(H,)`.
    """
    row, place = np.nonzero(opened_at >= 0)
    return weights[row, :, place, opened_at[row, place]].mean(axis=0)


def probe(stream: np.ndarray, wanted: np.ndarray) -> float:
    """The share of the variance of `(B, T)` that a linear map of `(B, T, D)` finds, on new rows."""
    half = len(wanted) // 2
    seen = np.concatenate([stream, np.ones((*stream.shape[:2], 1))], axis=-1)
    rows, numbers = ((each[:half], each[half:]) for each in (seen, wanted))
    flat = rows[0].reshape(-1, seen.shape[-1])
    weights = np.linalg.lstsq(flat, numbers[0].ravel(), rcond=None)[0]
    return float(1 - np.var(numbers[1] - rows[1] @ weights) / np.var(numbers[1]))


def look(
    embedding: PositionalEmbedding, encoder: TransformerEncoder, seed: int
) -> tuple[np.ndarray, list[float]]:
    """Scores of all heads `(LAYERS, HEADS)`; the probe in front of and behind each layer."""
    ids, opened_at, depth = brackets(200, 1000 + seed)
    stream = embedding(ids)
    scores, found = [], [probe(keras.ops.convert_to_numpy(stream), depth)]
    for layer in encoder.layers:
        stream, weights = layer(stream, return_attention_scores=True)
        scores.append(matching_scores(keras.ops.convert_to_numpy(weights), opened_at))
        found.append(probe(keras.ops.convert_to_numpy(stream), depth))
    return np.array(scores), found


def main(smoke: bool = False) -> dict[int, tuple[float, float, list[float]]]:
    """Train, look and print, a row a seed."""
    seeds, rows, epochs = ((1,), 128, 1) if smoke else ((1, 2, 3), 4096, 10)
    found = {}
    places = ["embedding", *(f"layer {n + 1}" for n in range(LAYERS))]
    print("| seed | right kinds | most on the bracket it closes | before training |", end="")
    print("".join(f" nesting, {place} |" for place in places), "before training |")
    print("|---|---:|---|---:|" + "---:|" * len(places) + "---:|")
    for seed in seeds:
        keras.utils.set_random_seed(seed)
        model, embedding, encoder = new_model()
        fresh_scores, fresh_probe = look(embedding, encoder, seed)
        ids, opened_at, _ = brackets(rows, seed)
        model.fit(ids, kinds(ids, opened_at), batch_size=64, epochs=epochs, verbose=0)
        others, their_places, _ = brackets(500, 2000 + seed)
        wanted = kinds(others, their_places)
        guessed = np.argmax(model.predict(others, verbose=0), axis=-1)
        right = float(np.mean(guessed[wanted >= 0] == wanted[wanted >= 0]))
        scores, nesting = look(embedding, encoder, seed)
        layer, head = np.unravel_index(np.argmax(scores), scores.shape)
        found[seed] = (right, float(scores.max()), nesting)
        print(
            f"| {seed} | {right:.1%} | {scores.max():.2f}, head {head + 1} of layer {layer + 1} | "
            f"{fresh_scores.max():.2f} |" + "".join(f" {each:.2f} |" for each in nesting),
            f"{fresh_probe[-1]:.2f} |",
            flush=True,
        )
    print(f"\n{inspect(model, (others, wanted))}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    main(**vars(parser.parse_args()))
