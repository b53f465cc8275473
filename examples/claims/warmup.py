"""Claim 7: Post-LN needs a warm-up, Pre-LN does not."""

from __future__ import annotations

import itertools
from typing import Any

from claims.drawing import picture
from claims.images import Images
from claims.lab import Lab, Training, final_loss
from claims.page import Section, Verdict, number, table

SCHEMES = ("post_ln", "pre_ln", "deep_norm", "rezero")
RATES = (0.001, 0.003, 0.01)
WARMUPS = (0, 50, 150)
FORMULA = r"""
$$
\mathrm{rate}(t) = \mathrm{peak} \cdot \min\left(1, \frac{t}{\mathrm{warmup}}\right)
$$
"""


def section(lab: Lab, images: Images) -> Section:
    """Train at each learning rate with each warm-up."""
    depth, floor = lab.scale.middle_depth, lab.floor()
    loss = {
        (scheme, rate, warmup): final_loss(lab.train(Training(scheme, depth, rate, warmup)))
        for scheme, rate, warmup in itertools.product(SCHEMES, RATES, WARMUPS)
    }
    path = images.path("warmup")
    with picture(path, panels=len(SCHEMES), width=9.5, height=3.2) as axes:
        for axis, scheme in zip(axes, SCHEMES, strict=True):
            _draw(axis, scheme, loss, floor)
        axes[0].set_ylabel("peak learning rate")

    best = {name: min(v for (scheme, *_), v in loss.items() if scheme == name) for name in SCHEMES}
    gain = {
        name: [loss[name, rate, 0] - loss[name, rate, WARMUPS[-1]] for rate in RATES]
        for name in SCHEMES
    }
    middle = RATES[1]
    needs = max(gain["post_ln"]) > 0.5 and min(loss["post_ln", rate, 0] for rate in RATES) > (
        best["post_ln"] + 0.3
    )
    free = all(loss["pre_ln", rate, 0] < floor - 1 for rate in RATES) and max(gain["pre_ln"]) < 0.5
    rows = [
        [f"`{name}`, rate {rate}", *(number(loss[name, rate, warmup]) for warmup in WARMUPS)]
        for name, rate in itertools.product(SCHEMES, RATES)
    ]
    return Section(
        title="Post-LN needs a warm-up, Pre-LN does not",
        claim="With the norm behind the sum, training at a useful learning rate fails unless the "
        "rate starts small; with the norm inside the branch it starts at full rate.",
        formula=FORMULA,
        experiment=f"Depth {depth}, a grid of peak rate and warm-up for each scheme.",
        findings=[
            images.markdown(path, "Loss on the grid of learning rate and warm-up, by scheme"),
            table(["loss", *(f"warm-up {warmup}" for warmup in WARMUPS)], rows),
        ],
        verdict=Verdict.of(needs, free),
        because=f"At {middle}, `post_ln` ends at {loss['post_ln', middle, 0]:.2f} without warm-up "
        f"and at {loss['post_ln', middle, WARMUPS[-1]]:.2f} with {WARMUPS[-1]} steps of it, its "
        f"best is {best['post_ln']:.2f}; at {RATES[-1]} no warm-up of this length saves it "
        f"({loss['post_ln', RATES[-1], WARMUPS[-1]]:.2f}, and word frequencies alone give "
        f"{floor:.2f}). `pre_ln` trains in all nine places, without warm-up at {RATES[-1]} to "
        f"{loss['pre_ln', RATES[-1], 0]:.2f}. DeepNorm is Post-LN with two constants, and those "
        f"are worth {loss['post_ln', middle, 0] - loss['deep_norm', middle, 0]:.1f} nats at "
        f"{middle} without warm-up.",
    )


def _draw(axis: Any, scheme: str, loss: dict[Any, float], floor: float) -> None:
    # One hue from light to dark shows to everybody; the numbers are written in besides.
    grid = [[min(loss[scheme, rate, warmup], floor) for warmup in WARMUPS] for rate in RATES]
    axis.imshow(grid, cmap="Blues", vmin=0, vmax=floor, origin="lower", aspect="auto")
    axis.grid(visible=False)
    for row, column in itertools.product(range(len(RATES)), range(len(WARMUPS))):
        value = loss[scheme, RATES[row], WARMUPS[column]]
        color = "white" if grid[row][column] > 0.6 * floor else "black"
        axis.text(column, row, number(value), ha="center", va="center", color=color)
    axis.set(
        title=scheme,
        xlabel="steps of warm-up",
        xticks=range(len(WARMUPS)),
        xticklabels=WARMUPS,
        yticks=range(len(RATES)),
        yticklabels=RATES,
    )
