"""The steps of each scheme compute what the scheme computes, in NumPy beside `AddNorm`."""

import dataclasses

import numpy as np
import pytest

from keras_addnorm import schemes
from keras_addnorm.explain import explained_schemes, steps_of
from keras_addnorm.layers import AddNorm
from keras_addnorm.schemes import StackPosition, StreamScheme

WIDTH = 6
RNG = np.random.default_rng(3)
# Of schemes that are not the same everywhere, the places that differ.
PLACES = [
    StackPosition(4, 3, side, layer).at(sublayer, sublayers)
    for side, layer, sublayers in (
        ("encoder", 0, ("self_attention", "feed_forward")),
        ("decoder", 2, ("self_attention", "cross_attention", "feed_forward")),
    )
    for sublayer in (sublayers[0], sublayers[-1])
]
OTHERS = [
    {"name": "gpas", "of": "post_ln"},
    {"name": "gpas", "of": "keel"},
    {"name": "pro_res", "of": "post_ln", "warmup_steps": 2},
    {"name": "pro_res", "of": "sandwich_ln", "warmup_steps": 3},
    {"name": "pro_res", "of": "hybrid_norm", "warmup_steps": 5},
    {"name": "hybrid_norm", "first_layer_pre_ln": True},
    {"name": "mix_ln", "share": 0.5},
    {"name": "orthogonal", "epsilon": 0.7},
    {"name": "keel", "folded": True},
]


def computed(steps, x, f, add_norm):
    """What the sublayer reads, and y."""
    tensors = {"x": x}
    read = None
    for step in steps:
        first, *second = (tensors[name] for name in step.reads)
        part = getattr(add_norm, step.weight) if step.weight else step.number
        if step.operation == "sublayer":
            read, made = first, f
        elif step.operation == "norm":
            made = np.asarray(part(first))
        elif step.operation == "scale":
            made = np.asarray(part) * first
        elif step.operation == "gate":
            gate = np.asarray(part)
            made = first * (1 - gate / (1 + np.exp(-gate)))
        elif step.operation == "add":
            made = first + second[0]
        else:
            (x,) = second
            share = (x * first).sum(-1, keepdims=True) / ((x * x).sum(-1, keepdims=True) + part)
            made = first - share * x
        tensors[step.makes] = made
    return read, tensors["y"]


@pytest.mark.parametrize("scheme", [*explained_schemes(), *OTHERS], ids=str)
def test_the_steps_are_the_scheme(scheme):
    for place in PLACES:
        add_norm = AddNorm(scheme=scheme, position=place)
        add_norm.build((None, WIDTH))
        for weight in add_norm.weights:
            weight.assign(RNG.normal(1.0, 0.5, weight.shape))
        x, f = RNG.normal(size=(2, 3, WIDTH)).astype("float32")
        steps = steps_of(add_norm.scheme, add_norm.scheme.plan(place))
        read, y = computed(steps, x, f, add_norm)
        np.testing.assert_allclose(read, add_norm.branch_input(x), atol=1e-5)
        np.testing.assert_allclose(y, add_norm(x, f), atol=1e-5)
        parts = [getattr(add_norm, step.weight) for step in steps if step.weight]
        used = {id(weight) for part in parts for weight in getattr(part, "weights", [part])}
        assert used == set(map(id, add_norm.weights))


def test_every_scheme_of_one_stream_is_there():
    one_stream = {
        name for name in schemes.names() if not isinstance(schemes.get(name), StreamScheme)
    }
    # What it computes with, the page does not know.
    assert set(explained_schemes()) == one_stream - {"deep_delta"}


def test_a_scheme_of_several_streams_is_refused_by_name():
    scheme = schemes.get("hyper_connections")
    with pytest.raises(ValueError, match="'hyper_connections', which has several streams"):
        steps_of(scheme, schemes.ResidualPlan())
    with pytest.raises(ValueError, match="expected one of post_ln, pre_ln"):
        steps_of(scheme, schemes.ResidualPlan())


@dataclasses.dataclass(frozen=True)
class HalfOfTheBranch(schemes.ResidualScheme):
    idea = "Half of what the sublayer says is added."
    needs_final_norm = False

    def plan(self, position):
        return schemes.ResidualPlan()

    def merge(self, residual, branch, parts):
        return residual + 0.5 * branch


class WithSteps(HalfOfTheBranch):
    def steps(self, plan):
        return (
            schemes.Step("sublayer", ("x",), "f"),
            schemes.Step("scale", ("f",), "h", number=0.5, symbol="0.5"),
            schemes.Step("add", ("x", "h"), "y"),
        )


def test_a_merge_of_ones_own_without_its_steps_is_refused():
    plan = schemes.ResidualPlan()
    with pytest.raises(ValueError, match=r"'HalfOfTheBranch' has a `merge`.*expected .* `steps`"):
        steps_of(HalfOfTheBranch(), plan)
    operations = [step.operation for step in steps_of(WithSteps(), plan)]
    assert operations == ["sublayer", "scale", "add"]
    normed = schemes.ResidualPlan(norm_slots=("post_norm",))
    with pytest.raises(ValueError, match=r"leave out the part 'post_norm'.*weight='post_norm'"):
        steps_of(WithSteps(), normed)
