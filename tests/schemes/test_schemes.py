import dataclasses

import pytest

from keras_addnorm import schemes
from keras_addnorm.schemes import (
    GPAS,
    DeepNorm,
    DSInit,
    ExtraLayer,
    Keel,
    LearnedScale,
    MixLN,
    ResidualPlan,
    StackPosition,
    TFixup,
)


def test_peri_ln_is_another_name_of_sandwich_ln():
    assert schemes.get("peri_ln") == schemes.get("sandwich_ln")


def test_post_ln_may_end_with_a_norm():
    scheme = schemes.get({"name": "post_ln", "final_norm": True})
    assert scheme.needs_final_norm
    assert schemes.get(schemes.serialize(scheme)) == scheme != schemes.get("post_ln")


# Computed by hand from table 2 of the paper:
# 6+6: (6^4 6)^(1/16) = 6^(5/16) = 1.75054, 18^(1/4) = 2.05977, 72^(-1/4) = 0.34329.
GAINS = [
    (6, 6, "encoder", 1.41794, 0.49699),
    (6, 6, "decoder", 2.05977, 0.34329),
    (6, 0, "encoder", 1.86121, 0.37992),
    (0, 6, "decoder", 1.86121, 0.37992),
    (3, 2, "encoder", 1.11322, 0.63303),
    (3, 2, "decoder", 1.56508, 0.45180),
    (100, 100, "encoder", 3.41574, 0.20631),
    (8, 0, "encoder", 2.0, 0.35355),
]


@pytest.mark.parametrize(("encoder", "decoder", "side", "alpha", "beta"), GAINS)
def test_deep_norm_gains(encoder, decoder, side, alpha, beta):
    plan = DeepNorm().plan(StackPosition(encoder, decoder, side))
    assert plan.norm_slots == ("post_norm",)
    assert plan.branch_scale is None
    assert plan.skip_gain == pytest.approx(alpha, abs=6e-6)
    assert plan.init_gain == pytest.approx(beta, abs=6e-6)


def test_deep_norm_gains_do_not_depend_on_the_layer():
    plans = {DeepNorm().plan(StackPosition(4, 3, "decoder", i)) for i in range(3)}
    assert len(plans) == 1


def test_deep_norm_takes_gains_of_your_own():
    plan = DeepNorm(alpha=1.5, beta=0.25).plan(None)
    assert (plan.skip_gain, plan.init_gain) == (1.5, 0.25)
    half = DeepNorm(beta=0.25).plan(StackPosition(6, 0, "encoder"))
    assert half.skip_gain == pytest.approx(12**0.25)
    assert half.init_gain == 0.25


@pytest.mark.parametrize("gains", [{}, {"alpha": 1.5}, {"beta": 0.25}])
def test_deep_norm_says_that_it_needs_a_position(gains):
    with pytest.raises(ValueError, match=r"depth of the model.*position=StackPosition"):
        DeepNorm(**gains).plan(None)


# By hand: sqrt(log 12) = 1.57636, sqrt(log 18 log 12 / 3) = 1.54729.
SUB_LN_GAINS = [
    (6, 0, "encoder", 1.57636),
    (0, 6, "decoder", 1.57636),
    (6, 6, "encoder", 1.54729),
    (6, 6, "decoder", 1.70011),
    (3, 2, "encoder", 1.03447),
    (3, 2, "decoder", 1.33857),
]


@pytest.mark.parametrize(("encoder", "decoder", "side", "gain"), SUB_LN_GAINS)
@pytest.mark.parametrize("sublayer", ["self_attention", "feed_forward"])
def test_sub_ln_gains(encoder, decoder, side, gain, sublayer):
    plan = schemes.get("sub_ln").plan(StackPosition(encoder, decoder, side, sublayer=sublayer))
    assert plan == ResidualPlan(("pre_norm",), init_gain=plan.init_gain, inner_norm=True)
    assert plan.init_gain == pytest.approx(gain, abs=6e-6)


