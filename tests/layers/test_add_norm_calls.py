"""How an Add & Norm is called: around a sublayer, or in two calls; and what is refused."""

import copy
import dataclasses
import functools
import threading

import keras
import numpy as np
import pytest
from layers_reference import (
    SCHEMES,
    B,
    D,
    T,
    array,
    branch_input,
    merge,
    position,
    random,
    randomize,
)

from keras_addnorm import norms, schemes
from keras_addnorm.layers import AddNorm, FeedForward, MultiHeadSelfAttention
from keras_addnorm.models import enable_lora
from keras_addnorm.schemes import ResidualPlan, ResidualScheme, StackPosition, StreamState

# Numbers that float32 has, too: JAX computes in that, and Keras multiplies matrices in it on torch.
X, KERNEL = random(B, T, D).astype("float32"), random(D, D, seed=4) / D
WIDE = X.astype("float64")
CLOSE = {"rtol": 1e-12, "atol": 1e-12}
if keras.backend.backend() != "tensorflow":
    CLOSE = {"rtol": 1e-4, "atol": 1e-5}
FIRST = StackPosition(4, 4, "decoder", 3).at("feed_forward", ("feed_forward",))


WITH_FIELDS = {"frac_connections": {"name": "frac_connections", "num_streams": 3}}


def made(scheme, place=FIRST, dtype="float64", **arguments):
    scheme = WITH_FIELDS.get(scheme, scheme)
    add_norm = AddNorm(scheme, position=place, dtype=dtype, **arguments)
    add_norm.build((B, T, D))
    return randomize(add_norm)


def sublayer(h):
    return keras.ops.tanh(keras.ops.matmul(h, keras.ops.convert_to_tensor(KERNEL, dtype=h.dtype)))


# Around a sublayer


@pytest.mark.parametrize("scheme", SCHEMES)
def test_around_a_sublayer_it_is_the_formula(scheme):
    add_norm = made(scheme, position("decoder"))
    f = np.tanh(branch_input(add_norm, scheme, WIDE) @ KERNEL)
    expected = merge(add_norm, scheme, WIDE, f)
    np.testing.assert_allclose(array(add_norm(X, sublayer)), expected, **CLOSE)


@pytest.mark.parametrize("scheme", schemes.names())
def test_around_a_sublayer_it_is_the_two_calls(scheme):
    add_norm = made(scheme)
    expected = array(add_norm(X, sublayer(add_norm.branch_input(X))))
    np.testing.assert_array_equal(array(add_norm(X, sublayer)), expected)
    if isinstance(add_norm.scheme, schemes.StreamScheme):
        state = add_norm(add_norm.scheme.open(keras.ops.convert_to_tensor(X)), sublayer)
        assert isinstance(state, StreamState)
        np.testing.assert_array_equal(array(add_norm.scheme.collapse(state)), expected)


def test_a_function_may_take_more_than_the_stream():
    attention = MultiHeadSelfAttention(num_heads=3, dtype="float64")
    mask = np.tril(np.ones((T, T), bool), -1)
    attend = functools.partial(attention, attention_mask=mask)
    add_norm = made("pre_ln")
    found = add_norm(X, attend)
    expected = X + array(attention(add_norm.branch_input(X), attention_mask=mask))
    np.testing.assert_allclose(array(found), expected, **CLOSE)


