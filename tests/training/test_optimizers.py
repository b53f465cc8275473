"""Adam with one operation a variable, and what else makes the first step come soon."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.layers import TransformerDecoderLayer, TransformerEncoderLayer
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import Adam, MaskedSparseCategoricalCrossentropy

SHAPES = ((3, 5), (7,), ())
BATCH = {"source": np.array([[4, 5, 2]]), "target": np.array([[1, 6, 7]])}
LABELS = np.array([[6, 7, 2]])


def model(num_layers=1):
    keras.utils.set_random_seed(1)
    config = Seq2SeqConfig.preset(
        "tiny",
        source_vocabulary_size=11,
        target_vocabulary_size=13,
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        hidden_dim=8,
        intermediate_dim=12,
        num_heads=2,
        max_length=5,
    )
    return Seq2SeqTransformer(config)


def compiled(optimizer):
    made = model()
    made.compile(optimizer, MaskedSparseCategoricalCrossentropy(), jit_compile=False)
    return made


def by_hand(weights, steps, rate, beta_1, beta_2, epsilon):
    """Weights and both moments after all steps, in float64."""
    m = [np.zeros_like(w) for w in weights]
    v = [np.zeros_like(w) for w in weights]
    for t, gradients in enumerate(steps, 1):
        alpha = rate(t - 1) * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        for i, g in enumerate(gradients):
            m[i] = beta_1 * m[i] + (1 - beta_1) * g
            v[i] = beta_2 * v[i] + (1 - beta_2) * g**2
            weights[i] = weights[i] - alpha * m[i] / (np.sqrt(v[i]) + epsilon)
    return weights, m, v


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 1e-12)])
def test_weights_and_moments_after_three_steps(dtype, tolerance):
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=shape) for shape in SHAPES]
    steps = [[rng.normal(size=shape) for shape in SHAPES] for _ in range(3)]
    variables = [keras.Variable(w, dtype=dtype) for w in weights]
    rate = keras.optimizers.schedules.ExponentialDecay(0.125, 1, 0.5)
    # Betas and a rate that float32 holds exactly: the rest is the formula.
    optimizer = Adam(rate, beta_1=0.875, beta_2=0.984375, epsilon=2**-10)
    update = tf.function(lambda *g: optimizer.apply(g, variables), autograph=False)
    optimizer.build(variables)
    for gradients in steps:
        update(*(tf.constant(g, dtype) for g in gradients))

    expected = by_hand(weights, steps, lambda t: 0.125 / 2**t, 0.875, 0.984375, 2**-10)
    made = (variables, optimizer._momentums, optimizer._velocities)
    for arrays, wanted in zip(made, expected, strict=True):
        for array, want in zip(arrays, wanted, strict=True):
            np.testing.assert_allclose(array.numpy(), want, rtol=tolerance, atol=tolerance)


def test_a_row_read_twice_is_added_up_before_it_is_squared_by_keras_update_too():
    """The update of several devices, which `amsgrad` takes on one."""
    values, rows = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]], "float32"), [1, 1, 3]
    dense = np.zeros((5, 2), "float32")
    np.add.at(dense, rows, values)
    made = []
    for gradient in (tf.IndexedSlices(values, tf.constant(rows), (5, 2)), tf.constant(dense)):
        table = keras.Variable(np.ones((5, 2)), dtype="float32")
        optimizer = Adam(0.125, epsilon=2**-10, amsgrad=True)
        optimizer.apply([gradient], [table])
        made.append([optimizer._velocities[0].numpy(), table.numpy()])
    for ours, expected in zip(*made, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6)


SETTINGS = {
    "clipping and decay": {"global_clipnorm": 0.5, "weight_decay": 0.01},
    "accumulation": {"gradient_accumulation_steps": 2},
    "a moving average": {"use_ema": True, "ema_momentum": 0.5},
    "amsgrad": {"amsgrad": True},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_variables_and_values_are_those_of_keras(name):
    made = {}
    for kind in (Adam, keras.optimizers.Adam):
        # Keras rounds 1 - beta in another place, so betas that float32 holds exactly.
        optimizer = kind(0.125, beta_1=0.875, beta_2=0.984375, **SETTINGS[name])
        table = keras.Variable(np.ones((5, 2), "float32"), name="table")
        optimizer.build([table])
        for power in (1, 2, 3):
            optimizer.apply([tf.constant(np.arange(10.0).reshape(5, 2) ** power, "float32")])
        # A file holds them in this order; names show in checkpoints' summaries.
        made[kind] = [(v.path, v.numpy()) for v in (*optimizer.variables, table)]
    for (path, ours), (theirs_path, theirs) in zip(*made.values(), strict=True):
        assert path.rsplit("/", 1)[-1] == theirs_path.rsplit("/", 1)[-1]
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-7, err_msg=path)


def test_rows_that_were_read_twice_are_added_up_before_they_are_squared():
    table = keras.Variable(np.ones((5, 2), "float32"))
    optimizer = Adam(0.125, beta_1=0.875, beta_2=0.984375)
    optimizer.build([table])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table.value, [1, 1, 3]))
    gradients = tape.gradient(loss, [table.value])
    assert isinstance(gradients[0], tf.IndexedSlices)
    optimizer.apply(gradients, [table])
    squares = np.array([0, 2**2, 0, 1, 0])[:, None] * np.ones((5, 2))
    np.testing.assert_allclose(optimizer._velocities[0].numpy(), squares / 64, rtol=1e-6)


def test_several_devices_add_up_their_gradients():
    # The only kind that needs no second device; it has one replica and says two.
    optimizer = Adam(0.125)
    assert optimizer._has_operation()
    optimizer._distribution_strategy = type("Two", (), {"num_replicas_in_sync": 2})()
    assert not optimizer._has_operation()


def test_one_operation_a_variable():
    made = compiled(Adam())
    made.make_train_function()
    batch = keras.tree.map_structure(tf.constant, (BATCH, LABELS))
    graph = tf.function(made.train_step, autograph=False).get_concrete_function(batch).graph
    kinds = [operation.type for operation in graph.get_operations()]
    assert kinds.count("ResourceApplyAdam") == len(made.trainable_variables)
    # What Keras' loop would add for each: powers and assignments.
    assert kinds.count("Pow") == 2
    assert kinds.count("AssignAddVariableOp") < 10
    # Variables made inside, and whether they have been made.
    assert not {"If", "StatelessIf", "VarHandleOp"} & set(kinds)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("optimizer", [Adam, keras.optimizers.Adam])
def test_the_step_is_traced_once(optimizer, monkeypatch):
    made = compiled(optimizer())
    calls = []
    call = TransformerDecoderLayer.call
    monkeypatch.setattr(
        TransformerDecoderLayer, "call", lambda *a, **k: calls.append(0) or call(*a, **k)
    )
    made.train_on_batch(BATCH, LABELS)
    made.train_on_batch(BATCH, LABELS)
    assert len(calls) == 1


def test_a_model_is_made_without_tracing_its_layers(monkeypatch):
    for kind in (TransformerEncoderLayer, TransformerDecoderLayer):

        @functools.wraps(kind.call)  # Keras reads its arguments.
        def call(*args, **kwargs):
            raise AssertionError("traced")

        monkeypatch.setattr(kind, "call", call)
    assert model(num_layers=2).output.shape == (None, None, 13)
