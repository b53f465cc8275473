"""Claim 13: with Add & Norm, gradients reach the first of hundreds of layers, which train."""

from __future__ import annotations

import numpy as np

from claims.drawing import picture, style
from claims.highway import gradient_profile
from claims.images import Images
from claims.lab import Lab, final_loss
from claims.page import Section, Verdict, number, table
from claims.seeds import spread
from claims.turning import EXPERIMENT, LAST, ZEROS, findings, said, trainings

SCHEMES = ("plain", "no_norm", "post_ln", "pre_ln", "deep_norm")
OPEN = ("pre_ln", "deep_norm")  # said to be fit for such depths
TRAINED = ("plain", *OPEN)  # the others fail in shallower models, or overflow at first
FORMULA = r"""
With $\partial F_\ell / \partial x_\ell = J_\ell$, the gradient at the first of $n$ sublayers is
that behind the last, times $\prod_\ell J_\ell$ without the skip, and $\prod_\ell (1 + J_\ell)$ with
it. Neither product need stay of the size of 1 when $n$ is in the hundreds. DeepNorm,
$\mathrm{LN}(\alpha x + F(x))$ with $\alpha = (2 n_\mathrm{layers})^{1/4}$ and smaller first
kernels, makes $J_\ell$ small beside the skip, the more so the deeper the stack is.
"""


def section(lab: Lab, images: Images) -> Section:
    """The gradient at every sublayer of very deep encoders at first, and what trainings make."""
    depths, seeds = lab.scale.hundreds, lab.scale.seeds
    norms = {
        (scheme, depth): [
            np.array(
                lab.measure(
                    "gradients along hundreds of layers",
                    {"scheme": scheme, "depth": depth, "seed": seed},
                    lambda scheme=scheme, depth=depth, seed=seed: gradient_profile(
                        scheme, depth, lab.scale.hidden_dim, seed
                    ),
                )["norms"]
            )
            for seed in (seeds if depth == depths[0] else seeds[:1])  # the deepest ones take long
        ]
        for depth in depths
        for scheme in SCHEMES
    }
    deep = depths[-1]
    path = images.path("hundreds")
    with picture(path, panels=len(depths), width=4.8 * len(depths)) as axes:
        for axis, depth in zip([axes] if len(depths) == 1 else axes, depths, strict=True):
            for scheme in SCHEMES:
                curves = np.log10([each / each[-1] for each in norms[scheme, depth]])
                if not np.isfinite(curves).all():
                    continue
                line = {**style(scheme), "markevery": depth // 4}
                axis.plot(np.maximum(curves.mean(0), -60), **line)
            axis.set(
                xlabel=f"sublayer, in order (encoder of {depth} layers)",
                ylabel="log₁₀ ‖∂L/∂x‖, relative to the last sublayer's",
            )
            axis.legend(fontsize=8)
    ratio = {key: [each[0] / each[-1] for each in curves] for key, curves in norms.items()}
    rows = [
        [f"`{scheme}`", *(_cell(ratio[scheme, depth]) for depth in depths)] for scheme in SCHEMES
    ]

    def reaches(scheme: str) -> bool:
        """Within a factor of 100 of the last sublayer's in all seeds."""
        return all(1e-2 < value < 1e2 for depth in depths for value in ratio[scheme, depth])

    trained = trainings(lab, TRAINED)
    steps = lab.scale.steps
    final_losses = {name: [final_loss(each, LAST) for each in trained[name]] for name in TRAINED}
    learned = [name for name in TRAINED if max(final_losses[name]) < ZEROS / 2]
    reached = [name for name in SCHEMES if reaches(name)]
    return Section(
        title="Hundreds of layers still get gradients",
        claim="With the skip, a gradient reaches the first of hundreds of layers, and they train; "
        "without it, neither.",
        formula=FORMULA,
        experiment=f"As in claim 2, encoders of {' and '.join(map(str, depths))} layers, which is "
        f"{' and '.join(str(2 * depth) for depth in depths)} sublayers, at their first weights and "
        f"in float64, {len(seeds)} seeds for the first depth and one for the others. The table "
        "holds ‖∂L/∂x‖ at the first sublayer over that at the last: the mean of the seeds, and the "
        f"smallest and largest. {EXPERIMENT}",
        findings=[
            images.markdown(path, "Gradient norm at each sublayer of very deep encoders"),
            table(["first / last, encoder layers", *map(str, depths)], rows),
            *findings(trained, depths[0], steps, images),
        ],
        verdict=Verdict.of(
            all(value < 1e-6 for value in ratio["plain", deep]),
            *(reaches(name) for name in ("no_norm", "post_ln", *OPEN)),
            min(final_losses["plain"]) > 0.9 * ZEROS,
            all(name in learned for name in OPEN),
        ),
        because=f"Up to {deep} layers, the gradient of the first sublayer is within a factor of "
        "100 of the last one's, in all seeds, with "
        + (", ".join(f"`{name}`" for name in reached) or "none")
        + f". `plain` keeps {number(float(np.mean(ratio['plain', deep])))} of it. The skip "
        "alone is not what does it: with `no_norm` the stream grows from sublayer to sublayer, and "
        f"the ratio is {_cell(ratio['no_norm', deep])}. With `post_ln`, whose norm stands on the "
        f"skip, it is {_cell(ratio['post_ln', deep])}. A gradient that arrives is not yet a "
        "training: claims 1 and 7 have Post-LN fail in models of 12 to 24 layers. "
        f"{depths[0]} layers reach less than half of the loss of an output of zeros in all seeds "
        "with "
        + (", ".join(f"`{name}`" for name in learned) or "none")
        + f"; the mean of the last {LAST} losses is "
        + ", ".join(f"{said(final_losses[name])} with `{name}`" for name in TRAINED)
        + ".",
    )


def _cell(ratios: list[float]) -> str:
    if not np.isfinite(ratios).all():
        return "no number (the stream overflows)"
    return spread(ratios)
