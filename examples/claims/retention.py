"""Claim 11: with the skip, deep layers still have the embedding, and training is faster."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from keras import ops

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result, TrainableModel, Training
from claims.page import Section, Verdict, number, table
from claims.seeds import apart, spread
from keras_addnorm.diagnostics import observe

WITHOUT, WITH = ("plain", "no_residual"), ("post_ln", "pre_ln")
SCHEMES = (*WITHOUT, *WITH)
LOSSES = (4.5, 4.0, 3.0, 2.0)
FORMULA = r"""
How much is left of the embedding $x_0$ in the stream $x_\ell$: the share of its variance that the
best linear map finds in $x_\ell$, on sentences that the map was not fitted to,

$$
R^2_\ell = 1 - \frac{\sum \lVert x_0 - \hat{A} x_\ell - \hat{b} \rVert^2}
{\sum \lVert x_0 - \bar{x}_0 \rVert^2}
$$

1: all of it can be read there. 0: nothing more than its mean.
"""


def section(lab: Lab, images: Images) -> Section:
    """Probe the encoder at each sublayer, before and after training; and count updates."""
    depth = lab.scale.depths[1]
    found = {
        scheme: [
            lab.measure(
                "embedding left by depth",
                dataclasses.asdict(Training(scheme, depth, seed=seed)),
                lambda scheme=scheme, seed=seed: _probe(lab, Training(scheme, depth, seed=seed)),
            )
            for seed in lab.scale.seeds
        ]
        for scheme in SCHEMES
    }
    path = images.path("retention")
    with picture(path, panels=2, width=9.5) as (left_axis, loss_axis):
        for scheme in SCHEMES:
            for moment, shown in (("before", ":"), ("after", "-")):
                values = np.mean([one[f"left_{moment}"] for one in found[scheme]], axis=0)
                line = {**style(scheme), "linestyle": shown, "label": f"{scheme}, {moment}"}
                left_axis.plot(np.maximum(values, -0.05), **line)
            losses = np.mean([_smooth(one["losses"]) for one in found[scheme]], axis=0)
            loss_axis.plot(losses, **{**style(scheme), "markevery": 40})
        left_axis.set(
            xlabel=f"encoder sublayer, in order ({depth // 2} layers)",
            ylabel="R² of the embedding",
        )
        left_axis.legend(fontsize=7, ncols=2)
        loss_axis.set(xlabel="update", ylabel="training loss, mean of 20 updates")
        loss_axis.legend()

    def by_seed(scheme: str, moment: str, place: int) -> list[float]:
        return [one[f"left_{moment}"][place] for one in found[scheme]]

    rows = [
        [
            f"`{scheme}`",
            *(spread(by_seed(scheme, m, place)) for m in ("before", "after") for place in (0, -1)),
        ]
        for scheme in SCHEMES
    ]
    header = [
        "R²",
        "first sublayer, before",
        "last, before",
        "first, trained",
        "last, trained",
    ]
    updates = {
        (scheme, loss): [updates_to(one["losses"], loss) for one in found[scheme]]
        for scheme in SCHEMES
        for loss in LOSSES
    }
    counts = [
        [f"`{scheme}`", *(_counted(updates[scheme, loss]) for loss in LOSSES)] for scheme in SCHEMES
    ]
    after = {scheme: by_seed(scheme, "after", -1) for scheme in SCHEMES}
    mean = {scheme: float(np.mean(values)) for scheme, values in after.items()}
    first_loss = LOSSES[0]
    return Section(
        title="The skip keeps features, and training converges faster",
        claim="What earlier layers found stays accessible to deeper ones, and a layer that only "
        "refines learns sooner.",
        formula=FORMULA,
        experiment=f"Depth {depth}, trained as in claim 1, {len(lab.scale.seeds)} seeds. The map "
        "is fitted to the positions of every other held-out sentence and judged on the rest. "
        "Updates are counted until the mean of 20 training losses is below a value. Cells: the "
        "mean of the seeds, and the smallest and largest.",
        findings=[
            images.markdown(path, "Left: what is left of the embedding. Right: training losses"),
            table(header, rows),
            table(["updates to a loss of", *(f"{loss}" for loss in LOSSES)], counts),
        ],
        verdict=Verdict.of(
            *(apart(after[a], after[b]) for a in WITHOUT for b in WITH),
            *(apart(updates[b, first_loss], updates[a, first_loss]) for a in WITHOUT for b in WITH),
        ),
        because="Of the embedding, what is left behind the last sublayer of the trained encoder is "
        + ", ".join(f"{number(mean[scheme])} with `{scheme}`" for scheme in SCHEMES)
        + f". The updates to a loss of {first_loss} are "
        + ", ".join(
            f"{_counted(updates[scheme, first_loss])} with `{scheme}`" for scheme in SCHEMES
        )
        + ".",
    )


def left_of(wanted: np.ndarray, seen: np.ndarray, group: np.ndarray) -> float:
    """R² of the best linear map from `seen` to `wanted`, fitted to even groups, judged on odd ones.

    Args:
        wanted: `(N, D)`.
        seen: `(N, E)`.
        group: The sentence of each row, `(N,)`.

    Returns:
        1 where all can be read; 0 where nothing can, and below it where guesses are worse than the
        mean.
    """
    fitted, judged = group % 2 == 0, group % 2 == 1
    scale = np.maximum(seen[fitted].std(axis=0), 1e-30)
    columns = np.c_[(seen - seen[fitted].mean(axis=0)) / scale, np.ones(len(seen))]
    ridge = 1e-3 * fitted.sum() * np.eye(columns.shape[1])
    gram = columns[fitted].T @ columns[fitted] + ridge
    solution = np.linalg.solve(gram, columns[fitted].T @ wanted[fitted])
    missed = np.sum((wanted[judged] - columns[judged] @ solution) ** 2)
    return float(1 - missed / np.sum((wanted[judged] - wanted[judged].mean(axis=0)) ** 2))


def updates_to(losses: list[float | None], wanted: float, over: int = 20) -> float:
    """How many updates it takes until the mean of the last `over` losses is below `wanted`."""
    means = _smooth(losses, over)
    below = np.flatnonzero(means < wanted)
    return float(below[0] + over) if len(below) else math.inf


def _probe(lab: Lab, training: Training) -> Result:
    before = _left_by_sublayer(lab, lab.ready(training))
    model = lab.ready(training)
    curve = model.train(lab.batches(training), training.rates(lab.scale.steps))
    return {**curve, "left_before": before, "left_after": _left_by_sublayer(lab, model)}


def _left_by_sublayer(lab: Lab, model: TrainableModel) -> list[float]:
    """What is left of the embedding behind each sublayer of the encoder."""
    source = lab.task.held_out.source
    real = source != 0
    group = np.nonzero(real)[0]
    with observe(model.model.encoder) as observation:
        model.model.encoder(
            model.model.encoder_embedding(source), padding_mask=real, training=False
        )
    tensors = [record.merged for record in observation]
    first, *behind = (
        np.asarray(ops.convert_to_numpy(tensor), "float64")[real]
        for tensor in (observation[next(iter(observation)).name].residual, *tensors)
    )
    return [left_of(first, seen, group) for seen in behind]


def _smooth(losses: list[float | None], over: int = 20) -> np.ndarray:
    values = np.array([math.inf if loss is None else loss for loss in losses])
    over = min(over, len(values))
    return np.convolve(values, np.ones(over) / over, "valid")


def _counted(values: list[float]) -> str:
    reached = [value for value in values if math.isfinite(value)]
    if not reached:
        return "not reached"
    counted = " to ".join(f"{value:.0f}" for value in sorted({min(reached), max(reached)}))
    missing = len(values) - len(reached)
    return counted + (f", not in {missing} of {len(values)}" if missing else "")
