"""Claim 5: the variance of x + F(x) grows with depth, and what that does to deep layers."""

from __future__ import annotations

import numpy as np

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result, Training, final_loss
from claims.page import Section, Verdict, number, table

SCHEMES = ("no_norm", "post_ln", "pre_ln", "deep_norm", "rezero", "sandwich_ln", "ln_scaling")
ANSWERS = ("pre_ln", "sandwich_ln", "ln_scaling")
FORMULA = r"""
$$
\mathrm{Var}(x + F(x)) = \mathrm{Var}(x) + \mathrm{Var}(F(x)) + 2 \, \mathrm{Cov}(x, F(x))
$$

- `no_norm`: F grows with x, and the variance exponentially.
- `pre_ln`: $F(\mathrm{LN}(x))$ does not; the variance grows about linearly, and the share of layer
  $\ell$ is about $1 / \sqrt{\ell}$.
- `sandwich_ln` (Peri-LN), $x + \mathrm{LN}(F(\mathrm{LN}(x)))$: each branch has the variance 1;
  linear growth.
- `ln_scaling`, $x + F(\mathrm{LN}(x) / \sqrt{\ell})$: deep branches shrink, and growth slows down.
- `post_ln`, $\mathrm{LN}(x + F(x))$: back to 1 each time.
"""


def section(lab: Lab, images: Images) -> Section:
    """Look at deep models of each scheme before training, and at Pre-LN's family after it."""
    depth = lab.scale.depths[-1]
    start = {name: lab.profile(Training(name, depth), trained=False) for name in SCHEMES}
    end = {name: lab.profile(Training(name, depth), trained=True) for name in ANSWERS}
    loss = {name: final_loss(end[name]) for name in ANSWERS}

    path = images.path("variance")
    with picture(path, panels=2, width=10, height=4.2) as (growth, contribution):
        for name in SCHEMES:
            variance = _decoder(start[name], "variance")
            growth.semilogy(variance, **{**style(name), "markevery": 4})
        growth.set(
            xlabel=f"decoder sublayer, in order (depth {depth})",
            ylabel="Var(y) before training",
        )
        growth.set_ylim(0.3, 1e3)
        growth.legend(ncols=2, fontsize=8)
        for name in ANSWERS:
            for profile, moment, linestyle in ((start, "before", "-"), (end, "trained", ":")):
                line = {**style(name), "linestyle": linestyle, "label": f"{name}, {moment}"}
                contribution.plot(_by_layer(_contribution(profile[name])), **line)
        contribution.set(xlabel="decoder layer", ylabel="‖y − x‖ / ‖x‖, mean of its sublayers")
        contribution.set_ylim(0, None)
        contribution.legend(fontsize=8)

    rows = [_row(name, start[name]) for name in SCHEMES]
    after = [[*_row(name, end[name]), number(loss[name])] for name in ANSWERS]
    header = ["", "Var(y), first", "Var(y), last", "share of a sublayer, first third", "last third"]

    def thirds(profile: Result) -> tuple[float, float]:
        values = _contribution(profile)
        third = max(1, len(values) // 3)
        return float(np.mean(values[:third])), float(np.mean(values[-third:]))

    grows = _last(start["pre_ln"]) > 3 * _first(start["pre_ln"])
    first, last = thirds(start["pre_ln"])
    trained_first, trained_last = thirds(end["pre_ln"])
    slower = _last(start["ln_scaling"]) < _last(start["pre_ln"]) / 1.5
    deep_shares = {name: thirds(end[name])[1] for name in ANSWERS}
    revived = max(deep_shares.values()) > 1.3 * deep_shares["pre_ln"]
    return Section(
        title="The stream's variance grows with depth",
        claim="Each addition adds variance, so a stream that is never normalised grows with depth; "
        "Pre-LN's deep layers, whose branches stay of one size, then count for less and less.",
        formula=FORMULA,
        experiment=f"Models of depth {depth} before training, and Pre-LN with its two answers "
        f"after {lab.scale.steps} steps. The numbers are those of the decoder; the share of a "
        "sublayer is ‖y − x‖ / ‖x‖: how much of the stream it replaces.",
        findings=[
            images.markdown(path, "Left: variance by sublayer. Right: share of each sublayer"),
            "Before training:",
            table(header, rows),
            "After training:",
            table([*header, "loss"], after),
        ],
        verdict=Verdict.of(grows, last < 0.7 * first, slower, revived),
        because=f"Before training, Pre-LN's variance grows from {number(_first(start['pre_ln']))} "
        f"to {number(_last(start['pre_ln']))}, and the share of its sublayers falls from "
        f"{first:.2f} in the first third of the decoder to {last:.2f} in the last; after training "
        f"it is {trained_first:.2f} and {trained_last:.2f}. Without any norm the variance ends at "
        f"{number(_last(start['no_norm']))}. LN-scaling slows the growth down, to "
        f"{number(_last(start['ln_scaling']))}. Peri-LN does not (it ends at "
        f"{number(_last(start['sandwich_ln']))}); its answer is not a smaller variance but a known "
        "one, as its branches have the same size whatever their weights are. "
        + ("At this size one of them" if revived else "At this size neither")
        + " gives the deep layers more to say: after training the last third has a share of "
        f"{deep_shares['pre_ln']:.2f} with Pre-LN, {deep_shares['sandwich_ln']:.2f} with Peri-LN "
        f"and {deep_shares['ln_scaling']:.2f} with LN-scaling. The losses are "
        f"{number(loss['pre_ln'])}, {number(loss['sandwich_ln'])} and "
        f"{number(loss['ln_scaling'])}.",
    )


def _decoder(profile: Result, key: str) -> np.ndarray:
    inside = [name.startswith("decoder") for name in profile["names"]]
    values: np.ndarray = np.array(profile[key])[inside]
    return values


def _contribution(profile: Result) -> np.ndarray:
    shares: np.ndarray = _decoder(profile, "rms_change") / _decoder(profile, "rms_residual")
    return shares


def _by_layer(values: np.ndarray) -> np.ndarray:
    means: np.ndarray = values.reshape(-1, 3).mean(axis=1)
    return means


def _first(profile: Result) -> float:
    return float(_decoder(profile, "variance")[0])


def _last(profile: Result) -> float:
    return float(_decoder(profile, "variance")[-1])


def _row(name: str, profile: Result) -> list[str]:
    values = _contribution(profile)
    third = max(1, len(values) // 3)
    shares = (float(np.mean(values[:third])), float(np.mean(values[-third:])))
    return [
        f"`{name}`",
        *(number(value) for value in (_first(profile), _last(profile), *shares)),
    ]