def test_sub_ln_leaves_cross_attention_as_pre_ln_has_it():
    place = StackPosition(6, 6, "decoder", 2, "cross_attention")
    assert schemes.get("sub_ln").plan(place) == ResidualPlan(norm_slots=("pre_norm",))


def test_sub_ln_takes_a_gain_of_your_own():
    assert schemes.get({"name": "sub_ln", "gain": 1.25}).plan(None).init_gain == 1.25


@pytest.mark.parametrize(
    "name",
    [
        *("sub_ln", "mix_ln", "ln_scaling", "keel", "ds_init", "t_fixup", "hybrid_norm"),
        *("pro_res", "siamese_norm"),
    ],
)
def test_schemes_of_a_place_say_that_they_need_one(name):
    with pytest.raises(ValueError, match=r"where in the model.*Pass position=StackPosition"):
        schemes.get(name).plan(None)


@pytest.mark.parametrize(
    ("share", "depth", "num_post_ln"),
    [(0.25, 12, 3), (0.25, 3, 0), (0.25, 7, 1), (0.29, 100, 29), (0.0, 5, 0), (1.0, 5, 5)],
)
def test_mix_ln_is_post_ln_first(share, depth, num_post_ln):
    scheme = MixLN(share)
    slots = [
        scheme.plan(StackPosition(1, depth, "decoder", index)).norm_slots[0]
        for index in range(depth)
    ]
    assert slots == ["post_norm"] * num_post_ln + ["pre_norm"] * (depth - num_post_ln)
    assert scheme.needs_final_norm == (num_post_ln < depth)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_mix_ln_needs_a_share(share):
    with pytest.raises(ValueError, match="0 <= share <= 1"):
        MixLN(share)


@pytest.mark.parametrize(
    ("encoder", "decoder", "side", "alpha"),
    [
        (6, 6, "encoder", 12.0),
        (6, 6, "decoder", 18.0),
        (6, 0, "encoder", 12.0),
        (0, 6, "decoder", 12.0),
    ],
)
def test_keels_gain_is_the_number_of_sublayers(encoder, decoder, side, alpha):
    place = StackPosition(encoder, decoder, side, 1, "self_attention")
    assert Keel().plan(place) == ResidualPlan(("pre_norm", "post_norm"), skip_gain=alpha)
    assert Keel(alpha=3.0).plan(place).skip_gain == 3.0
    folded = Keel(folded=True).plan(place)
    assert (folded.skip_gain, folded.post_norm_gain) == (1.0, alpha)


@pytest.mark.parametrize("scheme", [Keel(), Keel(alpha=3.0), Keel(folded=True)], ids=str)
def test_keels_first_layer_has_no_gain_and_its_first_sublayer_is_pre_lns(scheme):
    places = [
        StackPosition(4, 4, "decoder", 0, sublayer)
        for sublayer in ("self_attention", "cross_attention", "feed_forward")
    ]
    first, *others = (scheme.plan(place) for place in places)
    assert first == schemes.get("pre_ln").plan(places[0])
    assert set(others) == {ResidualPlan(("pre_norm", "post_norm"))}


@pytest.mark.parametrize("sublayer", ["self_attention", "cross_attention"])
def test_hybrid_norms_attention_has_norms_inside(sublayer):
    scheme, place = schemes.get("hybrid_norm"), StackPosition(3, 3, "decoder", 0, sublayer)
    plan = scheme.plan(place)
    assert (plan.norm_slots, plan.query_key_norm, plan.value_norm) == ((), True, True)
    starred = dataclasses.replace(scheme, first_layer_pre_ln=True)
    assert starred.plan(place) == dataclasses.replace(plan, norm_slots=("pre_norm",))
    second = dataclasses.replace(place, layer_index=1)
    assert starred.plan(second) == scheme.plan(second) == plan


@dataclasses.dataclass(frozen=True)
class Needy(schemes.PreLN):
    """A scheme that needs all that a stack can give."""

    needs_embedding_norm = True
    needs_scale_invariant_norm = True


