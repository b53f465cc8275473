import keras
import numpy as np
import pytest
from filled_models import SOURCE, SUBLAYERS, TARGET, array, batch, tiny_model

from keras_addnorm.diagnostics import initialize_admin, observe
from keras_addnorm.layers import TransformerEncoder


def omegas_of(model):
    return {w.path: array(w) for w in model.weights if w.name == "skip_scale"}


def test_omega_is_the_root_of_the_sum_of_the_variances_so_far():
    model = tiny_model(scheme="admin")
    start = np.random.default_rng(3)
    for weight in model.weights:
        if weight.name == "skip_scale":  # whatever was there: it starts from ones
            weight.assign(start.normal(size=weight.shape))
    found = initialize_admin(model, batch())

    twin = tiny_model(scheme="admin")
    for weight in twin.weights:
        if weight.name == "skip_scale":
            weight.assign(np.ones(weight.shape))
    with observe(twin) as observation:
        twin(batch())
    expected = {}
    for side, ids in (("encoder", SOURCE), ("decoder", TARGET)):
        names = [name for name in SUBLAYERS if name.startswith(side)]
        variances = [array(observation[names[0]].residual)[ids != 0].var()]
        variances += [array(observation[name].branch)[ids != 0].var() for name in names]
        expected[names[0]] = 1.0
        for i, name in enumerate(names[1:], start=1):
            expected[name] = np.sqrt(sum(variances[: i + 1]))
    assert list(found) == list(SUBLAYERS)
    assert found == pytest.approx(expected, rel=1e-5)

    weights = omegas_of(model)
    assert len(weights) == len(SUBLAYERS)
    by_value = sorted(float(w[0]) for w in weights.values())
    assert by_value == pytest.approx(sorted(expected.values()), rel=1e-5)
    for values in weights.values():
        np.testing.assert_array_equal(values, values[0])


def test_each_branch_weighs_less_than_before():
    def shares(encoder):
        with observe(encoder) as observation:
            encoder(x)
        weights = [layer_add_norm.skip_scale for layer_add_norm in add_norms]
        return [
            array(record.branch).var() / array(weight * record.residual + record.branch).var()
            for weight, record in zip(weights, observation, strict=True)
        ]

    keras.utils.set_random_seed(5)
    x = keras.random.normal((7, 5, 16))
    encoder = TransformerEncoder(5, num_heads=2, intermediate_dim=32, scheme="admin")
    encoder.build(x.shape)
    add_norms = [
        add_norm
        for layer in encoder.layers
        for add_norm in (layer.self_attention_add_norm, layer.feed_forward_add_norm)
    ]
    before = shares(encoder)
    omegas = list(initialize_admin(encoder, x).values())
    after = shares(encoder)
    assert omegas[0] == 1.0
    assert omegas[1:] == sorted(omegas[1:])
    # In Post-LN the last branches weigh as much as the first.
    assert (np.array(after[-4:]) < 0.5 * np.array(before[-4:])).all()


def test_a_model_without_omega_is_an_error():
    with pytest.raises(ValueError, match=r"no skip connection to set.*scheme='admin'"):
        initialize_admin(tiny_model(), batch())


def test_what_is_no_number_is_no_skip_connection():
    model = tiny_model(scheme="admin")
    kernel = next(weight for weight in model.weights if "kernel" in weight.path)
    kernel.assign(np.full(kernel.shape, np.nan))
    with pytest.raises(ValueError, match="numbers of the model are not finite"):
        initialize_admin(model, batch())
    for values in omegas_of(model).values():
        np.testing.assert_array_equal(values, 1.0)
