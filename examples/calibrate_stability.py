"""How often `predict_stability` is right: forecasts against short trainings, as a page.

python examples/calibrate_stability.py            # about two hours on two cores
python examples/calibrate_stability.py --quick    # only tries that it runs

The trainings are those of `why_add_and_norm.py`, in the same records: what one has measured, the
other need not. A scheme of whose forecasts at least half are right, here and in the study
(`study_schemes.py`), belongs into `CALIBRATED` of `keras_addnorm/diagnostics/stability.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
import os
import textwrap
from pathlib import Path

if importlib.util.find_spec("jax"):
    os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import FULL, QUICK, Lab, Training, final_loss
from claims.page import number, table
from claims.progress import TRAINED, observed, progress
from claims.records import Records

from keras_addnorm import schemes
from keras_addnorm.basics import atomic_file
from keras_addnorm.diagnostics import StabilityThresholds, predict_stability
from keras_addnorm.diagnostics.stability import CALIBRATED

WARMUPS = (0, 150)


@dataclasses.dataclass(frozen=True)
class Case:
    """What a forecast is asked about."""

    scheme: str
    depth: int
    learning_rate: float


def cases(*parts: tuple[tuple[str, ...], tuple[int, ...], tuple[float, ...]]) -> list[Case]:
    """All combinations of schemes, depths and rates, part by part."""
    return [Case(*case) for part in parts for case in itertools.product(*part)]


ALL = ("plain", "no_residual", "no_norm", "post_ln", "pre_ln", "deep_norm", "rezero")
SEEN = cases(
    (ALL, (2, 6, 12, 24), (0.002,)),
    (("post_ln", "pre_ln", "deep_norm", "rezero"), (12,), (0.001, 0.003, 0.01)),
    (("no_norm", "post_ln", "pre_ln"), (6,), (0.01,)),
)
FRESH = cases((("layer_scale", "res_post_norm", "mix_ln"), (12,), (0.002, 0.01)))
LATER = cases((("b2t", "resi_dual"), (6,), (0.002, 0.01)))
PARTS = {
    "The cases that the thresholds were set on": SEEN,
    "Fresh cases": FRESH,
    "Schemes added later": LATER,
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A case, what was forecast, and what the trainings did."""

    case: Case
    forecast: str
    signal: float
    signal_after_step: float
    growth: float
    losses: dict[int, float]
    progress: dict[int, float]

    @property
    def observed(self) -> str:
        """The verdict that the trainings give."""
        return observed(self.progress[WARMUPS[0]], self.progress[WARMUPS[1]])

    @property
    def hit(self) -> bool:
        """Whether the forecast was right."""
        return self.forecast == self.observed


def main(parts: dict[str, list[Case]], page: Path, lab: Lab) -> Path:
    """Train and forecast each case, and write the page.

    Args:
        parts: The cases of each part of the page, by its title.
        page: The page to write.
        lab: Where trainings are done and kept.

    Returns:
        The page.
    """
    every = [case for part in parts.values() for case in part]
    losses = {
        case: {warmup: final_loss(lab.train(_training(case, warmup))) for warmup in WARMUPS}
        for case in sorted(every, key=lambda case: (case.scheme, case.depth))
    }
    outcomes = {case: _outcome(case, losses, lab) for case in losses}
    images = Images(page)
    path = images.path("signal")
    _draw(path, list(outcomes.values()))
    tables = {title: [outcomes[case] for case in part] for title, part in parts.items()}
    blocks = [
        "# How far `predict_stability` can be trusted",
        _introduction(lab),
        _summary(tables),
        images.markdown(path, "Progress of training without warm-up against the token signal"),
        *(block for title, part in tables.items() for block in (f"## {title}", _table(part))),
        "## Misses",
        _misses([outcome for outcome in outcomes.values() if not outcome.hit]),
        "## What is calibrated",
        _calibrated(list(outcomes.values())),
    ]
    with atomic_file(page) as temporary:
        temporary.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return page


def _training(case: Case, warmup: int) -> Training:
    return Training(case.scheme, case.depth, case.learning_rate, warmup)


def _outcome(case: Case, losses: dict[Case, dict[int, float]], lab: Lab) -> Outcome:
    key = dataclasses.asdict(case)
    forecast = lab.measure("forecast", key, lambda: _forecast(case, lab))
    floor = lab.floor()
    made = {}
    for warmup, loss in losses[case].items():
        best = min(
            other[warmup]
            for peer, other in losses.items()
            if peer.learning_rate == case.learning_rate
        )
        made[warmup] = progress(loss, floor, best)
    return Outcome(case=case, losses=losses[case], progress=made, **forecast)


def _forecast(case: Case, lab: Lab) -> dict[str, float | str]:
    config = _training(case, 0).config(lab.scale)
    found = predict_stability(config, learning_rate=case.learning_rate)
    ends = [2 * config.num_encoder_layers - 1, -1]
    return {
        "forecast": found.verdict.value,
        "signal": float(min(found.token_signal[ends])),
        "signal_after_step": float(min(found.token_signal_after_step[ends])),
        "growth": float(found.gradients.max() / max(found.gradients[-1], 1e-30)),
    }


def _draw(path: Path, outcomes: list[Outcome]) -> None:
    thresholds = StabilityThresholds()
    with picture(path) as axis:
        styles = {outcome.case: style(outcome.case.scheme) for outcome in outcomes}
        for label in dict.fromkeys(each["label"] for each in styles.values()):
            own = [outcome for outcome in outcomes if styles[outcome.case]["label"] == label]
            axis.plot(
                [max(outcome.signal_after_step, 1e-5) for outcome in own],
                [max(outcome.progress[WARMUPS[0]], -0.1) for outcome in own],
                **{**styles[own[0].case], "linestyle": "none"},
            )
        for limit in (thresholds.lost_signal, thresholds.weak_signal):
            axis.axvline(limit, color="#777777", linewidth=1, linestyle="--")
        axis.axhline(TRAINED, color="#777777", linewidth=1)
        axis.set_xscale("log")
        axis.set(
            xlabel="token signal after one trial step (dashed: thresholds)",
            ylabel="progress without warm-up (1 = best run)",
        )
        axis.legend(ncols=2, fontsize=8)