def test_gpas_holds_another_scheme_by_its_name():
    scheme = schemes.get({"name": "gpas", "of": "post_ln"})
    assert scheme == GPAS(schemes.PostLN()) != GPAS()
    assert schemes.serialize(scheme)["of"] == schemes.serialize(schemes.PostLN())
    assert not scheme.needs_final_norm
    assert not scheme.needs_embedding_norm and not scheme.needs_scale_invariant_norm
    needy = GPAS(Needy())
    assert needy.needs_final_norm and needy.needs_embedding_norm
    assert needy.needs_scale_invariant_norm
    with pytest.raises(ValueError, match=r"no such residual scheme.*Received: 'postln'"):
        schemes.get({"name": "gpas", "of": "postln"})


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({"name": "pro_res", "of": "pro_res"}, "one stream, once.*Received: of="),
        ({"name": "pro_res", "of": "mhc"}, "one stream, once.*Received: of="),
        ({"name": "pro_res", "warmup_steps": 0}, "1 <= warmup_steps.*Received: 0"),
        ({"name": "deep_delta", "initial_step": 2.0}, "0 < initial_step < 2. Received"),
    ],
)
def test_fields_of_one_stream_that_do_not_fit(scheme, message):
    with pytest.raises(ValueError, match=message):
        schemes.get(scheme)


def test_pro_res_goes_around_a_scheme():
    with pytest.raises(TypeError, match=r"Expected a ResidualScheme.*Received: of='post_ln'"):
        schemes.get("pro_res").__class__(of="post_ln")


@pytest.mark.parametrize("of", ["gpas", "resi_dual"])
def test_gpas_goes_around_one_stream_once(of):
    with pytest.raises(ValueError, match=r"GPAS scales one stream, once.*Received: of="):
        schemes.get({"name": "gpas", "of": of})


def test_gpas_goes_around_a_scheme():
    with pytest.raises(TypeError, match=r"Expected a ResidualScheme.*Received: of='post_ln'"):
        GPAS(of="post_ln")


def test_gpas_leaves_the_initial_weights_to_the_scheme_inside():
    place = StackPosition(2, 3, "decoder", 1, "feed_forward")
    for inner in (TFixup(), DeepNorm(), DSInit()):
        scheme = GPAS(inner)
        assert scheme.embedding_gain(place) == inner.embedding_gain(place)
        plan, bare = scheme.plan(place), inner.plan(place)
        assert dataclasses.replace(plan, arrays=()) == bare


# The spread of a Glorot kernel of 512 x 512, 0.0441942, in layers 1, 2, 6 and 12.
DS_INIT = {
    0.5: [0.0441942, 0.0312500, 0.0180422, 0.0127578],
    0.25: [0.0441942, 0.0371627, 0.0282376, 0.0237449],
}


@pytest.mark.parametrize("exponent", DS_INIT)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_ds_init_shrinks_all_kernels_with_depth(exponent, side):
    glorot = (2 / (512 + 512)) ** 0.5
    plans = [
        DSInit(exponent).plan(StackPosition(12, 12, side, number - 1)) for number in (1, 2, 6, 12)
    ]
    stds = [glorot * plan.init_gain for plan in plans]
    assert stds == pytest.approx(DS_INIT[exponent], abs=6e-8)
    assert [plan.query_key_init_gain for plan in plans] == [plan.init_gain for plan in plans]


def test_ds_init_has_a_gain_which_cannot_be_zero():
    assert DSInit(gain=0.3).plan(StackPosition(2, 2, "encoder")).init_gain == 0.3
    with pytest.raises(ValueError, match=r"Expected gain > 0.*Received: 0"):
        DSInit(gain=0)


