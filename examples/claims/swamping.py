"""Claim 4: branches that are much larger than the stream swamp it."""

from __future__ import annotations

import itertools

import numpy as np

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import INITIALIZATIONS, Lab, Training, branch_ratios, final_loss
from claims.page import Section, Verdict, number, table

SCHEMES = ("no_norm", "post_ln", "pre_ln")
COURSES = ((0.002, 0), (0.002, 150), (0.01, 0), (0.01, 150))
FORMULA = r"""
$$
\lVert F(x) \rVert \gg \lVert x \rVert \quad \Rightarrow \quad x + F(x) \approx F(x)
$$

The skip is there, and carries nothing. Kernels are drawn with the standard deviation
$\sqrt{2 / (\mathrm{in} + \mathrm{out})}$ (Glorot), $\sqrt{2 / \mathrm{in}}$ (He), or 1, which is
too large. What large branches do to unseen data is in claim 12.
"""


def section(lab: Lab, images: Images) -> Section:
    """Train with small, usual and large initial weights, with and without warm-up."""
    depth, floor = lab.scale.depths[1], lab.floor()
    ratio, kept, loss = {}, {}, {}
    for scheme, initialization in itertools.product(SCHEMES, INITIALIZATIONS):
        start = lab.profile(Training(scheme, depth, initialization=initialization), trained=False)
        ratio[scheme, initialization] = branch_ratios(start)
        kept[scheme, initialization] = float(np.median(start["cosine"]))
        for rate, warmup in COURSES:
            training = Training(scheme, depth, rate, warmup, initialization)
            loss[scheme, initialization, rate, warmup] = final_loss(lab.train(training))

    path = images.path("swamping")
    with picture(path, panels=len(INITIALIZATIONS), width=9.5, height=3.4) as axes:
        for axis, initialization in zip(axes, INITIALIZATIONS, strict=True):
            for scheme in SCHEMES:
                axis.semilogy(ratio[scheme, initialization], **style(scheme))
            axis.axhline(1, color="#777777", linewidth=1)
            axis.set(title=_TITLES[initialization], xlabel="sublayer, in order")
            axis.set_ylim(0.05, 2e3)
        axes[0].set_ylabel("‖F‖ / ‖x‖ before training")
        axes[0].legend()

    rows = [
        [
            f"`{scheme}`, {_TITLES[initialization]}",
            number(float(np.median(ratio[scheme, initialization]))),
            number(kept[scheme, initialization]),
            *(number(loss[scheme, initialization, rate, warmup]) for rate, warmup in COURSES),
        ]
        for scheme, initialization in itertools.product(SCHEMES, INITIALIZATIONS)
    ]
    header = ["", "‖F‖/‖x‖", "cos(x, y)", *(f"rate {r}, warm-up {w}" for r, w in COURSES)]

    calm = COURSES[0]
    bare = {name: loss["no_norm", name, *calm] for name in INITIALIZATIONS}
    normed = {name: loss["pre_ln", name, *calm] for name in INITIALIZATIONS}
    swamps = float(np.median(ratio["no_norm", "std_1"])) > 10 and bare["std_1"] > floor
    init_repairs = bare["glorot"] < min(floor, bare["std_1"])
    norm_repairs = normed["glorot"] < bare["glorot"] - 0.3 and normed["std_1"] < bare["std_1"] - 0.3
    warmup_repairs = loss["post_ln", "glorot", 0.01, 0] - loss["post_ln", "glorot", 0.01, 150]
    return Section(
        title="A branch larger than the stream swamps it, ‖F(x)‖ ≫ ‖x‖",
        claim="Where the branch is much larger than the stream, adding it wipes out what the "
        "stream carried. Large initial weights or a large learning rate bring that about; norm, "
        "initialisation and warm-up each repair a part.",
        formula=FORMULA,
        experiment=f"Depth {depth}. Three ways to draw the kernels of both stacks, three schemes, "
        "a usual and a large learning rate, without and with warm-up. The first two columns of "
        "numbers are medians over sublayers before training: how large the branch is, and how much "
        "of the stream's direction is left behind it.",
        findings=[
            images.markdown(path, "Size of the branch relative to the stream at each sublayer"),
            table(header, rows),
            f"Word frequencies alone give {floor:.2f}.",
        ],
        verdict=Verdict.of(swamps, init_repairs, norm_repairs, warmup_repairs > 0.3),
        because="*Swamping:* with std 1 and no norm, the branch is "
        f"{number(float(np.median(ratio['no_norm', 'std_1'])))} times the stream, next to nothing "
        f"of the stream's direction is left ({number(kept['no_norm', 'std_1'])}), and training "
        f"ends at: {number(bare['std_1'])}. *Initialisation* repairs the start: Glorot gives "
        f"{number(bare['glorot'])}, He {number(bare['he'])}. He is made for ReLU layers without "
        "skips; in a residual stream its larger kernels only feed the growth. *The norm* repairs "
        "the scale: the same three initialisations end at "
        f"{number(normed['glorot'])}, {number(normed['he'])} and {number(normed['std_1'])} with "
        "Pre-LN. With std 1 Pre-LN does not diverge, but hardly trains: its first branch swamps "
        "the embeddings, and a step is small against such weights. *Warm-up* repairs the rate, not "
        "the weights: at 0.01 with Glorot it takes Post-LN from "
        f"{number(loss['post_ln', 'glorot', 0.01, 0])} to "
        f"{number(loss['post_ln', 'glorot', 0.01, 150])}; with std 1 it leaves Post-LN at "
        f"{number(loss['post_ln', 'std_1', 0.01, 150])}.",
    )


_TITLES = {"glorot": "Glorot", "he": "He", "std_1": "std 1"}
