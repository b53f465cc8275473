"""The part of the page about decoders with another layer in the place of self-attention."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import numpy as np
from claims.drawing import picture
from claims.images import Images
from claims.page import table
from matplotlib.ticker import MaxNLocator

from study.other_decoders import DecoderPlan
from study.results import EFFECT, Results, bleu, of_each_seed
from study.trial import Outcome, loss_of

_KINDS = {
    "ssru": "SSRU",
    "average_attention": "average attention",
    "multi_head_attention": "self-attention",
}
_WITHOUT_NORM = ("rezero", "t_fixup")
_LINES = ("o-", "s-", "D-", "^--", "v--", "x:")


def section(results: Results, plan: DecoderPlan, images: Images) -> str:
    """Lay out what is on record of a plan's decoders.

    Args:
        results: The study with self-attention.
        plan: The other decoders.
        images: Where a picture goes.

    Returns:
        Paragraphs, tables and a picture.
    """
    blocks = [_INTRODUCTION, *_means(results, plan, images), *_schemes(results, plan)]
    return "\n\n".join(blocks if len(blocks) > 1 else [*blocks, "Not trained yet."])


_INTRODUCTION = """\
An [SSRU](attention_and_positions.md#ssru-and-average-attention) ends in a ReLU and has no output
projection: no number of its branch is below 0, so that each such sublayer moves the mean of the
stream up. Where a LayerNorm reads the stream, it takes the mean away; an RMSNorm does not, and nor
do schemes without a norm, such as `rezero` and `t_fixup`. The encoder has self-attention as above.

`python examples/study_schemes.py --self-attention ssru` does these trainings. Rates are those that
were chosen with self-attention: another decoder might do better with rates of its own."""


def _means(results: Results, plan: DecoderPlan, images: Images) -> list[str]:
    study = results.study
    trials = {decoder: plan.with_means(decoder, study.find) for decoder in plan.decoders}
    known = {decoder: trial for decoder, trial in trials.items() if trial is not None}
    if not known:
        return []
    starts = {decoder: study.means_at_start(trial) for decoder, trial in known.items()}
    outcomes = {decoder: study.find(trial) for decoder, trial in known.items()}
    ends = {decoder: one["means"] for decoder, one in outcomes.items() if one is not None}
    rows = []
    for decoder in known:
        row = [_KINDS[decoder.self_attention], f"`{decoder.scheme}`", f"`{decoder.norm}`"]
        for means in (starts, ends):
            row += _numbers(means[decoder]) if decoder in means else ["", ""]
        one = outcomes[decoder]
        rows.append([*row, "" if one is None else of_each_seed([loss_of(one)])])
    header = ["decoder", "scheme", "norm"]
    for when in ("at the start", "trained"):
        header += [f"mean of F, {when}", f"stream's mean / rms, {when}"]
    path = images.path("means")
    with picture(path, panels=2, width=11.0) as axes:
        panels = (("at the start", starts), ("trained", ends))
        for axis, (title, means) in zip(axes, panels, strict=True):
            for decoder, line in zip(known, _LINES, strict=False):
                if decoder in means:
                    shares = [_share(item) for item in means[decoder]]
                    name = f"{_KINDS[decoder.self_attention]}, {decoder.scheme}, {decoder.norm}"
                    axis.plot(range(1, len(shares) + 1), shares, line, label=name, markersize=4)
            axis.set(
                title=title, xlabel="sublayer of the decoder", ylabel="mean / rms of the stream"
            )
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8
        )
    what = "The mean of the decoder's stream over its root mean square, sublayer by sublayer"
    return [
        f"At {study.plan.middle} layers, first seed, one batch of validation pairs. The mean of F "
        "is that of the sublayers in the place of self-attention, all channels and layers "
        "together; the stream's is that behind the last sublayer, in front of a final norm.",
        table([*header, "loss"], rows),
        images.markdown(path, what),
        f"{what}: in each layer the SSRU or attention, cross-attention, feed-forward. Of the mean "
        "that attentions begin with, the positions are a part: their cosines are near 1.",
    ]


def _numbers(items: list[dict[str, Any]]) -> list[str]:
    branches = [item["branch_mean"] for item in items if item["name"].endswith("/self_attention")]
    return [f"{statistics.mean(branches):+.3f}", f"{_share(items[-1]):+.3f}"]


def _share(item: dict[str, Any]) -> float:
    return item["stream_mean"] / item["stream_rms"]


def _schemes(results: Results, plan: DecoderPlan) -> list[str]:
    """Losses beside those with self-attention, and where the order is another one."""
    study, layers = results.study, plan.layers
    with_attention = {name: results.by_seed(name, layers) for name in plan.schemes}
    with_other: dict[str, dict[int, Outcome]] = {}
    for name, seed in itertools.product(plan.schemes, study.plan.seeds):
        trial = plan.trial(name, seed, study.find)
        if trial is not None and (outcome := study.find(trial)) is not None:
            with_other.setdefault(name, {})[seed] = outcome
    if not with_other:
        return []
    losses = {
        name: {seed: loss_of(one) for seed, one in found.items()}
        for name, found in with_other.items()
    }
    before = {
        name: {seed: loss_of(with_attention[name][seed]) for seed in found}
        for name, found in losses.items()
    }
    best_first = sorted(losses, key=lambda name: statistics.mean(losses[name].values()))
    rows = []
    for name in best_first:
        margins = [before[name][seed] - loss for seed, loss in losses[name].items()]
        rows.append(
            [
                f"`{name}`",
                of_each_seed([*before[name].values()]),
                bleu([with_attention[name][seed] for seed in losses[name]]),
                of_each_seed([*losses[name].values()]),
                bleu([*with_other[name].values()]),
                ", ".join(f"{margin:+.3f}" for margin in margins),
            ]
        )
    kind = _KINDS[plan.self_attention]
    header = ["scheme", "loss, self-attention", "BLEU", f"loss, {kind}", "BLEU", "advantage, nats"]
    missing = [name for name in plan.schemes if name not in losses]
    return [
        f"At {layers} layers, the best with an {kind} first. The advantage is by how much its loss "
        "is lower than that with self-attention, one number a seed; where there is one, the second "
        "seed is not trained yet, and a few hundredths are chance.",
        table(header, rows),
        _verdict(kind, before, losses)
        + (f" Not trained: {', '.join(f'`{name}`' for name in missing)}." if missing else ""),
    ]


Losses = dict[str, dict[int, float]]


def _verdict(kind: str, before: Losses, losses: Losses) -> str:
    margins = {
        name: [before[name][seed] - loss for seed, loss in found.items()]
        for name, found in losses.items()
    }
    better = [name for name, some in margins.items() if min(some) > EFFECT]
    worse = [name for name, some in margins.items() if max(some) < -EFFECT]
    sentences = [
        f"By more than {EFFECT} nats with each seed, {_listed(better)} better with an {kind}, and "
        f"{_listed(worse)} worse.",
        "The ranks of the schemes with both decoders correlate by "
        f"{_rank_correlation(before, losses):.2f}.",
    ]
    keeping = [name for name in _WITHOUT_NORM if name in margins]
    if keeping:
        harmed = [name for name in keeping if name in worse]
        named = " and ".join(f"`{name}`" for name in keeping)
        sentences.append(
            f"Nothing takes the mean away in {named}, without a norm in front of a sublayer: "
            + (f"{_listed(harmed)} worse." if harmed else "that it moves does no harm that shows.")
        )
    turned = [
        f"`{one}` and `{other}`"
        for one, other in itertools.combinations(losses, 2)
        if _leads(before, one, other) * _leads(losses, one, other) < 0
    ]
    sentences.append(
        f"The order of these pairs is another one, by more than {EFFECT} nats with each seed: "
        f"{', '.join(turned)}."
        if turned
        else f"No two schemes change places by more than {EFFECT} nats with each seed."
    )
    return " ".join(sentences)


def _listed(names: list[str]) -> str:
    if not names:
        return "no scheme is"
    return f"{', '.join(f'`{name}`' for name in names)} {'is' if len(names) == 1 else 'are'}"


def _leads(losses: Losses, one: str, other: str) -> int:
    """1 if the first is better by more than chance with each seed that both have, -1 if worse."""
    margins = [
        losses[other][seed] - losses[one][seed] for seed in losses[one] if seed in losses[other]
    ]
    if margins and min(margins) > EFFECT:
        return 1
    return -1 if margins and max(margins) < -EFFECT else 0


def _rank_correlation(before: Losses, losses: Losses) -> float:
    """Spearman's, of mean losses."""
    ranks = [
        np.argsort(np.argsort([statistics.mean(some[name].values()) for name in losses]))
        for some in (before, losses)
    ]
    return float(np.corrcoef(*ranks)[0, 1]) if len(losses) > 1 else 1.0
