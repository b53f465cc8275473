"""The verdicts of a report, in plain words, each with the threshold behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import numpy as np

from keras_addnorm.diagnostics.report_data import SublayerReport, Thresholds, Verdict

Sublayers = Sequence[SublayerReport]
Worst = list[tuple[float, str, str]]
"""How bad, which sublayer, and what to say of it in brackets."""


def judge(
    loss: float,
    sublayers: Sublayers,
    thresholds: Thresholds | None = None,
    of_structure: Iterable[Verdict] = (),
) -> tuple[Verdict, ...]:
    """Find what stands out.

    Args:
        loss: The loss of the batch.
        sublayers: The numbers of each sublayer.
        thresholds: Where a number becomes a verdict.
        of_structure: Verdicts that need no numbers.

    Returns:
        The verdicts, or the one verdict `"healthy"`.
    """
    limits = thresholds or Thresholds()
    broken = list(_not_finite(loss, sublayers))
    # After a NaN no other number means anything.
    found = broken or [
        *of_structure,
        *(verdict for rule in _RULES for verdict in rule(sublayers, limits)),
    ]
    return tuple(found or [_healthy(sublayers)])


def _healthy(sublayers: Sublayers) -> Verdict:
    return Verdict(
        kind="healthy",
        sublayers=(),
        text=f"Nothing stands out in {len(sublayers)} sublayers.",
        threshold="",
        advice="",
    )


def _not_finite(loss: float, sublayers: Sublayers) -> Iterable[Verdict]:
    broken = [
        item.name
        for item in sublayers
        if not all(map(math.isfinite, (item.merged_rms, item.gradient_norm)))
    ]
    if broken or not math.isfinite(loss):
        where = f", first at {broken[0]}" if broken else ""
        yield Verdict(
            kind="not_finite",
            sublayers=tuple(broken),
            text=f"There are numbers that are not finite: the loss is {loss:g}{where}.",
            threshold="every number finite",
            advice="Lower the learning rate, clip gradients, or scale the loss under float16.",
        )


def _no_skip(sublayers: Sublayers, limits: Thresholds) -> Iterable[Verdict]:
    worst = [
        (1.0, item.name, f"cos(x, y) {item.cosine:.2f}")
        for item in sublayers
        if math.isinf(item.effect)
    ]
    yield from _verdict(
        worst,
        "no_skip",
        "There is no skip connection at {}: without the sublayer nothing is left of the stream.",
        "the stream behind is all zeros if the sublayer gives zeros",
        "Fine for an experiment; to train, use a scheme with a skip connection.",
    )


def _swamped(sublayers: Sublayers, limits: Thresholds) -> Iterable[Verdict]:
    worst = [
        (item.effect, item.name, f"effect {item.effect:.3g}, ‖F(x)‖/‖x‖ {item.residual_ratio:.3g}")
        for item in sublayers
        if math.isfinite(item.effect)
        and (
            item.effect > limits.swamping_effect
            or (item.residual_ratio > limits.swamping_ratio and item.effect > 1)
        )
    ]
    yield from _verdict(
        worst,
        "swamped",
        "The branch swamps the stream in {}: what came before can hardly be read behind it.",
        f"it changes the stream by more than {limits.swamping_effect:g} times the stream's size, "
        f"or ‖F(x)‖/‖x‖ > {limits.swamping_ratio:g}",
        "Start with smaller kernels or a branch scale (deep_norm, layer_scale, rezero), bound the "
        "branch (sandwich_ln), or lower the learning rate and warm up longer.",
    )


def _near_identity(sublayers: Sublayers, limits: Thresholds) -> Iterable[Verdict]:
    worst = [
        (-item.effect, item.name, f"changes the stream by {100 * item.effect:.2g} %")
        for item in sublayers
        if item.effect < limits.identity_effect
    ]
    yield from _verdict(
        worst,
        "near_identity",
        "Nearly the identity: {}. The model would hardly miss {them}.",
        f"changes the stream by less than {100 * limits.identity_effect:g} %",
        "Right after the start of rezero, layer_scale or a residual gate this is by design. In a "
        "trained model, try fewer layers, or switch the sublayer off.",
    )


def _gradient_profile(sublayers: Sublayers, limits: Thresholds) -> Iterable[Verdict]:
    for stack, items in groupby(sublayers, key=lambda item: item.stack):
        members = list(items)
        first, last = members[0], members[-1]
        if len(members) < 2 or last.gradient_norm == 0:
            continue
        ratio = first.gradient_norm / last.gradient_norm
        vanishes, explodes = ratio < limits.gradient_fall, ratio > limits.gradient_rise
        if not (vanishes or explodes):
            continue
        yield Verdict(
            kind="vanishing_gradient" if vanishes else "exploding_gradient",
            sublayers=(first.name,),
            text=f"The gradient {'vanishes' if vanishes else 'explodes'} on its way down the "
            f"{stack or 'model'}: at {first.name} it is {ratio:.2g} times that at {last.name}.",
            threshold=f"first/last {'<' if vanishes else '>'} "
            f"{limits.gradient_fall if vanishes else limits.gradient_rise:g}",
            advice="Use a scheme with an open skip connection (pre_ln, deep_norm), warm up longer, "
            "or use fewer layers."
            if vanishes
            else "Start with smaller kernels (deep_norm, layer_scale), clip gradients, or lower "
            "the learning rate.",
        )


def _norm_collapsed(sublayers: Sublayers, limits: Thresholds) -> Iterable[Verdict]:
    worst: Worst = []
    for item in sublayers:
        for norm in item.norms:
            if norm.gain is not None and norm.gain < limits.norm_gain:
                reason = f"gain of {norm.slot} {norm.gain:.2g}"
                worst.append((limits.norm_gain / max(norm.gain, 1e-30), item.name, reason))
            elif norm.input_variance < limits.norm_variance:
                reason = f"variance in front of {norm.slot} {norm.input_variance:.2g}"
                size = limits.norm_variance / max(norm.input_variance, 1e-30)
                worst.append((size, item.name, reason))
    yield from _verdict(
        worst,
        "norm_collapsed",
        "A norm has collapsed in {}.",
        f"gain < {limits.norm_gain:g}, or variance in front of the norm < {limits.norm_variance:g}",
        "Take gains out of weight decay; look for a dead sublayer or a stream of zeros before it.",
    )


def _copied_heads(sublayers: Sublayers, limits: Thresholds) -> Iterable[Verdict]:
    worst: Worst = []
    for item in sublayers:
        if item.attention is None or len(item.attention.similarity) < 2:
            continue
        free = item.attention.free_weights
        if free is not None and free < limits.head_free_weights:
            continue  # Too few to tell heads that are copies from heads that are alike by chance.
        similarity = np.tril(np.asarray(item.attention.similarity), -1)
        a, b = np.unravel_index(np.argmax(similarity), similarity.shape)
        if similarity[a, b] > limits.head_similarity:
            reason = f"heads {b + 1} and {a + 1}: {similarity[a, b]:.3f}"
            worst.append((float(similarity[a, b]), item.name, reason))
    yield from _verdict(
        worst,
        "copied_heads",
        "Heads copy each other in {}.",
        f"similarity > {limits.head_similarity:g}",
        "Fewer heads would do; more attention dropout or a diversity penalty keeps them apart.",
    )


def _dead_units(sublayers: Sublayers, limits: Thresholds) -> Iterable[Verdict]:
    worst = [
        (item.dead_units, item.name, f"{100 * item.dead_units:.0f} %")
        for item in sublayers
        if item.dead_units is not None and item.dead_units > limits.dead_units
    ]
    yield from _verdict(
        worst,
        "dead_units",
        "Feed-forward units are dead on the whole batch in {}.",
        f"share > {100 * limits.dead_units:g} %",
        "Look at a larger batch first. Then lower the learning rate, use gelu or a gated "
        "activation, or a smaller intermediate_dim.",
    )


def _verdict(worst: Worst, kind: str, text: str, threshold: str, advice: str) -> Iterable[Verdict]:
    if not worst:
        return
    worst = sorted(worst, key=lambda item: -item[0])
    shown = [f"{name} ({reason})" for _, name, reason in worst[:_NAMED]]
    more = len(worst) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more else "")
    yield Verdict(
        kind=kind,
        sublayers=tuple(dict.fromkeys(name for _, name, _ in worst)),
        text=text.format(names, them="it" if len(worst) == 1 else "them"),
        threshold=threshold,
        advice=advice,
    )


_NAMED = 3
"""Sublayers that a verdict's text names; all of them are in `sublayers`."""

_RULES: tuple[Callable[[Sublayers, Thresholds], Iterable[Verdict]], ...] = (
    _no_skip,
    _swamped,
    _gradient_profile,
    _norm_collapsed,
    _near_identity,
    _copied_heads,
    _dead_units,
)
