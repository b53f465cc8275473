"""The page of the study: tables, pictures and findings, made from the records alone."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claims.drawing import picture
from claims.images import Images
from claims.page import number, table
from claims.progress import TRAINED, observed, progress
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter

from keras_addnorm.basics import atomic_file
from study.differences import differences
from study.other_decoders import DecoderPlan
from study.other_decoders_page import section
from study.results import EFFECT, HUGE, Results, bleu, nats, of_each_seed
from study.trial import MULTI30K, PAIRS, Outcome, loss_of

if TYPE_CHECKING:
    from study_schemes import Study

_MARKERS = "osD^vP"
_CHEAP = 1.1  # of the reference's time


def write(study: Study, decoders: DecoderPlan, page: Path) -> None:
    """Write the page with its pictures, whole or not at all.

    Args:
        study: The study; what is missing is listed.
        decoders: What is trained with other decoders.
        page: Where the page goes.
    """
    results, images = Results(study), Images(page)
    blocks = [
        "# Residual schemes on translation",
        *_result(results),
        _introduction(results),
        "## What of the published claims shows here",
        _findings(results),
        "## Loss and BLEU by depth",
        _losses(results),
        "## Which differences of BLEU are real",
        differences(results),
        "## Cost and inner life",
        _inner(results),
        *_pictures(results, images),
        "## Without warm-up",
        _warmup(results),
        "## Multi30k",
        _multi30k(results),
        "## Norms where data is scarce",
        _norms(results),
        "## With SSRU decoders",
        section(results, decoders, images),
        "## What is missing",
        _missing(results, decoders),
    ]
    with atomic_file(page) as temporary:
        temporary.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


def _result(results: Results) -> list[str]:
    """What the study found, in a few sentences; nothing while losses are missing."""
    plan, reference = results.study.plan, results.reference
    known = [name for name in results.best_first() if results.loss(name, plan.middle) is not None]
    cheap = [name for name in known if (results.time(name) or HUGE) <= _CHEAP]
    if reference not in known or not cheap:
        return []
    depths = f"{', '.join(map(str, plan.depths[:-1]))} and {plan.depths[-1]}"
    scores = "; ".join(
        f"`{name}` {', '.join(bleu(results.of(name, layers)) or '-' for layers in plan.depths)}"
        for name in dict.fromkeys((known[0], cheap[0], reference, "post_ln"))
        if name in known
    )
    return [
        f"**The lowest loss at {plan.middle} layers has `{known[0]}`; of the schemes that take at "
        f"most a tenth more time than `{reference}`, `{cheap[0]}`.** BLEU with {depths} layers: "
        f"{scores}. [Which one to take](add_and_norm.md#which-scheme)."
    ]


def _introduction(results: Results) -> str:
    plan, scale = results.study.plan, results.study.scale
    rates = ", ".join(map(str, plan.rates))
    return f"""\
Every scheme is trained alike on the built-in set, English to German, the first {PAIRS:,} pairs,
those of at most {scale.length} tokens: width {scale.hidden_dim}, {scale.num_heads} heads,
feed-forward layers twice as wide, one vocabulary of {scale.vocabulary_size} pieces, dropout 0.1,
{scale.updates} updates of {scale.batch_size} pairs, Adam, a rate that rises over {scale.warmup}
updates and then falls linearly to 0. The highest rate is chosen for each scheme from
{rates} by the validation loss at {plan.middle} layers, first seed;
the three in the middle are tried, and one further out where its neighbour is the best.
Layers are counted in encoder and decoder together, half of them each. Losses are those of
validation pairs, in nats a token; BLEU is that of {scale.scored} of them, translated greedily. No
test data was used. Sentences of the built-in set are made from templates: numbers here rank
schemes, they do not say how well one translates.

