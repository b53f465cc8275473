"""Part of claim 13: whether stacks of a hundred layers learn a small task at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result, Training, final_loss, normalised, rounded
from claims.looped import LoopedEncoder
from claims.page import number, table
from claims.seeds import spread
from keras_addnorm.layers import TransformerEncoder

WIDTH, WORDS, BATCH, LENGTH = 16, 700, 8, 12
LAST = 20  # updates, whose mean loss is the final one
ZEROS = 1.0  # the loss of a model that always says 0
EXPERIMENT = (
    f"Then stacks of width {WIDTH} learn a task of one line: each word is a fixed random vector of "
    "mean 0 and variance 1, and the output is to be that vector turned by a fixed rotation, by "
    f"mean squared error; an output of zeros has the loss {ZEROS:.0f}. {BATCH} sentences of "
    f"{LENGTH} random words an update, the rate as in claim 1: warm-up {Training.warmup_steps}, "
    f"peak {Training.learning_rate}."
)


def trainings(lab: Lab, schemes: Sequence[str]) -> dict[str, list[Result]]:
    """The losses of each update, by scheme a result a seed; cut off at the first that is none."""
    depth, seeds = lab.scale.hundreds[0], lab.scale.seeds
    found = {}
    for scheme in schemes:
        stack = Stack(scheme, depth, lab.scale.steps)
        found[scheme] = [
            lab.measure(
                "training of a hundred layers",
                {"scheme": scheme, "depth": depth, "seed": seed},
                lambda stack=stack, seed=seed: stack.train(seed),
            )
            for seed in seeds
        ]
    return found


def findings(found: dict[str, list[Result]], depth: int, updates: int, images: Images) -> list[str]:
    """A picture of the losses, and a table of the first and the last ones."""
    path = images.path("hundreds_trained")
    with picture(path) as axis:
        for scheme, results in found.items():
            curves = [result["losses"] for result in results]
            whole = [curve for curve in curves if None not in curve]
            if whole:
                axis.plot(
                    1 + np.arange(updates),
                    np.mean(whole, axis=0),
                    **{**style(scheme), "markevery": max(1, updates // 8)},
                )
        axis.axhline(ZEROS, color="#777777", linewidth=1)
        axis.text(updates, ZEROS, "an output of zeros", ha="right", va="bottom")
        axis.set(xlabel="updates", ylabel=f"loss, encoder of {depth} layers")
        axis.set_ylim(0, None)
        axis.legend()
    rows = [
        [
            f"`{scheme}`",
            said([final_loss({"losses": each["losses"][:1]}) for each in results]),
            said([final_loss(each, LAST) for each in results]),
        ]
        for scheme, results in found.items()
    ]
    return [
        images.markdown(path, f"Losses of {depth} layers that learn to turn vectors"),
        table([f"loss, {depth} layers", "first update", f"last {LAST} of {updates}"], rows),
    ]


def said(losses: Sequence[float]) -> str:
    """A cell: the mean of the seeds and how far they lie apart."""
    return spread(losses) if np.isfinite(losses).all() else number(math.inf)


class Stack:
    """An encoder of one scheme and depth with its compiled training step; made when needed."""

    def __init__(self, scheme: str, depth: int, updates: int) -> None:
        self.scheme, self.depth, self.updates = scheme, depth, updates
        self._model: Any = None

    def train(self, seed: int) -> Result:
        """Train from the first weights that the seed draws, on what the seed draws."""
        keras.utils.set_random_seed(seed)
        encoder = TransformerEncoder(
            self.depth, num_heads=2, intermediate_dim=2 * WIDTH, scheme=self.scheme
        )
        encoder.build((None, None, WIDTH))
        if self._model is None:
            self._model = self._compiled(encoder)
        self._model.layers[-1].take(encoder)
        for variable in self._model.optimizer.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype))
        words, turned, rng = self.task(seed)
        losses: list[float | None] = []
        for rate in Training(self.scheme, self.depth).rates(self.updates):
            self._model.optimizer.learning_rate.assign(rate)
            ids = rng.integers(0, WORDS, (BATCH, LENGTH))
            losses.append(rounded(self._model.train_on_batch(words[ids], turned[ids])))
            if losses[-1] is None:
                break
        return {"losses": losses}

    @staticmethod
    def task(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
        """The words' vectors, what is to become of them, and the rest of the chance."""
        rng = np.random.default_rng(seed)
        words = normalised(rng.standard_normal((WORDS, WIDTH))).astype("float32")
        rotation, _ = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))
        return words, normalised(words @ rotation).astype("float32"), rng

    def _compiled(self, encoder: TransformerEncoder) -> keras.Model:
        inputs = keras.Input((LENGTH, WIDTH))
        model = keras.Model(inputs, LoopedEncoder(encoder)(inputs))
        model.compile(
            optimizer=keras.optimizers.Adam(0.001, beta_2=0.98, epsilon=1e-9),
            loss="mse",
            # XLA takes no gradient of Keras' `scan` on TensorFlow, whose lists have no fixed size.
            jit_compile=keras.backend.backend() != "tensorflow",
        )
        return model
