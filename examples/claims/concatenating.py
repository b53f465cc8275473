"""Claim 8: why add, and not concatenate."""

from __future__ import annotations

import statistics
import time

import own_scheme  # Its scheme is known by name once it is imported.

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result, Training, final_loss
from claims.page import Section, Verdict, number, table
from keras_addnorm import schemes

ADD, CONCATENATE = "pre_ln", schemes.serialize(own_scheme.ConcatenateAndProject())["name"]
FORMULA = r"""
| | y | width | weights a sublayer |
| --- | --- | --- | --- |
| add | $x + F(\mathrm{LN}(x))$ | $D$ | none |
| concatenate | $[x; F(\mathrm{LN}(x))]$ | $2 D$, after n sublayers $2^n D$ | none |
| and project | $W [x; F(\mathrm{LN}(x))] + b$ | $D$ | $2 D^2 + D$ |
"""


def section(lab: Lab, images: Images) -> Section:
    """Train both at several depths, and time them in turn."""
    depths = lab.scale.depths[:3]
    loss = {
        (scheme, depth): final_loss(lab.train(Training(scheme, depth)))
        for depth in depths
        for scheme in (ADD, CONCATENATE)
    }
    middle = depths[1]
    cost = lab.measure("cost of merging", {"depth": middle}, lambda: compare_cost(lab, middle))
    weights = {scheme: cost[scheme]["parameters"] for scheme in (ADD, CONCATENATE)}
    times = {scheme: cost[scheme]["milliseconds"] for scheme in (ADD, CONCATENATE)}

    path = images.path("concatenating")
    with picture(path) as axis:
        for scheme in (ADD, CONCATENATE):
            axis.plot(depths, [loss[scheme, depth] for depth in depths], **style(scheme))
        axis.axhline(lab.floor(), color="#777777", linewidth=1)
        axis.set(xlabel="depth", ylabel="training loss (nats)", xticks=depths)
        axis.set_ylim(0, None)
        axis.legend()

    sublayers = 5 * middle // 2
    deep = depths[-1]
    rows = [
        [
            f"`{scheme}`",
            f"{weights[scheme]:,}",
            number(times[scheme], 1),
            *(number(loss[scheme, depth]) for depth in depths),
        ]
        for scheme in (ADD, CONCATENATE)
    ]
    return Section(
        title="Add, rather than concatenate",
        claim="Concatenating keeps x and F(x) both whole, but doubles the width at each sublayer, "
        "or needs a projection back that costs weights and time and takes the identity away. "
        "Adding is that projection with the weights fixed to [I I].",
        formula=FORMULA,
        experiment="The scheme of [own_scheme.py](../examples/own_scheme.py), concatenate and "
        "project, against Pre-LN. Steps were timed in turn, one of each, so that both "
        f"had the same share of the machine; weights and milliseconds are those of depth {middle}.",
        findings=[
            images.markdown(path, "Loss of both against depth"),
            table(
                ["", "weights", "ms a step", *(f"loss, depth {depth}" for depth in depths)], rows
            ),
            f"Without a projection, {sublayers} sublayers that start at width "
            f"{lab.scale.hidden_dim} would end at {2**sublayers * lab.scale.hidden_dim:,}.",
        ],
        verdict=Verdict.of(
            weights[CONCATENATE] > 1.05 * weights[ADD],
            times[CONCATENATE] > 1.02 * times[ADD],
            all(loss[CONCATENATE, depth] > loss[ADD, depth] for depth in depths[1:]),
        ),
        because="Concatenating and projecting takes "
        f"{weights[CONCATENATE] / weights[ADD]:.2f} times the weights and "
        f"{times[CONCATENATE] / times[ADD]:.2f} times the time a step, and at depth {deep} it ends "
        f"at {number(loss[CONCATENATE, deep])} where adding ends at {number(loss[ADD, deep])}: "
        "with a random W, nothing is left of the highway of claim 2. At depth "
        f"{depths[0]}, where no highway is needed, the losses are "
        f"{number(loss[CONCATENATE, depths[0]])} and {number(loss[ADD, depths[0]])}: more weights "
        "are of use there.",
    )


def compare_cost(lab: Lab, depth: int, steps: int = 40) -> Result:
    """Weights of both, and the median time of a training step."""
    batch = lab.task.train.batches(lab.scale.batch_size)[0]
    models = {name: lab.fresh_model(Training(name, depth)) for name in (ADD, CONCATENATE)}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(steps):
        for name, trainable in models.items():
            started = time.perf_counter()
            trainable.model.train_on_batch(*batch)
            seconds[name].append(time.perf_counter() - started)
    return {
        name: {
            "parameters": trainable.model.count_params(),
            # The first steps compile.
            "milliseconds": 1000 * statistics.median(seconds[name][2:]),
        }
        for name, trainable in models.items()
    }
