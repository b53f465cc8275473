"""Claim 3: with a residual connection, a layer that is not needed gets out of the way."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result, normalised
from claims.page import Section, Verdict, number, table
from keras_addnorm.diagnostics import observe
from keras_addnorm.layers import TransformerEncoder

SCHEMES = ("plain", "no_residual", "no_norm", "pre_ln")
PATIENCE = 4  # times the steps of the other trainings
DECAY = 0.1  # of the weights, in a second round: something has to want F = 0


_ROUNDS: dict[str, dict[str, Any]] = {
    "before": {"color": "#777777", "marker": "o", "linestyle": "--"},
    "after training": {"color": "#0072B2", "marker": "s"},
    "after training with decay": {"color": "#E69F00", "marker": "^"},
}
FORMULA = r"""
Wanted is $y = x$. For $y = x + F(x)$ it is enough that $F(x) = 0$; for $y = F(x)$, F has to copy.
"""


def section(lab: Lab, images: Images) -> Section:
    """Train stacks to return their input."""
    depths = lab.scale.copy_layers
    found = {
        (scheme, layers): _measured(lab, scheme, layers) for scheme in SCHEMES for layers in depths
    }
    decayed = {layers: _measured(lab, "pre_ln", layers, DECAY) for layers in depths}
    path = images.path("copying")
    with picture(path, panels=2, width=9) as (errors, ratios):
        for scheme in SCHEMES:
            after = [found[scheme, layers]["error"] for layers in depths]
            errors.plot(depths, after, **style(scheme))
        errors.axhline(1, color="#777777", linewidth=1)
        errors.text(depths[-1], 1, "says nothing about x", ha="right", va="bottom")
        errors.set(
            xlabel="encoder layers",
            ylabel=f"‖y − x‖ / ‖x‖ after {PATIENCE * lab.scale.steps} steps",
            xticks=depths,
        )
        errors.set_ylim(0, None)
        errors.legend()
        for label, key, run in (
            ("before", "ratio_before", found["pre_ln", depths[-1]]),
            ("after training", "ratio_after", found["pre_ln", depths[-1]]),
            ("after training with decay", "ratio_after", decayed[depths[-1]]),
        ):
            ratios.plot(run[key], label=label, **_ROUNDS[label])
        ratios.set(
            xlabel=f"sublayer, in order ({depths[-1]} layers, pre_ln)", ylabel="‖F(x)‖ / ‖x‖"
        )
        ratios.set_ylim(0, None)
        ratios.legend()

    ends = depths[0], depths[-1]  # The picture has those between.
    runs = [
        *((f"`{s}`, depth {layers}", found[s, layers]) for s in SCHEMES for layers in ends),
        *((f"`pre_ln`, depth {layers}, decay", decayed[layers]) for layers in ends),
    ]
    rows = [
        [
            label,
            *(number(run[key]) for key in ("error_before", "error")),
            *(number(float(np.mean(run[key]))) for key in ("ratio_before", "ratio_after")),
        ]
        for label, run in runs
    ]
    one, deep = depths[0], depths[-1]
    error = {key: values["error"] for key, values in found.items()}
    before, after = (
        [float(np.mean(found["pre_ln", layers][key])) for layers in (one, deep)]
        for key in ("ratio_before", "ratio_after")
    )
    pushed = float(np.mean(decayed[deep]["ratio_after"]))
    return Section(
        title="Identity mapping: a layer that is not needed gets out of the way",
        claim="If the best a layer can do is nothing, a residual layer has only to drive F(x) to "
        "0; a layer without the skip has to learn the identity, and cannot.",
        formula=FORMULA,
        experiment="Encoder stacks read embedded demo sentences (a fixed random vector a piece, of "
        "mean 0 and variance 1, so that a norm at the end is no obstacle) and are trained to "
        f"return them unchanged, by mean squared error, for {PATIENCE * lab.scale.steps} steps: "
        "every layer is useless. Errors are those of held-out sentences; an output of zeros has "
        f"the error 1. Pre-LN once more with a weight decay of {DECAY}, which rewards branches of "
        "zero.",
        findings=[
            images.markdown(path, "Left: error against depth. Right: size of the branches"),
            table(["", "error before", "error after", "‖F‖/‖x‖ before", "‖F‖/‖x‖ after"], rows),
        ],
        verdict=Verdict.of(
            all(error["pre_ln", layers] < 0.3 for layers in depths),
            all(error[scheme, deep] > 0.8 for scheme in ("plain", "no_residual")),
            after[1] < before[1] / 4,
        ),
        because=f"With skip and norm, {deep} useless layers copy to within "
        f"{number(error['pre_ln', deep])}; without the skip, one layer can learn to copy "
        f"({number(error['plain', one])} `plain`, {number(error['no_residual', one])} "
        f"`no_residual`), but {deep} cannot ({number(error['plain', deep])} and "
        f"{number(error['no_residual', deep])}). That F goes to 0 holds for a single layer (from "
        f"{number(before[0])} of the stream to {number(after[0])}); {deep} layers need not be "
        f"silent, they learn to cancel each other (from {number(before[1])} to "
        f"{number(after[1])}, with weight decay to {number(pushed)}). And with the skip but no "
        f"norm, {deep} layers start so far off that they do not get there "
        f"({number(error['no_norm', deep])}).",
    )


def _measured(lab: Lab, scheme: str, layers: int, weight_decay: float = 0.0) -> Result:
    steps = PATIENCE * lab.scale.steps
    key = {"scheme": scheme, "layers": layers, "steps": steps, "weight_decay": weight_decay}
    return lab.measure("copying", key, lambda: learn_to_copy(lab, **key))


def learn_to_copy(
    lab: Lab, scheme: str, layers: int, steps: int, weight_decay: float = 0.0
) -> Result:
    """Train a stack to return its input; how far off it is, and how large its branches are."""
    scale = lab.scale
    keras.utils.set_random_seed(scale.seed)
    rng = np.random.default_rng(scale.seed)
    vectors = rng.standard_normal((scale.vocabulary_size, scale.hidden_dim)).astype("float32")
    vectors = normalised(vectors)
    encoder = TransformerEncoder(
        layers, num_heads=scale.num_heads, intermediate_dim=2 * scale.hidden_dim, scheme=scheme
    )
    inputs = keras.Input((None, scale.hidden_dim))
    model = keras.Model(inputs, encoder(inputs))
    model.compile(
        optimizer=keras.optimizers.AdamW(0.002, weight_decay=weight_decay),
        loss="mse",
        jit_compile=True,
    )

    held_out = vectors[lab.task.held_out.source[: 4 * scale.batch_size]]
    error_before, ratio_before = _look(model, held_out)
    batches = lab.task.train.batches(scale.batch_size)
    for step in range(steps):
        x = vectors[batches[step % len(batches)][0]["source"]]
        model.train_on_batch(x, x)
    error, ratio_after = _look(model, held_out)
    return {
        "error_before": error_before,
        "error": error,
        "ratio_before": ratio_before,
        "ratio_after": ratio_after,
    }


def _look(model: Any, x: np.ndarray) -> tuple[float, list[float]]:
    with observe(model) as observation:
        y = model(x)
    ratios = [_norm(record.branch) / _norm(record.residual) for record in observation]
    return _norm(ops.convert_to_numpy(y) - x) / _norm(x), ratios


def _norm(tensor: Any) -> float:
    return float(np.linalg.norm(np.asarray(ops.convert_to_numpy(tensor))))