@pytest.mark.parametrize(
    ("depth", "encoder", "decoder", "embedding"),
    [(12, 0.3599809, 0.3102016, 0.3102016), (6, 0.4280919, 0.3688939, 0.3688939)],
)
def test_t_fixup_gains(depth, encoder, decoder, embedding):
    scheme = TFixup()
    places = {side: StackPosition(depth, depth, side) for side in ("encoder", "decoder")}
    assert scheme.plan(places["encoder"]).init_gain == pytest.approx(encoder, abs=1e-7)
    assert scheme.plan(places["decoder"]).init_gain == pytest.approx(decoder, abs=1e-7)
    gains = [scheme.embedding_gain(place) for place in places.values()]
    assert gains == pytest.approx([embedding] * 2, abs=1e-7)
    assert scheme.embedding_gain(StackPosition(1, depth, "encoder")) == 9**-0.25
    assert schemes.get("deep_norm").embedding_gain(places["encoder"]) == 1.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_the_orthogonal_residual_needs_an_epsilon(epsilon):
    with pytest.raises(ValueError, match="Expected epsilon > 0"):
        schemes.get({"name": "orthogonal", "epsilon": epsilon})


def test_ln_scaling_by_layer():
    gains = [
        schemes.get("ln_scaling").plan(StackPosition(4, 2, "encoder", index)).input_gain
        for index in range(4)
    ]
    assert gains == pytest.approx([1.0, 0.707107, 0.577350, 0.5], abs=1e-6)


@pytest.mark.parametrize(
    ("depth", "value"), [(1, 0.1), (18, 0.1), (19, 1e-5), (24, 1e-5), (25, 1e-6), (36, 1e-6)]
)
def test_layer_scale_starts_at_the_papers_value_for_the_depth(depth, value):
    scheme = schemes.get("layer_scale")
    for position in (StackPosition(depth, 1, "encoder"), StackPosition(1, depth, "decoder")):
        assert scheme.plan(position).branch_scale == LearnedScale(value, per_channel=True)


def test_layer_scale_without_a_position_and_with_a_value_of_your_own():
    assert schemes.get("layer_scale").plan(None).branch_scale.initial_value == 0.1
    own = schemes.get({"name": "layer_scale", "initial_value": 0.03})
    assert own.plan(StackPosition(30, 1, "encoder")).branch_scale.initial_value == 0.03


def test_rezero_may_start_elsewhere():
    scheme = schemes.get({"name": "rezero", "initial_value": 0.5})
    assert scheme.plan(None).branch_scale == LearnedScale(0.5, per_channel=False)


@pytest.mark.parametrize(
    "scheme",
    [
        *schemes.names(),
        {"name": "deep_norm", "alpha": 2.0, "beta": 0.5},
        {"name": "rezero", "initial_value": 0.1},
        {"name": "layer_scale", "initial_value": 1e-4},
        {"name": "mix_ln", "share": 0.5},
        {"name": "sub_ln", "gain": 1.5},
        {"name": "keel", "alpha": 3.0, "folded": True},
        {"name": "orthogonal", "epsilon": 0.1},
        {"name": "ds_init", "exponent": 0.25, "gain": 0.5},
        {"name": "hybrid_norm", "first_layer_pre_ln": True},
        {"name": "gpas", "of": {"name": "deep_norm", "alpha": 2.0, "beta": 0.5}},
        {"name": "deep_delta", "initial_step": 0.5},
        {"name": "pro_res", "of": {"name": "post_ln", "final_norm": True}, "warmup_steps": 7},
    ],
    ids=str,
)
def test_serialize_round_trip(scheme):
    found = schemes.get(scheme)
    config = schemes.serialize(found)
    assert schemes.get(config) == found
    assert schemes.get(found) is found
    if isinstance(scheme, dict):
        assert config == scheme


def test_get_leaves_its_argument_as_it_was():
    config = {"name": "rezero", "initial_value": 0.1}
    schemes.get(config)
    assert config == {"name": "rezero", "initial_value": 0.1}


@pytest.mark.parametrize("identifier", ["postln", "", None, 3, {}, {"name": "x"}, {"alpha": 1.0}])
def test_an_unknown_scheme_lists_what_there_is(identifier):
    with pytest.raises(ValueError, match=r"no such residual scheme.*post_ln, pre_ln.*Received"):
        schemes.get(identifier)


