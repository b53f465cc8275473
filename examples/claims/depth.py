"""Claim 1: without residual connections, deep stacks degrade."""

from __future__ import annotations

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Training, final_loss
from claims.page import Section, Verdict, number, table

SCHEMES = ("plain", "no_residual", "no_norm", "post_ln", "pre_ln", "deep_norm", "rezero")
FORMULA = r"""
`plain` is $F(x)$, `no_residual` $\mathrm{LN}(F(x))$, `no_norm` $x + F(x)$, `post_ln`
$\mathrm{LN}(x + F(x))$, `pre_ln` $x + F(\mathrm{LN}(x))$, `deep_norm`
$\mathrm{LN}(\alpha x + F(x))$, and `rezero` $x + g F(x)$ with $g = 0$ at first.
"""


def section(lab: Lab, images: Images) -> Section:
    """Train every scheme at every depth."""
    depths, floor = lab.scale.depths, lab.floor()
    loss = {
        scheme: {depth: final_loss(lab.train(Training(scheme, depth))) for depth in depths}
        for scheme in SCHEMES
    }
    shallow, deep = depths[0], depths[-1]

    path = images.path("depth")
    with picture(path) as axis:
        for scheme in SCHEMES:
            values = [min(value, 1.6 * floor) for value in loss[scheme].values()]
            axis.plot(depths, values, **style(scheme))
        axis.axhline(floor, color="#777777", linewidth=1)
        axis.text(depths[-1], floor, "knows word frequencies only", ha="right", va="bottom")
        axis.set(
            xlabel="depth (layers of encoder and decoder together)",
            ylabel=f"training loss after {lab.scale.steps} steps (nats)",
            xticks=depths,
        )
        axis.set_ylim(0, 1.65 * floor)
        axis.legend(bbox_to_anchor=(1, 1), loc="upper left")

    degraded = {scheme: loss[scheme][deep] > loss[scheme][shallow] + 0.5 for scheme in SCHEMES}
    without = ("plain", "no_residual")
    improved = [name for name in SCHEMES if loss[name][deep] < loss[name][shallow]]
    rows = [[f"`{name}`", *(number(value) for value in loss[name].values())] for name in SCHEMES]
    return Section(
        title="Without residual connections, deep stacks degrade",
        claim="More layers make a network without residual connections worse, even on the "
        "sentences that it is trained on; with them, depth does no harm or helps.",
        formula=FORMULA,
        experiment=f"Seven schemes, {len(depths)} depths, everything else alike: peak rate "
        f"{Training('', 2).learning_rate}, {Training('', 2).warmup_steps} steps of warm-up. A "
        f"model that knows no more than how frequent each piece is would reach {floor:.2f}.",
        findings=[
            images.markdown(path, "Training loss against depth, one line a scheme"),
            table(["loss at depth", *(str(depth) for depth in depths)], rows),
            f"Values above {1.6 * floor:.1f} are drawn at {1.6 * floor:.1f}.",
        ],
        verdict=Verdict.of(
            all(degraded[name] for name in without),
            not any(degraded[name] for name in ("pre_ln", "deep_norm", "rezero")),
        ),
        because=f"From depth {shallow} to {deep}, `plain` goes from {loss['plain'][shallow]:.2f} "
        f"to {loss['plain'][deep]:.2f} and `no_residual` from {loss['no_residual'][shallow]:.2f} "
        f"to {loss['no_residual'][deep]:.2f}: hardly better than word frequencies. "
        f"{_listed(improved)} improve{'s' if len(improved) == 1 else ''} with depth. The skip "
        f"alone is not enough: `no_norm` ends at {number(loss['no_norm'][deep])}, because the "
        "stream grows by a factor with each sublayer (claims 4 and 5), and `post_ln` ends at "
        f"{loss['post_ln'][deep]:.2f} with this little warm-up (claim 7).",
    )


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "None"
