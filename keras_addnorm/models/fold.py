"""`fold`: multiplies the residual gains of a model into its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from keras_addnorm import norms, schemes
from keras_addnorm.basics.errors import ArgumentTypeError
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.layers import AddNorm
from keras_addnorm.layers.recurrent_attention import RecurrentSelfAttention
from keras_addnorm.layers.sublayers import named_add_norms, named_sublayers
from keras_addnorm.models.rebuild import rebuild
from keras_addnorm.models.seq2seq import Seq2SeqTransformer, require_model
from keras_addnorm.schemes import Folding

_SIDES: tuple[Literal["encoder", "decoder"], ...] = ("encoder", "decoder")


def fold(
    model: Seq2SeqTransformer, *, say: Callable[[str], None] | None = None
) -> Seq2SeqTransformer:
    """Return a model that computes the same without the gains of its residual scheme.

    | scheme | becomes | its gain goes into |
    |---|---|---|
    | `rezero` | `no_norm` | the sublayer's output projection, `W_o alpha` and `b_o alpha` |
    | `layer_scale` | `pre_ln` | the same, channel by channel |
    | `deep_norm` | `post_ln` | the same, divided by `alpha`; and the norm |
    | `ln_scaling` | `pre_ln` | gain and offset of the norm |
    | `keel` | `keel`, `folded=True` | the same as of `deep_norm` |

    All are exact but for rounding. DeepNorm divides the sum in front of the norm by `alpha`, and
    `LN(alpha x + f)` with epsilon is `LN(x + f / alpha)` with `epsilon / alpha^2`: the config of
    the folded model says so for each side (`norm={"encoder": {"name": "layer_norm", "epsilon":
    ...}, ...}`). The same holds for `rms_norm` and `batch_norm`; with `std_layer_norm` and
    `scale_norm` it is `epsilon / alpha`; `dynamic_tanh` and `derf` take `alpha` into their own
    factor. Keel has another `alpha` in its first layer, and norms that read no sum: its plan says
    the epsilon for each place.

    A `taper_norm` that has come to its end becomes one gain a channel: `norm={"name": "taper_norm",
    "is_folded": True}`, whose `gamma` holds its factor. All of the model have to have ended.

    Other schemes have no gain, or one that no weight can take (Admin's factors stand on the
    stream that the sublayer reads, too). Where the norm cannot make up for a gain (`none`), the
    scheme stays as well. Then the model that is returned is an equal copy, and `say` hears why.

    The folded model is one like any other: it saves, exports and trains, though no longer with
    the scheme's own dynamics. Fold last, for serving.

    Args:
        model: The model, which does not change.
        say: Takes a line on what was folded or why not, for instance `print`.

    Returns:
        A new model, not compiled.

    Raises:
        TypeError: If it is no `Seq2SeqTransformer`, or `say` is no function.

    Example:
        >>> from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
        >>> config = Seq2SeqConfig.preset(
        ...     "tiny", source_vocabulary_size=11, target_vocabulary_size=11, scheme="rezero"
        ... )
        >>> fold(Seq2SeqTransformer(config), say=print).config.scheme
        rezero folded into no_norm.
        {'name': 'no_norm'}
    """
    if say is not None and not callable(say):
        raise ArgumentTypeError("`say` takes a line.", "a function, such as print", say=say)
    say = say or _say_nothing
    if _ended_tapers(require_model(model)):
        model = _without_tapers(model)
        say("taper_norm folded into a gain a channel.")
        if not is_foldable(model):
            return model
    config = model.config
    foldings = _foldings(model)
    hindrance = _hindrance(model, foldings)
    if hindrance is not None:
        say(f"{hindrance}. The model is an equal copy.")
        return rebuild(model)
    remaining = _remaining_scheme(foldings)
    norm = _with_epsilons(config.norm, named_add_norms(model), foldings)
    folded = rebuild(model, scheme=remaining, norm=norm)
    unfolded = named_add_norms(model)
    for place, add_norm in named_add_norms(folded).items():
        # A pruned place may have had another scheme, which stays.
        if add_norm.scheme != unfolded[place].scheme:
            _absorb(folded, place, add_norm, foldings[place])
    before, after = _name(config.scheme), _name(remaining)
    say(f"{before} folded into {'its form without gains' if after == before else after}.")
    return folded


def is_foldable(model: Seq2SeqTransformer) -> bool:
    """Tell whether `fold` would change a model: otherwise it makes an equal copy.

    Args:
        model: The model.

    Returns:
        Whether its scheme has gains, and its weights can take them.

    Raises:
        TypeError: If it is no `Seq2SeqTransformer`.

    Example:
        >>> from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
        >>> config = Seq2SeqConfig.preset(
        ...     "tiny", source_vocabulary_size=11, target_vocabulary_size=11, scheme="pre_ln"
        ... )
        >>> is_foldable(Seq2SeqTransformer(config))
        False
    """
    if _ended_tapers(require_model(model)):
        return True
    return _hindrance(model, _foldings(model)) is None


def _ended_tapers(model: Seq2SeqTransformer) -> dict[str, norms.TaperNorm]:
    """Return the norms that taper, by the paths of their gains, if all of them have ended."""
    if all(_folded_taper(norm) == norm for norm in _norm_of_sides(model).values()):
        return {}
    tapers = {path: norm for path, norm in _tapers(model).items() if not norm.is_folded}
    ended = all(float(to_numpy(norm.step)) >= norm.last_step for norm in tapers.values())
    return tapers if ended else {}


def _without_tapers(model: Seq2SeqTransformer) -> Seq2SeqTransformer:
    """Return the model with one gain a channel in the place of norms that have ended."""
    before, sides = _tapers(model), _norm_of_sides(model)
    folded = rebuild(model, norm={side: _folded_taper(norm) for side, norm in sides.items()})
    for path, norm in _tapers(folded).items():
        if norm.is_folded and not before[path].is_folded:
            norm.gamma.assign(to_numpy(norm.gamma) * to_numpy(before[path].scale))
    return folded


def _tapers(model: Seq2SeqTransformer) -> dict[str, norms.TaperNorm]:
    layers = (*model.encoder._flatten_layers(), *model.decoder._flatten_layers())
    return {each.gamma.path: each for each in layers if isinstance(each, norms.TaperNorm)}


def _norm_of_sides(model: Seq2SeqTransformer) -> dict[norms.Side, norms.NormLike]:
    return {side: norms.for_side(model.config.norm, side) for side in _SIDES}


def _folded_taper(norm: norms.NormLike) -> norms.NormLike:
    fields = norm if isinstance(norm, dict) else {"name": norm}
    return {**fields, "is_folded": True} if fields["name"] == "taper_norm" else norm


def _say_nothing(line: str) -> None:
    """Discard the line."""


def _foldings(model: Seq2SeqTransformer) -> dict[str, Folding]:
    scheme = schemes.get(model.config.scheme)
    return {name: _folding(scheme, add_norm) for name, add_norm in named_add_norms(model).items()}


def _remaining_scheme(foldings: dict[str, Folding]) -> schemes.ResidualScheme:
    return next(iter(foldings.values())).scheme


def _hindrance(model: Seq2SeqTransformer, foldings: dict[str, Folding]) -> str | None:
    """Return why nothing can be folded, or None."""
    config = model.config
    if _remaining_scheme(foldings) == schemes.get(config.scheme):
        return f"{_name(config.scheme)} has no gain to fold"
    for place, sublayer in named_sublayers(model).items():
        if not _is_taken(foldings[place], sublayer.add_norm):
            return (
                f"{_name(config.scheme)} with norm={config.norm!r} cannot be folded: no weight or "
                f"epsilon of that norm can take the gain of {place}"
            )
        has_gain = foldings[place].branch_gain is not None
        if has_gain and isinstance(sublayer.layer, RecurrentSelfAttention):
            return (
                f"{_name(config.scheme)} with self_attention={config.self_attention!r} cannot be "
                f"folded: {place} has no output projection that can take the gain"
            )
    return None


def _name(scheme: str | dict[str, Any] | schemes.ResidualScheme) -> str:
    return str(schemes.serialize(schemes.get(scheme))["name"])


def _folding(scheme: schemes.ResidualScheme, add_norm: AddNorm) -> Folding:
    # The scheme of the whole model, because a pruned place has another one.
    scale = getattr(add_norm, "branch_scale", None)
    return scheme.fold(scheme.plan(add_norm.position), None if scale is None else to_numpy(scale))


def _is_taken(folding: Folding, add_norm: AddNorm) -> bool:
    return (folding.post_norm_gain == 1.0 or add_norm.post_norm.epsilon_power is not None) and (
        folding.pre_norm_gain == 1.0
        or not hasattr(add_norm, "pre_norm")
        or bool(add_norm.pre_norm.output_weights)
    )


def _with_epsilons(
    norm: norms.NormLike, add_norms: dict[str, AddNorm], foldings: dict[str, Folding]
) -> norms.NormLike:
    """Return the norm of each side, with the epsilon that compensates the gain."""
    gains = {name: _gain_left(foldings[name], add_norms[name]) for name in add_norms}
    if set(gains.values()) == {1.0}:
        return norm
    sides: dict[str, Any] = {}
    for side in _SIDES:
        name = next(name for name in add_norms if name.startswith(f"{side}/"))
        post_norm, gain = add_norms[name].post_norm, gains[name]
        identifier = norms.for_side(norm, side)
        fields = identifier if isinstance(identifier, dict) else {"name": identifier}
        sides[side] = {**fields, "epsilon": post_norm.epsilon / gain**post_norm.epsilon_power}
    return sides


def _gain_left(folding: Folding, add_norm: AddNorm) -> float:
    """Return the gain that the plan of the remaining scheme does not compensate itself."""
    return folding.post_norm_gain / folding.scheme.plan(add_norm.position).post_norm_gain


def _absorb(model: Seq2SeqTransformer, name: str, add_norm: AddNorm, folding: Folding) -> None:
    side, index, sublayer = name.split("/")
    layer = getattr(getattr(model, side).layers[int(index)], sublayer)
    if name not in model.config.pruned_sublayers:
        weights = layer.output_projection.weights
        _multiply(weights, 1.0 if folding.branch_gain is None else folding.branch_gain)
    if folding.post_norm_gain != 1.0:
        add_norm.post_norm.absorb_input_gain(folding.post_norm_gain)
    if folding.pre_norm_gain != 1.0 and hasattr(add_norm, "pre_norm"):
        pre_norm = add_norm.pre_norm
        _multiply([getattr(pre_norm, n) for n in pre_norm.output_weights], folding.pre_norm_gain)


def _multiply(weights: list[Any], gain: Any) -> None:
    # Both kernel (F, D) and bias (D,) have the channels of the stream last.
    for weight in weights:
        weight.assign(to_numpy(weight) * np.asarray(gain))