def test_an_unknown_field_is_named():
    with pytest.raises(ValueError, match=r"'rezero' has no such field.*initial_value.*'alpha'"):
        schemes.get({"name": "rezero", "alpha": 1.0})


def test_schemes_are_frozen_and_comparable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DeepNorm().alpha = 1.0
    assert DeepNorm(1.0) == DeepNorm(1.0) != DeepNorm(2.0)


@dataclasses.dataclass(frozen=True)
class HalfBranch(schemes.ResidualScheme):
    gain: float = 0.5
    needs_final_norm = False

    def plan(self, position):
        return ResidualPlan()

    def branch_input(self, x, parts):
        return x

    def merge(self, residual, branch, parts):
        return residual + self.gain * branch


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(schemes._TABLE, "_classes", dict(schemes._TABLE._classes))
    schemes.register("half_branch", HalfBranch)


@pytest.mark.usefixtures("registered")
def test_a_registered_scheme_is_found_listed_and_saved():
    assert "half_branch" in schemes.names()
    assert schemes.get({"name": "half_branch", "gain": 0.25}) == HalfBranch(0.25)
    assert schemes.serialize(HalfBranch()) == {"name": "half_branch", "gain": 0.5}
    schemes.register("half_branch", HalfBranch)  # again: no harm


@pytest.mark.usefixtures("registered")
def test_a_name_is_not_taken_twice():
    with pytest.raises(ValueError, match="name 'pre_ln' is taken by PreLN"):
        schemes.register("pre_ln", HalfBranch)


def test_only_frozen_dataclasses_can_be_registered():
    @dataclasses.dataclass
    class Thawed(HalfBranch.__mro__[1]):
        needs_final_norm = False

    with pytest.raises(ValueError, match="has to be a frozen dataclass"):
        schemes.register("thawed", Thawed)


def test_an_unregistered_scheme_cannot_be_saved():
    with pytest.raises(ValueError, match=r"cannot be saved.*schemes\.register"):
        schemes.serialize(HalfBranch())


@pytest.mark.parametrize(
    "part", ["pre_norm", "branch_norm", "post_norm", "branch_scale", "skip_scale", "projection"]
)
def test_a_part_that_was_not_asked_for_is_named(part):
    parts = schemes.ResidualParts(ResidualPlan(), gate=1.0)
    with pytest.raises(AttributeError, match=rf"'{part}', which its plan.*one of \['gate'\]"):
        getattr(parts, part)


def test_a_plan_for_an_unknown_place_is_an_error():
    with pytest.raises(ValueError, match=r"norm_slots among.*Received: \['middle_norm'\]"):
        ResidualPlan(norm_slots=("pre_norm", "middle_norm"))


@pytest.mark.parametrize("names", [("pre_norm",), ("gate", "gate")])
def test_two_parts_of_one_name_are_an_error(names):
    with pytest.raises(ValueError, match=rf"more than once: \['{names[-1]}'\]"):
        ResidualPlan(("pre_norm",), extra_layers=tuple(ExtraLayer(name, dict) for name in names))


def test_stack_position_depth_and_config():
    position = StackPosition(4, 7, "decoder", 6)
    assert (position.depth, StackPosition(4, 7, "encoder", 3).depth) == (7, 4)
    assert position.at("cross_attention") == StackPosition(4, 7, "decoder", 6, "cross_attention")
    assert StackPosition.get(position.to_dict()) == position
    assert StackPosition.get(position) is position
    assert StackPosition.get(None) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 3, "left"), "Expected 'encoder' or 'decoder'.*'left'"),
        ((2, 3, "encoder", 2), "outside its stack.*layer_index < 2.*num_encoder_layers"),
        ((2, 3, "decoder", 3), "outside its stack.*layer_index < 3.*num_decoder_layers"),
        ((2, 3, "decoder", -1), "outside its stack"),
        ((2, 0, "decoder"), "outside its stack.*layer_index < 0"),
    ],
)
def test_stack_position_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        StackPosition(*arguments)
