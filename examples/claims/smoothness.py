"""Claim 9: a norm makes the loss smoother."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from keras import optimizers

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Batch, Lab, Result, Training
from claims.page import Section, Verdict, number, table
from claims.seeds import apart, spread
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

SCHEMES = ("no_norm", "post_ln", "pre_ln")
DEPTH = 4
EVERY = 25  # updates from one look to the next
DISTANCES = (0.1, 0.2, 0.4, 0.8)  # in the space of weights
RATES = (0.05, 0.1, 0.2, 0.4)  # of plain gradient descent
FORMULA = r"""
$$
\beta = \max_d \frac{\lVert \nabla L(\theta) - \nabla L(\theta - d \, \hat g) \rVert}{d},
\qquad \hat g = \frac{\nabla L(\theta)}{\lVert \nabla L(\theta) \rVert}
$$

This is the "effective" β-smoothness of Santurkar et al. (2018, arXiv:1805.11604): how much the
gradient turns or grows while one walks against it, over the distance walked.
"""


def section(lab: Lab, images: Images) -> Section:
    """Walk along the gradient, every few updates of a training, with and without norms."""
    found = {
        scheme: [
            lab.measure(
                "smoothness along a training",
                {"scheme": scheme, "seed": seed, "distances": DISTANCES, "rates": RATES},
                lambda scheme=scheme, seed=seed: walk_along(
                    lab, Training(scheme, DEPTH, seed=seed)
                ),
            )
            for seed in lab.scale.seeds
        ]
        for scheme in SCHEMES
    }
    updates = found[SCHEMES[0]][0]["updates"]
    path = images.path("smoothness")
    with picture(path, panels=2, width=9.5) as (smooth_axis, loss_axis):
        for scheme in SCHEMES:
            curves = np.array([[max(each) for each in one["turns"]] for one in found[scheme]])
            smooth_axis.semilogy(updates, curves.mean(0), **style(scheme))
            color = style(scheme)["color"]
            smooth_axis.fill_between(updates, curves.min(0), curves.max(0), alpha=0.2, color=color)
            walks = np.array([one["losses_by_distance"] for one in found[scheme]])
            here = np.array([one["losses"] for one in found[scheme]])
            change = np.mean(walks - here[..., None], axis=(0, 1))
            loss_axis.plot((0.0, *DISTANCES), (0.0, *change), **style(scheme))
        smooth_axis.set(xlabel="update", ylabel="effective β-smoothness, seeds' mean and range")
        loss_axis.set(xlabel="distance walked against the gradient", ylabel="change of the loss")
        loss_axis.axhline(0, color="#777777", linewidth=1)
        smooth_axis.legend()

    def by_seed(scheme: str, measure: str) -> list[float]:
        return [_summary(one)[measure] for one in found[scheme]]

    beta, by_rate = ({s: by_seed(s, name) for s in SCHEMES} for name in ("beta", "range_by_rate"))
    rows = [
        [f"`{s}`", *(spread(by_seed(s, name)) for name in _summary(found[s][0]))] for s in SCHEMES
    ]
    header = [
        "",
        "‖∇L‖",
        "β, median",
        "β, largest",
        f"range of the loss, distances to {DISTANCES[-1]}",
        f"range of the loss, rates to {RATES[-1]}",
        "loss at the end",
    ]
    normed = [name for name in SCHEMES if name != "no_norm"]
    smoother = [name for name in normed if apart(beta[name], beta["no_norm"])]
    flatter = [name for name in normed if apart(by_rate[name], by_rate["no_norm"])]
    means = {name: float(np.mean(values)) for name, values in beta.items()}
    return Section(
        title="The norm makes the loss smoother",
        claim="With a norm the loss and its gradient change less along a step, so that a step may "
        "be larger.",
        formula=FORMULA,
        experiment=f"Depth {DEPTH}, {len(lab.scale.seeds)} seeds, trained as in claim 1. Every "
        f"{EVERY} updates: walk from the weights against the gradient of a batch, and look at the "
        f"loss and the gradient of the same batch at the distances {_listed(DISTANCES)} and, as in "
        f"the paper, at steps of gradient descent with the rates {_listed(RATES)}. A range is that "
        "of the losses seen on the walk, the start included. Each cell: the mean of the seeds, and "
        "the smallest and largest; of one seed, the median over the training where no other word "
        "stands.",
        findings=[
            images.markdown(path, "Left: effective beta-smoothness. Right: loss on the walk"),
            table(header, rows),
        ],
        verdict=Verdict.of(*(name in smoother for name in normed), bool(flatter)),
        because="The median of β is "
        + ", ".join(f"{number(means[name])} with `{name}`" for name in SCHEMES)
        + f". In all seeds below that of `no_norm`: {_names(smoother)}. With steps of equal rate, "
        f"the loss ranges less than with `no_norm`, in all seeds: {_names(flatter)}.",
    )


def walk_along(lab: Lab, training: Training) -> Result:
    """Train, and look around every few updates."""
    model = lab.ready(training)
    landscape = _landscape(training.config(lab.scale))
    batches, rates = lab.batches(training), training.rates(lab.scale.steps)
    found: Result = {"updates": [], "losses": [], "gradients": [], "turns": []}
    found |= {"losses_by_distance": [], "losses_by_rate": []}
    for start in range(0, len(rates), EVERY):
        end = min(start + EVERY, len(rates))
        weights = [np.asarray(v) for v in model.model.trainable_variables]
        here = landscape.walk(weights, batches[start % len(batches)])
        for name, value in {"updates": start, **here}.items():
            found[name].append(value)
        chunk = [batches[step % len(batches)] for step in range(start, end)]
        found["last_losses"] = model.train(chunk, rates[start:end])["losses"]
    return found


class Landscape:
    """The loss of a model and its gradient at any weights, by a step of gradient descent.

    A step of the rate 1 takes the gradient away from the weights, on every backend and compiled.
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        self.model = Seq2SeqTransformer(config)
        loss = MaskedSparseCategoricalCrossentropy()
        self.model.compile(optimizers.SGD(1.0), loss, jit_compile=True)

    def at(self, weights: np.ndarray, batch: Batch) -> tuple[float, np.ndarray]:
        """The loss and its gradient, `(P,)`, at weights `(P,)`."""
        variables, start = self.model.trainable_variables, 0
        for variable in variables:
            size = int(np.prod(variable.shape))
            variable.assign(weights[start : start + size].reshape(variable.shape))
            start += size
        loss = float(self.model.train_on_batch(*batch))
        return loss if np.isfinite(loss) else np.inf, weights - _flat(variables)

    def walk(self, weights: list[np.ndarray], batch: Batch) -> Result:
        """Losses and changes of the gradient on the way against it."""
        start = _flat(weights)
        loss, gradient = self.at(start, batch)
        size = float(np.linalg.norm(gradient))
        turns, by_distance = [], []
        for distance in DISTANCES:
            there, turned = self.at(start - distance / size * gradient, batch)
            by_distance.append(there)
            turns.append(float(np.linalg.norm(turned - gradient)) / distance)
        by_rate = [self.at(start - rate * gradient, batch)[0] for rate in RATES]
        return {
            "losses": loss,
            "gradients": size,
            "turns": turns,
            "losses_by_distance": by_distance,
            "losses_by_rate": by_rate,
        }


@functools.lru_cache(maxsize=1)  # compiled once for all seeds
def _landscape(config: Seq2SeqConfig) -> Landscape:
    return Landscape(config)


def _summary(one: Result) -> dict[str, float]:
    """The numbers of one seed."""
    beta = [max(each) for each in one["turns"]]
    here = np.array(one["losses"])[:, None]
    ranges = {
        name: float(np.median(np.ptp(np.hstack([here, np.array(one[name])]), axis=1)))
        for name in ("losses_by_distance", "losses_by_rate")
    }
    return {
        "gradient": float(np.median(one["gradients"])),
        "beta": float(np.median(beta)),
        "largest_beta": max(beta),
        "range_by_distance": ranges["losses_by_distance"],
        "range_by_rate": ranges["losses_by_rate"],
        "loss": float(np.mean(one["last_losses"])),
    }


def _flat(arrays: list[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(each, "float32").ravel() for each in arrays])


def _listed(values: tuple[float, ...]) -> str:
    *first, last = (f"{value:g}" for value in values)
    return f"{', '.join(first)} and {last}"


def _names(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names) or "none"