`python examples/study_schemes.py` makes this page from `examples/study/records.jsonl`; a run
that was stopped resumes."""


def _losses(results: Results) -> str:
    plan = results.study.plan
    header = ["scheme", "rate"]
    for layers in plan.depths:
        header += [f"loss, {layers} layers", "BLEU"]
    rows = []
    for scheme in results.best_first():
        rate = plan.best_rate(scheme, results.study.find)
        row = [f"`{scheme}`", "" if rate is None else f"{rate:g}"]
        for layers in plan.depths:
            row += [of_each_seed(results.losses(scheme, layers)), bleu(results.of(scheme, layers))]
        rows.append(row)
    return (
        f"The loss of each seed, and the mean of BLEU; the best at {plan.middle} layers first. The "
        f"rate is that of {plan.middle} layers at every depth: a scheme that trains badly at "
        "another depth might do better with a rate chosen there. "
        f"{_failed(results)}\n\n{table(header, rows)}"
    )


def _failed(results: Results) -> str:
    """Which trainings came to nothing."""
    plan, failed = results.study.plan, []
    found = {
        (scheme, layers): results.losses(scheme, layers)
        for scheme in results.best_first()
        for layers in plan.depths
    }
    if not any(found.values()):
        return ""
    floor = results.study.floor()
    for (scheme, layers), losses in found.items():
        count = sum(loss >= floor for loss in losses)
        if count:
            some = "" if count == len(losses) else f" ({count} of {len(losses)} seeds)"
            failed.append(f"`{scheme}` with {layers} layers{some}")
    return (
        f"Diverged, or no better than word frequencies alone ({floor:.2f} nats): "
        f"{', '.join(failed) or 'none'}."
    )


def _inner(results: Results) -> str:
    plan = results.study.plan
    header = [
        "scheme",
        "time of an update",
        "memory",
        "stream growth, encoder",
        "stream growth, decoder",
        "gradient first / last, encoder",
        "gradient first / last, decoder",
        "effective depth",
    ]
    rows = []
    for scheme in results.best_first():
        found = results.of(scheme, plan.middle)
        ends = [one["end"] for one in found if one["end"] is not None]
        starts = [one["start"] for one in results.of(scheme, plan.middle, has_warmup=False)]
        rows.append(
            [
                f"`{scheme}`",
                _factor(results.time(scheme)),
                _factor(results.memory(scheme)),
                *(
                    _mean(one[side]["stream_growth"] for one in ends)
                    for side in ("encoder", "decoder")
                ),
                *(
                    _mean(one[side]["gradient_ratio"] for one in starts)
                    for side in ("encoder", "decoder")
                ),
                _mean(one["effective_depth"] for one in found),
            ]
        )
    sublayers = 5 * plan.middle // 2
    return (
        f"At {plan.middle} layers, {sublayers} sublayers. Time and memory are factors of those of "
        f"`{results.reference}`, measured on the same machine with all cores busy. Time is that of "
        "the trainings without warm-up, which are done one after the other; differences of a few "
        "hundredths are chance. Memory is by how much the process grew, compiling included.\n\n"
        f"The rest is of the first seed and one batch of {results.study.scale.batch_size} "
        "validation pairs. Stream growth is the root mean square of the stream behind the last "
        "sublayer over that in front of the first, after training. The gradient is that of the "
        "loss at the stream, in front of the first sublayer over in front of the last, before "
        "training; 0.0 if none reaches the first. The [effective "
        "depth](diagnostics.md#effective-depth), after training, is n if skipping any of n "
        "sublayers costs the same and skipping the others costs nothing.\n\n" + table(header, rows)
    )


def _pictures(results: Results, images: Images) -> list[str]:
    plan, blocks = results.study.plan, []
    losses = {scheme: results.loss(scheme, plan.middle) for scheme in results.best_first()}
    known = {scheme: loss for scheme, loss in losses.items() if loss is not None and loss < HUGE}
    points = {
        scheme: (time, loss)
        for scheme, loss in known.items()
        if (time := results.time(scheme)) is not None
    }
    path = images.path("pareto")
    with picture(path, width=8.5, height=5.5) as axis:
        fastest, is_left = float("inf"), False
        for scheme, (time, loss) in points.items():  # The best one first.
            is_ahead = time < fastest
            fastest = min(time, fastest)
            color = "#0072B2" if is_ahead else "#999999"
            axis.plot([time], [loss], marker="o", color=color, linestyle="none")
            if is_ahead or scheme == results.reference:
                style = {"textcoords": "offset points", "fontsize": 9, "color": color}
                # To the left and to the right in turn: neighbours are often close.
                place = {"xytext": (-6, -3), "ha": "right"} if is_left else {"xytext": (6, -3)}
                axis.annotate(scheme, (time, loss), **place, **style)
                is_left = not is_left
        axis.set(
            xscale="log",
            yscale="log",
            xlabel=f"time of an update, {results.reference} = 1",
            ylabel=f"validation loss, {plan.middle} layers, nats a token",
        )
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3)))
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_locator(NullLocator())
    what = "Validation loss against the time of an update"
    blocks += [
        images.markdown(path, what),
        f"{what}. Blue: no scheme is both faster and better. Losses of {HUGE} nats or more are "
        "left out.",
    ]
    path = images.path("skips")
    best = list(known)[: len(_MARKERS)]
    with picture(path, panels=2, width=11.0) as axes:
        for axis, side in zip(axes, ("encoder", "decoder"), strict=True):
            for scheme, marker in zip(best, _MARKERS, strict=False):
                skips = results.of(scheme, plan.middle)[0]["skips"]
                costs = [cost for name, cost in skips.items() if name.startswith(side)]
                axis.plot(range(1, len(costs) + 1), costs, marker=marker, label=scheme)
            axis.set(title=side, xlabel="sublayer", ylabel="increase of the loss without it")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        if best:
            # One for both, beside them: the lines leave no free corner.
            lines = axes[0].get_legend_handles_labels()
            axes[0].figure.legend(*lines, loc="outside lower center", ncols=len(best), fontsize=8)
    what = f"What skipping each sublayer costs, for the {len(best)} schemes with the lowest loss"
    blocks += [
        images.markdown(path, what),
        f"{what}: the sublayers in the order in which they run. Encoder and decoder have scales "
        "of their own.",
    ]
    return blocks


def _warmup(results: Results) -> str:
    plan = results.study.plan
    losses: dict[str, tuple[float, float]] = {}
    forecasts: dict[str, str] = {}
    for scheme in results.best_first():
        with_it = results.of(scheme, plan.middle)
        without = results.of(scheme, plan.middle, has_warmup=False)
        if with_it and without:  # Of the first seed: the second one is not trained without.
            losses[scheme] = loss_of(with_it[0]), loss_of(without[0])
            forecasts[scheme] = without[0]["forecast"]
    if not losses:
        return "Not trained yet."
    floor = results.study.floor()
    best = [min(some) for some in zip(*losses.values(), strict=True)]
    rows, hits = [], 0
    for scheme, (with_it, without) in losses.items():
        came = observed(progress(without, floor, best[1]), progress(with_it, floor, best[0]))
        hits += came == forecasts[scheme]
        missed = "" if came == forecasts[scheme] else "**miss**"
        shown = (nats(with_it), nats(without))
        rows.append([f"`{scheme}`", *shown, forecasts[scheme], came, missed])
    header = ["scheme", "loss", "without warm-up", "forecast", "observed", ""]
    return (
        f"At {plan.middle} layers and the rate of each scheme, first seed. The forecast is that of "
        "[`predict_stability`](stability.md). A scheme *has trained* if it came at least "
        f"{TRAINED:.0%} of the way from the loss of word frequencies alone ({floor:.2f} nats) to "
        f"the best scheme of the column. {hits} of {len(rows)} forecasts are right.\n\n"
        + table(header, rows)
    )


def _multi30k(results: Results) -> str:
    plan, scale = results.study.plan, results.study.scale
    found = {s: results.of(s, plan.middle, corpus=MULTI30K) for s in plan.multi30k}
    losses = {s: [loss_of(one) for one in some] for s, some in found.items() if some}
    if not losses:
        return "Not trained yet."
    best_first = sorted(losses, key=lambda scheme: statistics.mean(losses[scheme]))
    rows = [[f"`{s}`", of_each_seed(losses[s]), bleu(found[s])] for s in best_first]
    return (
        f"At {plan.middle} layers and the rate of each scheme on the built-in set, first seed. "
        f"{scale.updates} updates of {scale.batch_size} pairs do not go over the pairs once: how "
        "fast a scheme begins shows here, not how well it ends.\n\n"
        + table(["scheme", "loss", "BLEU"], rows)
    )


def _norms(results: Results) -> str:
    study, few, rows = results.study, results.study.plan.few_pairs, []
    for norm in ("layer_norm", *study.plan.norms):
        rate = study.plan.best_rate(results.reference, study.find, norm)
        if rate is not None:
            losses = results.norm_losses(norm)
            shown = (nats(losses[pairs]) if pairs in losses else "" for pairs in ("all", "few"))
            rows.append([f"`{norm}`", f"{rate:g}", *shown])
    header = ["norm", "rate", "loss, all pairs", f"loss, {few} pairs"]
    seen = study.scale.updates * study.scale.batch_size
    return (
        f"`{results.reference}`, {study.plan.middle} layers, first seed. The rate is the one "
        f"chosen on all pairs. All trainings are equally long: they go {seen / few:.2g} times over "
        f"{few} pairs, and {seen / PAIRS:.2g} times over all.\n\n{table(header, rows)}"
    )


Margins = Callable[[Results], list[float]]


@dataclasses.dataclass(frozen=True)
class Claim:
    """What has been published, and how it is looked for here.

    Attributes:
        text: The claim, with its source.
        margins: By how much one loss is lower than another, in nats, one a seed; none if
            trainings are missing.
        at_least: How large the claim says that they are: below 0 if it says that nothing is lost.
    """

    text: str
    margins: Margins
    at_least: float = EFFECT

    def verdict(self, margins: Sequence[float]) -> str:
        """Whether the claim holds here, for all seeds."""
        if all(margin > self.at_least for margin in margins):
            return "yes"
        most = min(self.at_least, -EFFECT)
        return "no" if all(margin < most for margin in margins) else "no clear difference"


def _better(scheme: str, other: str, which: int = 1, **changed: Any) -> Margins:
    """By how much the loss of a scheme is lower than that of another, at one of the depths."""

    def margins(results: Results) -> list[float]:
        depths = results.study.plan.depths
        layers = depths[min(which, len(depths) - 1)]
        ours = results.by_seed(scheme, layers, **changed)
        return _lower(ours, results.by_seed(other, layers, **changed))

    return margins


def _lower(ours: dict[int, Outcome], theirs: dict[int, Outcome]) -> list[float]:
    """By how much our losses are lower than theirs, of each seed that both have."""
    return [loss_of(theirs[seed]) - loss_of(ours[seed]) for seed in ours if seed in theirs]


def _loses_nothing_without_warmup(scheme: str) -> Margins:
    """By how much the loss is lower without a warm-up than with one."""

    def margins(results: Results) -> list[float]:
        layers = results.study.plan.middle
        without = results.by_seed(scheme, layers, has_warmup=False)
        return _lower(without, results.by_seed(scheme, layers))

    return margins


def _better_norm(norm: str, other: str, pairs: str) -> Margins:
    """By how much the loss with a norm is lower than that with another, on all or few pairs."""

    def margins(results: Results) -> list[float]:
        ours, theirs = results.norm_losses(norm), results.norm_losses(other)
        return [theirs[pairs] - ours[pairs]] if pairs in ours and pairs in theirs else []

    return margins


CLAIMS = (
    Claim(
        "Pre-LN loses nothing without warm-up (Xiong et al., 2020)",
        _loses_nothing_without_warmup("pre_ln"),
        -EFFECT,
    ),
    Claim(
        "Without warm-up Pre-LN beats Post-LN (the same)",
        _better("pre_ln", "post_ln", has_warmup=False),
    ),
    Claim(
        "ReZero loses nothing without warm-up (Bachlechner et al., 2020)",
        _loses_nothing_without_warmup("rezero"),
        -EFFECT,
    ),
    Claim(
        "T-Fixup loses nothing without warm-up (Huang et al., 2020)",
        _loses_nothing_without_warmup("t_fixup"),
        -EFFECT,
    ),
    Claim("DS-Init beats Post-LN (Zhang et al., 2019)", _better("ds_init", "post_ln")),
    Claim("DS-Init beats Post-LN in deep models (the same)", _better("ds_init", "post_ln", 2)),
    Claim("Admin beats Post-LN in deep models (Liu et al., 2020)", _better("admin", "post_ln", 2)),
    Claim(
        "DeepNorm beats Post-LN in deep models (Wang et al., 2022)",
        _better("deep_norm", "post_ln", 2),
    ),
    Claim("DeepNorm beats Pre-LN in deep models (the same)", _better("deep_norm", "pre_ln", 2)),
    Claim("Sub-LN beats Pre-LN (Wang et al., 2022, Magneto)", _better("sub_ln", "pre_ln")),
    Claim("A norm on both sides beats Pre-LN (Peri-LN, 2025)", _better("sandwich_ln", "pre_ln")),
    Claim("LN-scaling beats Pre-LN in deep models (2025)", _better("ln_scaling", "pre_ln", 2)),
    Claim("Mix-LN beats Pre-LN in deep models (2024)", _better("mix_ln", "pre_ln", 2)),
    Claim(
        "Keel loses nothing without warm-up (2026)",
        _loses_nothing_without_warmup("keel"),
        -EFFECT,
    ),
    Claim("Keel beats Pre-LN in deep models (the same)", _better("keel", "pre_ln", 2)),
    Claim("ResiDual beats Pre-LN (Xie et al., 2023)", _better("resi_dual", "pre_ln")),
    Claim("ResiDual beats Post-LN (the same)", _better("resi_dual", "post_ln")),
    Claim("B2T beats Post-LN in deep models (Takase et al., 2022)", _better("b2t", "post_ln", 2)),
    Claim("B2T beats Pre-LN (the same)", _better("b2t", "pre_ln")),
    Claim(
        "Hyper-connections beat Pre-LN, at the smallest depth here (2024)",
        _better("hyper_connections", "pre_ln", 0),
    ),
    Claim("mHC beats hyper-connections (2025)", _better("mhc", "hyper_connections")),
    Claim("mHC-lite beats hyper-connections (2026)", _better("mhc_lite", "hyper_connections")),
    Claim("Frac-connections beat Pre-LN (2025)", _better("frac_connections", "pre_ln")),
    Claim("Attention residuals beat Pre-LN (2026)", _better("attention_residuals", "pre_ln")),
    Claim("DenseFormer beats Pre-LN (2024)", _better("dense_former", "pre_ln")),
    Claim("Removing what is parallel to the stream helps (2025)", _better("orthogonal", "pre_ln")),
    Claim("HybridNorm beats Pre-LN (2025)", _better("hybrid_norm", "pre_ln")),
    Claim("GPAS around Pre-LN beats Pre-LN (2025)", _better("gpas", "pre_ln")),
    Claim(
        "Dynamic tanh can take the place of LayerNorm, on all pairs (Zhu et al., 2025)",
        _better_norm("dynamic_tanh", "layer_norm", pairs="all"),
        -EFFECT,
    ),
    Claim(
        "Dynamic tanh helps where data is scarce",
        _better_norm("dynamic_tanh", "layer_norm", pairs="few"),
    ),
    Claim(
        "Derf beats LayerNorm, on all pairs (2025)",
        _better_norm("derf", "layer_norm", pairs="all"),
    ),
    Claim(
        "SeeDNorm beats RMSNorm, on all pairs (2025)",
        _better_norm("seed_norm", "rms_norm", pairs="all"),
    ),
)


def _findings(results: Results) -> str:
    rows = []
    for claim in CLAIMS:
        margins = claim.margins(results)
        if margins:
            advantages = ", ".join(f"{margin:+.3f}" for margin in margins)
            seeds = " (one seed)" if len(margins) == 1 else ""
            rows.append([claim.text, claim.verdict(margins) + seeds, advantages])
    if not rows:
        return "None was tried yet."
    depths = results.study.plan.depths
    return _ahead_and_behind(results) + (
        "Two losses are compared, seed by seed; the last column has the differences, one a seed. "
        f"Claims about deep models are tried at {depths[-1]} layers, that about the smallest depth "
        f"at {depths[0]}, all others at {results.study.plan.middle}. *Yes* and *no* are "
        f"differences of more than {EFFECT} nats that all seeds agree on. Where the claim is that "
        "nothing is lost, smaller differences are a *yes*; trainings without warm-up have the rate "
        "that was chosen with it, and a model that loses something may still [train "
        f"well](#without-warm-up).{_chance(results)}\n\n"
        "A *no* is about models of this size and trainings of this length; most claims are about "
        "larger ones. A *yes* does not say that the scheme is worth its [time and "
        "memory](#cost-and-inner-life).\n\n" + table(["claim", "here", "advantage, nats"], rows)
    )


def _chance(results: Results) -> str:
    """By how much the loss of a scheme changes with the seed."""
    plan = results.study.plan
    found = {
        (scheme, layers): results.losses(scheme, layers)
        for scheme in plan.schemes
        for layers in plan.depths
    }
    several = {
        case: losses for case, losses in found.items() if len(losses) > 1 and max(losses) < HUGE
    }
    if not several:
        return ""
    differences = [max(losses) - min(losses) for losses in several.values()]
    factors = {case: max(losses) / min(losses) for case, losses in several.items()}
    scheme, layers = max(factors, key=lambda case: factors[case])
    return (
        f" Seeds of one scheme differ by {statistics.median(differences):.3f} nats at the median, "
        f"and at most by a factor of {factors[scheme, layers]:.1f} (`{scheme}` with {layers} "
        "layers): where a few hundredths of one seed decide, *yes* and *no* are weak."
    )


def _ahead_and_behind(results: Results) -> str:
    """Which schemes are better, or worse, than the reference at every depth and with every seed."""
    plan, reference = results.study.plan, results.reference
    ahead, behind = [], []
    for scheme in (name for name in results.best_first() if name != reference):
        margins = [_better(scheme, reference, which)(results) for which in range(len(plan.depths))]
        every = [margin for some in margins for margin in some]
        if all(margins) and min(every) > EFFECT:
            ahead.append(f"`{scheme}`")
        elif all(margins) and max(every) < -EFFECT:
            behind.append(f"`{scheme}`")
    return "".join(
        f"{title} `{reference}` at every depth, by more than {EFFECT} nats with each seed: "
        f"{', '.join(names)}.\n\n"
        for title, names in (("Better than", ahead), ("Worse than", behind))
        if names
    )


def _missing(results: Results, decoders: DecoderPlan) -> str:
    study, rows, left = results.study, [], []
    stages = (*study.plan.stages(study.find), *decoders.stages(study.find))
    for title, trials in stages:
        missing = [trial for trial in trials if study.find(trial) is None]
        rows.append([title, str(len(trials) - len(missing)), str(len(trials))])
        by_layers: dict[int, list[str]] = {}
        for trial in missing:
            name = f"`{trial.scheme}`" if title != "norms" else f"`{trial.norm}`"
            by_layers.setdefault(trial.layers, []).append(name)
        for layers, names in by_layers.items():
            left.append(f"- {title}, {layers} layers: {', '.join(dict.fromkeys(names))}")
    hours = study.records.seconds() / 3600
    blocks = [
        "Trials by stage. Those of later stages are known when the rates are. The updates of all "
        f"trials on record took {hours:.1f} hours of one core; compiling, translating and looking "
        "inside come on top.",
        table(["stage", "done", "of"], rows),
    ]
    if left:
        blocks.append("Not trained:\n\n" + "\n".join(left))
    blocks.append(_LIMITS)
    return "\n\n".join(blocks)


_LIMITS = """\
What a study of this size cannot show:

- Wide models and long trainings. Each scheme has few updates, so one that begins fast is ahead.
- Great depth, which several schemes are made for.
- Each scheme at its best: the rate is chosen at one depth and with one seed, and width, optimiser,
  dropout and the form of the schedule are the same for all.
- Scarce data in the sense of a training that goes on until a model has learnt its pairs by heart.
- Language models without an encoder, in which most of the newer schemes were tried."""


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return number(statistics.mean(known), 1) if known else ""


def _factor(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