def _introduction(lab: Lab) -> str:
    thresholds = StabilityThresholds()
    return f"""\
`keras_addnorm.diagnostics.predict_stability(config, learning_rate=...)` looks at a model before
any training: one forward and one backward pass on random tokens, one trial step of Adam's size,
one more forward pass. Its verdict is one of three; these are the rules, the first that fits counts:

{
        table(
            ["verdict", "token signal", "gradient growth"],
            [
                [
                    "will not train",
                    f"below {thresholds.lost_signal}, before or after the trial step",
                    f"above {thresholds.exploding_gradient:g}",
                ],
                [
                    "needs warm-up",
                    f"below {thresholds.weak_signal} after the trial step",
                    f"above {thresholds.steep_gradient:g}",
                ],
                ["trains without warm-up", "otherwise", "otherwise"],
            ],
        )
    }

The *token signal* is the share of the stream that tells tokens apart (rank collapse is its loss);
the *gradient growth* is the largest gradient at the stream of any sublayer over that at the last.

Here every forecast is held against trainings of {lab.scale.steps} steps on the built-in set, one
without warm-up and one with {WARMUPS[1]} steps of it (the setting is that of
[why_add_and_norm.md](why_add_and_norm.md); depth counts encoder and decoder layers together). A run
*has trained* if it came at least {TRAINED:.0%} of the way from the loss of word frequencies alone
({lab.floor():.2f} nats) to the best run of the same learning rate and warm-up. A case that trained
without warm-up *trains*, one that trained only with it *needs warm-up*, one that did neither *will
not train*. A longer warm-up might have saved some of those."""


def _summary(parts: dict[str, list[Outcome]]) -> str:
    lines = []
    for title, part in parts.items():
        if part:
            hits = sum(outcome.hit for outcome in part)
            lines.append([title, f"{hits} of {len(part)}", f"{hits / len(part):.0%}"])
    return table(["", "right", "share"], lines)


def _table(outcomes: list[Outcome]) -> str:
    header = [
        "scheme, depth, rate",
        "signal",
        "after step",
        "growth",
        "loss without warm-up",
        f"with {WARMUPS[1]}",
        "forecast",
        "observed",
        "",
    ]
    return table(
        header,
        [
            [
                f"`{outcome.case.scheme}`, {outcome.case.depth}, {outcome.case.learning_rate:g}",
                *(
                    number(value)
                    for value in (outcome.signal, outcome.signal_after_step, outcome.growth)
                ),
                *(number(outcome.losses[warmup]) for warmup in WARMUPS),
                outcome.forecast,
                outcome.observed,
                "" if outcome.hit else "**miss**",
            ]
            for outcome in outcomes
        ],
    )


def _misses(outcomes: list[Outcome]) -> str:
    if not outcomes:
        return "None."
    return "\n".join(
        f"- `{outcome.case.scheme}`, depth {outcome.case.depth}, rate "
        f"{outcome.case.learning_rate:g}: forecast *{outcome.forecast}*, observed "
        f"*{outcome.observed}*. It came {outcome.progress[WARMUPS[0]]:.0%} of the way without "
        f"warm-up and {outcome.progress[WARMUPS[1]]:.0%} with it."
        for outcome in outcomes
    )


def _calibrated(outcomes: list[Outcome]) -> str:
    tried = [schemes.get(outcome.case.scheme) for outcome in outcomes]
    others = [f"`{name}`" for name in schemes.names() if schemes.get(name) not in tried]
    known = [schemes.get(name) for name in CALIBRATED]
    wrong = [f"`{name}`" for name in schemes.names() if schemes.get(name) not in known]
    paragraphs = [
        f"There are no trainings here of {', '.join(others)}. [The study]"
        "(study_schemes.md#without-warm-up) has two of every scheme in its table, with 12 layers "
        "at a rate of its own, one with warm-up and one without, beside the forecast.",
        "A forecast is calibrated if at least half of those of its scheme, on both pages, are "
        "right. That holds for the scheme's default fields, `layer_norm`, and no more layers than "
        "those trainings have. Any other forecast says that it is not calibrated, and its "
        "`is_calibrated` is `False`: take it as a hint."
        + (
            f" More forecasts are wrong than right, or none is on record, of {', '.join(wrong)}."
            if wrong
            else ""
        ),
        "Schemes with several streams or a memory are forecast by what a lone layer leaves: the "
        "mean of the streams, for instance, the Post-LN stream of `resi_dual`, and the sum of the "
        "sources of `attention_residuals`.",
    ]
    return "\n\n".join(textwrap.fill(paragraph, 100) for paragraph in paragraphs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only try that it runs")
    parser.add_argument("--page", type=Path, help="default: docs/stability.md")
    parser.add_argument("--records", type=Path, help="default: runs/why_add_and_norm.jsonl")
    arguments = parser.parse_args()
    quick = arguments.quick
    folder = Path("runs/quick") if quick else Path("docs")
    records = arguments.records or Path("runs", f"why_add_and_norm{'_quick' * quick}.jsonl")
    main(
        {title: part[:1] for title, part in PARTS.items()} if quick else PARTS,
        arguments.page or folder / "stability.md",
        Lab(QUICK if quick else FULL, Records(records)),
    )
