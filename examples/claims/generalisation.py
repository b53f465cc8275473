"""Claim 12: a norm regularises, and the model does better on unseen data."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result, Sentences, Training, branch_ratios
from claims.page import Section, Verdict, number, table
from claims.seeds import apart, spread

DEPTH, PAIRS, PASSES, EVERY = 2, 256, 25, 16
WANTED = (3.0, 2.0, 1.5, 1.0)  # training losses
SLOWLY = "none, rate / 4"
LARGE, LARGEST = "none, He", "none, std 1"  # larger branches
TRAININGS = {
    "none": Training("pre_ln", DEPTH, norm="none"),
    SLOWLY: Training("pre_ln", DEPTH, norm="none", learning_rate=0.0005),
    LARGE: Training("pre_ln", DEPTH, norm="none", initialization="he"),
    LARGEST: Training("pre_ln", DEPTH, norm="none", initialization="std_1"),
    "layer_norm": Training("pre_ln", DEPTH, norm="layer_norm"),
    "rms_norm": Training("pre_ln", DEPTH, norm="rms_norm"),
}
WITHOUT, WITH = ("none", SLOWLY), ("layer_norm", "rms_norm")
STYLES = {
    "none": "no_norm",
    SLOWLY: "plain",
    LARGE: "no_residual",
    "layer_norm": "layer_norm",
    "rms_norm": "deep_norm",
}
FORMULA = r"""
A lower held-out loss alone may only mean that a model has trained faster. So held-out losses
$L_\mathrm{held}(t)$ are compared at equal *training* losses: where $L_\mathrm{train}(t)$ first
falls to a value, in a straight line between two looks. Branches that swamp the stream,
$\lVert F \rVert \gg \lVert x \rVert$ (claim 4), are said to generalise worse: the same model
without a norm once more with larger first kernels.
"""


def section(lab: Lab, images: Images) -> Section:
    """Train on few sentences for many passes; both losses along the way."""
    found = {
        norm: [
            lab.measure(
                "both losses along a training",
                dataclasses.asdict(one) | {"pairs": PAIRS, "passes": PASSES},
                lambda one=one: both_losses(lab, one),
            )
            for one in (dataclasses.replace(training, seed=seed) for seed in lab.scale.seeds)
        ]
        for norm, training in TRAININGS.items()
    }
    path = images.path("generalisation")
    with picture(path) as axis:
        for norm in STYLES:
            look = {**style(STYLES[norm]), "label": norm, "markevery": 4}
            for index, one in enumerate(found[norm]):
                axis.plot(one["training"], one["held_out"], **look)
                look |= {"label": None, "alpha": 0.6} if not index else {}
        axis.set(
            xlabel="training loss, falling to the right",
            ylabel="held-out loss at that moment",
            ylim=(1.5, 6),
            xscale="log",
            xlim=(6, 0.4),
            xticks=(5, 3, 2, 1, 0.5),
            xticklabels=(5, 3, 2, 1, 0.5),
        )
        axis.minorticks_off()
        axis.legend()
    held_out = {
        (norm, wanted): [at_training_loss(one, wanted) for one in found[norm]]
        for norm in TRAININGS
        for wanted in WANTED
    }
    best = {norm: [min(one["held_out"]) for one in found[norm]] for norm in TRAININGS}
    branches = {
        norm: float(np.median(branch_ratios(lab.profile(training, trained=False))))
        for norm, training in TRAININGS.items()
    }
    rows = [
        [
            f"`{n}`",
            number(branches[n]),
            *(_cell(held_out[n, wanted]) for wanted in WANTED),
            spread(best[n]),
        ]
        for n in TRAININGS
    ]

    def is_below(one: str, other: str) -> bool:
        """In every seed, at every training loss that the trainings of both reach."""
        both = [
            (held_out[one, wanted], held_out[other, wanted])
            for wanted in WANTED
            if np.isfinite([*held_out[one, wanted], *held_out[other, wanted]]).all()
        ]
        return bool(both) and all(apart(lower, upper) for lower, upper in both)

    pairs = [(norm, without) for norm in WITH for without in WITHOUT]
    better = [pair for pair in pairs if is_below(*pair)]
    last = WANTED[-1]
    worse = is_below("none", LARGE)
    common = [w for w in WANTED if np.isfinite(held_out[LARGE, w]).all()]
    reached = [n for n in TRAININGS if np.isfinite(held_out[n, last]).all()]
    return Section(
        title="The norm regularises: better on unseen data",
        claim="A norm acts as a regulariser, so that the model does better on sentences that it "
        "has not seen.",
        formula=FORMULA,
        experiment=f"Pre-LN of depth {DEPTH} with LayerNorm, RMSNorm and no norm, "
        "without one also at a quarter of the rate and with kernels as in claim 4, "
        f"{len(lab.scale.seeds)} seeds. "
        f"{_pairs(lab)} sentence pairs, {PASSES} times, so that there is "
        "something to overfit; rates as in claim 1. Both losses are those of inference, over all "
        "training sentences and 200 held-out ones. Cells: the mean of the seeds, and the smallest "
        "and largest; ‖F‖/‖x‖ is the median of the sublayers before training.",
        findings=[
            images.markdown(path, "Held-out loss against training loss, one line a seed"),
            table(
                [
                    "held-out loss at a training loss of",
                    "‖F‖/‖x‖",
                    *(f"{wanted}" for wanted in WANTED),
                    "the lowest of the training",
                ],
                rows,
            ),
        ],
        verdict=Verdict.of(*(pair in better for pair in pairs), worse),
        because="At each training loss of the table that both reach, the held-out loss is lower in "
        f"every seed with {_pairs_of(better)}. At {last:g} it is "
        + ", ".join(f"{number(float(np.mean(held_out[n, last])))} with `{n}`" for n in reached)
        + ". The lowest held-out losses of whole trainings are "
        + ", ".join(f"{number(float(np.mean(best[n])))} with `{n}`" for n in TRAININGS)
        + ". *Branches larger than the stream* "
        + ("generalise worse" if worse else "do not generalise worse in every seed")
        + f": with {number(branches[LARGE])} times the stream instead of "
        f"{number(branches['none'])}, "
        + ", ".join(
            f"{number(float(np.mean(held_out[LARGE, w])))} instead of "
            f"{number(float(np.mean(held_out['none', w])))} at a training loss of {w:g}"
            for w in common
        )
        + f"; with {number(branches[LARGEST])} times, nothing is learned that could generalise.",
    )


def at_training_loss(one: Result, wanted: float) -> float:
    """The held-out loss where the training loss first falls to `wanted`; infinite if never."""
    training, held_out = np.array(one["training"]), np.array(one["held_out"])
    below = np.flatnonzero(training <= wanted)
    if not len(below):
        return math.inf
    after = below[0]
    if after == 0:
        return float(held_out[0])
    share = (training[after - 1] - wanted) / (training[after - 1] - training[after])
    return float(held_out[after - 1] + share * (held_out[after] - held_out[after - 1]))


def both_losses(lab: Lab, training: Training) -> Result:
    """Losses of seen and unseen sentences, every few updates."""
    model, seed = lab.ready(training), training.seed or lab.scale.seed
    few = lab.task.train
    few = Sentences(*(each[:PAIRS] for each in (few.source, few.target, few.labels)))
    size = lab.scale.batch_size
    batches = [
        batch for turn in range(PASSES) for batch in few.shuffled(100 * seed + turn).batches(size)
    ]
    batches = batches if lab.scale.steps > EVERY else batches[: 2 * EVERY]
    rates = training.rates(len(batches))
    seen, unseen = few.batches(size), lab.task.held_out.batches(size)
    found: Result = {"updates": [], "training": [], "held_out": [], "seconds": 0.0}
    for start in range(0, len(batches) + 1, EVERY):
        found["updates"].append(start)
        for name, judged in (("training", seen), ("held_out", unseen)):
            losses = [float(model.model.test_on_batch(*batch)) for batch in judged]
            found[name].append(float(np.mean(losses)))
        end = min(start + EVERY, len(batches))
        if start < end:
            found["seconds"] += model.train(batches[start:end], rates[start:end])["seconds"]
    return found


def _pairs(lab: Lab) -> int:
    return min(PAIRS, lab.scale.pairs)


def _cell(values: list[float]) -> str:
    return spread(values) if np.isfinite(values).all() else "not reached by all"


def _pairs_of(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"`{norm}` than with `{without}`" for norm, without in pairs) or "none of them"