class Told(keras.layers.Layer):
    """Keeps what it is told."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.supports_masking = True

    def call(self, x, mask=None, training=None):
        self.told = mask, training
        return 0.5 * x


@pytest.mark.parametrize("scheme", ["post_ln", "pre_ln"])
def test_a_layer_is_told_of_padding_and_training(scheme):
    ids = np.array([[4, 5, 0], [6, 0, 0]])
    x = keras.layers.Embedding(7, D, mask_zero=True)(ids)
    told, add_norm = Told(), AddNorm(scheme)
    y = add_norm(x, told)
    np.testing.assert_array_equal(array(told.told[0]), ids != 0)
    np.testing.assert_array_equal(array(keras.src.backend.get_keras_mask(y)), ids != 0)
    assert not told.told[1]
    mask = np.array([[True, False, True], [True, True, False]])
    add_norm(keras.ops.convert_to_tensor(array(x)), told, padding_mask=mask, training=True)
    np.testing.assert_array_equal(array(told.told[0]), mask)
    assert told.told[1]


def test_a_feed_forward_leaves_padding_out_of_its_batch_norm():
    """`FeedForward` takes a `padding_mask`, which an inner norm may need."""
    mask = np.arange(T) < np.array([[T], [2]])
    feed_forward = FeedForward(11, inner_norm=norms.get("batch_norm")(), dtype="float64")
    add_norm = made("pre_ln")
    h = add_norm.branch_input(X, padding_mask=mask)
    expected = X + array(feed_forward(h, padding_mask=mask, training=True))
    found = add_norm(X, feed_forward, padding_mask=mask, training=True)
    np.testing.assert_allclose(array(found), expected, rtol=1e-5, atol=1e-5)


# What is refused


@pytest.mark.parametrize("scheme", schemes.names())
def test_an_output_without_a_read_is_refused_unless_the_sublayer_reads_the_stream(scheme):
    h = array(made(scheme).branch_input(X))
    add_norm, f = made(scheme), random(B, T, D, seed=5)
    if (h == X).all():
        assert np.isfinite(array(add_norm(X, f))).all()
        return
    with pytest.raises(ValueError, match=r"does not read the stream.*add_norm\(x, sublayer\); or"):
        add_norm(X, f)
    add_norm.branch_input(X)
    add_norm(X, f)
    # A read is for one output, and a call that fails does not use it up.
    add_norm(X, sublayer)
    with pytest.raises(ValueError, match="Each call of branch_input is for one"):
        add_norm(X, f)
    add_norm.branch_input(X)
    with pytest.raises(ValueError, match="does not fit the residual stream"):
        add_norm(X, f[..., 1:])
    add_norm(X, f)


@dataclasses.dataclass(frozen=True)
class Halved(ResidualScheme):
    """`y = x + F(x / 2)`: nothing of the plan says what the sublayer reads."""

    is_halved: bool = True
    needs_final_norm = False

    def plan(self, position):
        return ResidualPlan()

    def branch_input(self, x, parts):
        return 0.5 * x if self.is_halved else x

    def merge(self, residual, branch, parts):
        return residual + branch


def test_a_scheme_of_ones_own_is_asked_what_it_reads():
    np.testing.assert_allclose(array(made(Halved(False))(X, X)), 2 * X, **CLOSE)
    with pytest.raises(ValueError, match=r"Halved\(is_halved=True\) a sublayer does not read"):
        made(Halved())(X, X)
    found = made(Halved())(X, lambda h: h)
    np.testing.assert_allclose(array(found), X + 0.5 * X.astype("float64"), **CLOSE)


@dataclasses.dataclass(frozen=True)
class Careless(ResidualScheme):
    """Asks for more than it uses, or returns what is no stream."""

    returns: str = "the sum"
    needs_final_norm = False

    def plan(self, position):
        return ResidualPlan(norm_slots=("pre_norm", "branch_norm"))

    def branch_input(self, x, parts):
        return x[..., 1:] if self.returns == "less to read" else parts.pre_norm(x)

    def merge(self, residual, branch, parts):
        if self.returns == "the sum":
            return residual + branch
        f = parts.branch_norm(branch)
        return {"nothing": None, "a pair": (residual, f)}.get(self.returns, (residual + f)[:, 1:])


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ("the sum", r"never uses.*parts\.branch_norm in branch_input or merge.*with branch_norm\."),
        ("nothing", r"method merge of Careless.*shape \(2, 5, 33\).*Received: None.*with return\?"),
        ("a pair", r"method merge of .*Received: a tuple of 2"),
        ("less", r"method merge of .*Received: shape \(2, 4, 33\)"),
        ("less to read", r"method branch_input of .*Received: shape \(2, 5, 32\)"),
    ],
)
def test_a_careless_scheme_of_ones_own_is_refused(returns, message):
    with pytest.raises(ValueError, match=message):
        AddNorm(Careless(returns))(X, lambda h: h)


@pytest.mark.parametrize("scheme", schemes.names())
@pytest.mark.parametrize("is_symbolic", [False, True])
def test_a_stream_alone_is_refused(scheme, is_symbolic):
    x = keras.Input((T, D), dtype="float64") if is_symbolic else X
    with pytest.raises(ValueError, match=r"sublayer.*is missing. Expected add_norm\(x, sublayer\)"):
        AddNorm(scheme, position=FIRST, dtype="float64")(x)


def test_an_output_without_a_read_is_refused_where_a_model_is_made():
    x = keras.Input((T, D))
    with pytest.raises(ValueError, match="without a call of branch_input"):
        AddNorm("pre_ln")(x, keras.layers.Dense(D)(x))
    # The output has not been computed from what was read, so that the model leaves that out.
    add_norm = AddNorm("pre_ln")
    add_norm.branch_input(x)
    model = keras.Model(x, add_norm(x, keras.layers.Dense(D)(x)))
    with pytest.raises(ValueError, match="without a call of branch_input"):
        model(X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([X, X],), r"takes the stream first.*Received: a list of 2 as x"),
        (((X, X),), r"takes the stream first.*Received: a tuple of 2 as x"),
        ((keras.layers.Dense(D), X), r"takes the stream first.*Received: <Dense"),
        ((X, keras.layers.Dense), r"is a class.*add_norm\(x, Dense\(...\)\)"),
        ((X, [X]), r"a Keras layer or a function.*Received: a list of 1"),
        ((X, "dense"), r"a Keras layer or a function.*Received: 'dense'"),
        ((X, 0.0), r"a Keras layer or a function.*Received: 0.0"),
        ((X, keras.layers.MultiHeadAttention(2, 3)), r"'value'.*lambda h: attention\(h, h\)"),
        ((X, lambda h, memory: h), r"one input.*'memory'.*lambda h: attention\(h, memory\)"),
        ((X, lambda h: (h, h)), r"something else than one tensor.*f, scores = .*a tuple of 2"),
        ((X, lambda h: None), r"something else than one tensor.*Received: None"),
        ((X, lambda h: sublayer), "something else than one tensor"),
    ],
)
def test_what_is_no_stream_and_sublayer_is_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        AddNorm()(*arguments)


def test_a_sublayer_that_raises_leaves_the_add_norm_as_it_was():
    def fails(h):
        raise ZeroDivisionError

    add_norm = made("pre_ln")
    with pytest.raises(ZeroDivisionError):
        add_norm(X, fails)
    expected = WIDE + np.tanh(branch_input(add_norm, "pre_ln", WIDE) @ KERNEL)
    np.testing.assert_allclose(array(add_norm(X, sublayer)), expected, **CLOSE)


# Inside models, copies and threads


def model_of(*names, dense=keras.layers.Dense):
    """A functional model of sublayers, the first Add & Norm twice."""
    x = stream = keras.Input((T, D))
    add_norms = [AddNorm(name, name=f"around_{i}") for i, name in enumerate(names)]
    for i, add_norm in enumerate([*add_norms, add_norms[0]]):
        stream = add_norm(stream, dense(D, name=f"dense_{i}"))
    return keras.Model(x, stream)


def test_a_functional_model_has_the_sublayers_weights_is_saved_and_cloned(tmp_path):
    model = randomize(model_of("pre_ln", "post_ln", "mhc_lite"))
    assert len([weight for weight in model.weights if "dense" in weight.path]) == 8
    expected = array(model(X))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for other in (again, keras.models.clone_model(again), copy.deepcopy(model)):
        other.set_weights(model.get_weights())
        np.testing.assert_array_equal(array(other(X)), expected)
    with pytest.raises(ValueError, match="is missing"):
        again.get_layer("around_0")(X)


def test_a_model_trains_with_lora_and_in_half_precision():
    model = model_of("pre_ln", "post_ln")
    enable_lora(model, 2)
    model.compile("sgd", "mse")
    before = array(model(X))
    model.fit(X, X, epochs=2, verbose=0)
    assert (array(model(X)) != before).any()
    policy = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        assert keras.backend.standardize_dtype(model_of("pre_ln")(X).dtype) == "bfloat16"
    finally:
        keras.config.set_dtype_policy(policy)


def test_sublayers_are_made_whole_numbers():
    model = randomize(model_of("pre_ln", "post_ln"))
    expected = array(model(X))
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dense):
            layer.quantize("int8")
    found = array(model(X))
    assert (found != expected).any()
    np.testing.assert_allclose(found, expected, atol=0.3)


def test_a_layer_of_ones_own_trains_what_it_holds():
    class Mine(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.add_norm, self.dense = AddNorm("pre_ln"), keras.layers.Dense(D)

        def call(self, x):
            return self.add_norm(x, self.dense)

    x = keras.Input((T, D))
    model = keras.Model(x, Mine()(x))
    model.compile("sgd", "mse")
    assert [weight.name for weight in model.weights] == ["gamma", "beta", "kernel", "bias"]
    before = model.get_weights()
    model.fit(X, X, epochs=2, verbose=0)
    assert all((a != b).any() for a, b in zip(before, model.get_weights(), strict=True))


def test_threads_may_share_an_add_norm():
    add_norm = made("pre_ln", dtype="float32")
    expected, errors = array(add_norm(X, sublayer)), []

    def run():
        try:
            for _ in range(20):
                np.testing.assert_allclose(array(add_norm(X, sublayer)), expected, atol=1e-5)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with pytest.raises(ValueError, match="without a call of branch_input"):
        add_norm(X, X)


def test_an_argument_of_another_library_is_answered_with_the_scheme():
    with pytest.raises(
        TypeError, match=r"^AddNorm has no .* Write scheme=\"pre_ln\" for norm_first"
    ):
        AddNorm(norm_first=True)
