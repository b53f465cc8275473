"""Ids that no model can read are refused where they can be seen."""

import keras
import numpy as np
import pytest
from models_reference import SOURCE, TARGET, V_SOURCE, V_TARGET, array, batch, tiny_model

from keras_addnorm.data import ByteTokenizer, make_training_batches, make_training_dataset
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

LABELS = np.array([[4, 5, 6, 2, 0], [7, 2, 0, 0, 0], [8, 9, 10, 3, 2]])
SIZES = {"source": V_SOURCE, "target": V_TARGET}
PAIRS = [("a", "b"), ("c", "d")]


@pytest.fixture(scope="module")
def model():
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    model.compile("sgd", MaskedSparseCategoricalCrossentropy())
    return model


@pytest.fixture(scope="module")
def of_eager_layers():
    return tiny_model(num_encoder_layers=1, num_decoder_layers=1)


def spoiled(side, value):
    ids = {"source": SOURCE, "target": TARGET}[side].astype("float64" if value % 1 else "int64")
    ids[1, 1] = value
    return batch() | {side: ids}


def wrong(side):
    return (-1, SIZES[side], 2**40, 1.5, np.nan)


CASES = [(side, value) for side in SIZES for value in wrong(side)]


@pytest.mark.parametrize(("side", "value"), CASES)
def test_a_call_refuses_them(model, side, value):
    inputs = spoiled(side, value)
    with pytest.raises(ValueError, match=f"A {side} id (lies outside|is no whole number)"):
        model(inputs)
    with pytest.raises(ValueError, match=f"A {side} id"):
        model({name: ids.tolist() for name, ids in inputs.items()})


@pytest.mark.parametrize(
    ("inputs", "received"),
    [
        (list(batch().values()), "a list"),
        (tuple(batch().values()), "a tuple"),
        ({"target": batch()["target"], "inputs": batch()["source"]}, r"a dict of \['target', 'inp"),
    ],
)
def test_inputs_without_their_names_are_refused(model, inputs, received):
    calls = {"call": model, "predict": model.predict, "fit": lambda x: model.fit(x, LABELS)}
    for call in calls.values():
        with pytest.raises(ValueError, match=rf'Expected {{"source": ids.*Received: {received}'):
            call(inputs)


@pytest.mark.parametrize("side", SIZES)
def test_eager_tensors_are_looked_at(model, side):
    for value in (-1, SIZES[side]):
        inputs = keras.tree.map_structure(
            lambda ids: keras.ops.convert_to_tensor(ids, "int32"), spoiled(side, value)
        )
        with pytest.raises(ValueError, match=f"A {side} id lies outside"):
            model(inputs)


@pytest.mark.parametrize(
    "method", ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"]
)
@pytest.mark.parametrize(("side", "value"), [("source", V_SOURCE), ("target", 1.5)])
def test_trainings_and_predictions_refuse_them_at_once(model, method, side, value):
    before = model.get_weights()
    labels = () if "predict" in method else (LABELS,)
    with pytest.raises(ValueError, match=f"A {side} id"):
        getattr(model, method)(spoiled(side, value), *labels)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


# Rows whose padding stands before or between their tokens, and where others are right.
MISPLACED = {
    "source": np.array([[4, 5, 6, 2, 0], [0, 0, 9, 5, 2], [0, 0, 0, 0, 0]]),
    "target": np.array([[1, 4, 5, 6, 0], [1, 7, 0, 9, 0], [0, 0, 0, 0, 0]]),
}


@pytest.mark.parametrize("side", SIZES)
def test_padding_stands_on_the_right(model, side):
    """Most kinds of positions would read another sentence, without a word."""
    inputs = batch() | {side: MISPLACED[side]}
    eager = keras.tree.map_structure(lambda x: keras.ops.convert_to_tensor(x, "int32"), inputs)
    for call in (
        lambda: model(inputs),
        lambda: model(eager),
        lambda: model.fit(inputs, LABELS),
        lambda: model.evaluate(inputs, LABELS),
        lambda: model.predict(inputs),
        lambda: model.fit(batch(), LABELS, validation_data=(inputs, LABELS)),
    ):
        with pytest.raises(ValueError, match="Padding stands before or between"):
            call()
    with pytest.raises(ValueError) as error:
        model(inputs)
    assert f"Received: {MISPLACED[side][1].tolist()}." in str(error.value)


def test_padding_is_looked_at_where_ids_are_generated_and_scored(model):
    source = MISPLACED["source"]
    target = np.array([[4, 5, 2], [7, 0, 2], [0, 0, 0]])
    for call in (
        lambda: model.generate(source, max_length=3, jit_compile=False),
        lambda: model.encode(source),
        lambda: model.score(source, target, jit_compile=False),
    ):
        with pytest.raises(ValueError, match="of a source row"):
            call()
    for ids in (target, np.stack([target[:, ::-1], target], axis=1)):
        with pytest.raises(ValueError, match="of a target row"):
            model.score(batch()["source"], ids, jit_compile=False)


def test_a_start_token_that_is_padding_is_real():
    """As in Marian and T5; and rows of padding, and labels in between, stay what they are."""
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1, start_id=0)
    model.compile("sgd", MaskedSparseCategoricalCrossentropy(), run_eagerly=True)
    target = np.array([[0, 4, 5, 6, 0], [0, 7, 0, 0, 0], [0, 0, 0, 0, 0]])
    labels = np.array([[4, 0, 6, 2, 0], [7, 2, 0, 0, 0], [0, 0, 0, 0, 0]])
    inputs = batch() | {"source": np.where(MISPLACED["source"] == 0, 0, 5), "target": target}
    inputs["source"][1] = 0
    assert np.isfinite(model.test_on_batch(inputs, labels))
    with pytest.raises(ValueError, match=r"of a target row.*Received: \[0, 0, 7, 0, 0\]"):
        model(inputs | {"target": np.array([[0, 0, 7, 0, 0]] * 3)})


def test_rows_longer_than_a_table_of_positions_are_refused_everywhere():
    import tensorflow as tf

    model = tiny_model(
        num_encoder_layers=1, num_decoder_layers=1, positions="learned", max_length=5
    )
    model.compile("sgd", MaskedSparseCategoricalCrossentropy(), jit_compile=False)
    long, short = np.full((3, 7), 4), np.full((3, 4), 4)
    for call in (
        lambda: model.generate(long, jit_compile=False),
        lambda: model.generate(long, num_beams=2),
        lambda: model.score(long, short, jit_compile=False),
        lambda: model.score(short, long, jit_compile=False),
        lambda: model.encode(long),
        lambda: model({"source": long, "target": short}),
        lambda: model({"source": short, "target": long}),
        lambda: model.fit({"source": long, "target": short}, short),
        lambda: model.predict({"source": short, "target": long}),
    ):
        with pytest.raises(
            ValueError, match=r"longer than the table.*Expected at most 5 positions"
        ):
            call()
    with pytest.raises(ValueError, match=r"cannot generate past them.*<= 5. Received: 6"):
        model.generate(short, max_length=6, jit_compile=False)
    # Where a length is not known before, no gather reads beyond the table: on a GPU it gives zeros.
    ids = tf.TensorSpec([None, None], tf.int32)
    encode = tf.function(lambda source: model.encode(source)[0], [ids], autograph=False)
    np.testing.assert_allclose(
        encode(tf.constant(short, tf.int32)), array(model.encode(short)[0]), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        encode(tf.constant(long, tf.int32))
    sizes = {"source_vocabulary_size": 300, "target_vocabulary_size": 300}
    model = tiny_model(positions="learned", max_length=5, **sizes)
    with pytest.raises(ValueError, match="The data set's rows are longer than the table"):
        model.fit(make_training_dataset([("a" * 7, "b")], ByteTokenizer()))


@pytest.mark.parametrize("value", [-1, V_TARGET])
def test_labels_are_looked_at(model, value):
    labels = LABELS.copy()
    labels[0, 0] = value
    with pytest.raises(ValueError, match="A label id lies outside"):
        model.fit(batch(), labels)
    with pytest.raises(ValueError, match="A label id lies outside"):
        model.fit(batch(), LABELS, validation_data=[batch(), labels])


def test_a_label_that_counts_nowhere_may_be_negative():
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    model.compile("sgd", MaskedSparseCategoricalCrossentropy(pad_id=-100), run_eagerly=True)
    assert np.isfinite(model.test_on_batch(batch(), np.where(LABELS == 0, -100, LABELS)))


@pytest.mark.parametrize("make", [make_training_batches, make_training_dataset])
def test_a_data_set_of_another_tokenizer_is_refused(model, make):
    data = make(PAIRS, ByteTokenizer())
    with pytest.raises(ValueError, match=r"source ids below 13.*Received: ids up to 102"):
        model.fit(data)
    with pytest.raises(ValueError, match="does not belong to the model"):
        model.fit(batch(), LABELS, validation_data=data)


def test_whole_numbers_of_any_type_are_read(model):
    expected = array(model(batch()))
    for dtype in ("int8", "uint16", "int64", "float32"):
        inputs = {side: ids.astype(dtype) for side, ids in batch().items()}
        np.testing.assert_array_equal(array(model(inputs)), expected)


def test_nothing_is_looked_at_in_a_trace(model, monkeypatch):
    import tensorflow as tf

    seen = []
    from keras_addnorm.models import checks

    monkeypatch.setattr(checks, "check_ids", lambda *arguments: seen.append(arguments))
    traced = tf.function(lambda source, target: model({"source": source, "target": target}))
    traced(tf.constant(SOURCE, tf.int32), tf.constant(TARGET, tf.int32))
    assert not seen


def test_a_data_set_of_others_gives_nan():
    """Source ids, target ids and labels that XLA would clip are in no plausible number."""
    import tensorflow as tf

    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    model.compile("sgd", MaskedSparseCategoricalCrossentropy(), jit_compile=True)
    labels = LABELS.copy()
    labels[0, 0] = V_TARGET + 5

    def data(inputs, labels):
        of_int64 = keras.tree.map_structure(lambda ids: ids.astype("int64"), (inputs, labels))
        return tf.data.Dataset.from_tensors(of_int64)

    assert np.isfinite(model.evaluate(data(batch(), LABELS), verbose=0))
    for side in SIZES:
        for value in (-1, SIZES[side], 2**32 + 4):
            wrong = spoiled(side, value)
            assert np.isnan(model.evaluate(data(wrong, LABELS), verbose=0)), (side, value)
    predicted = model.predict(data(spoiled("source", V_SOURCE), LABELS), verbose=0)
    np.testing.assert_array_equal(np.isnan(predicted).all((1, 2)), [False, True, False])
    np.testing.assert_array_equal(np.isnan(predicted).any((1, 2)), [False, True, False])
    assert np.isnan(model.evaluate(data(batch(), labels), verbose=0))
    history = model.fit(data(batch(), labels), verbose=0, shuffle=False).history
    assert np.isnan(history["loss"]).all()


PROBABILITIES = [
    "sparse_categorical_crossentropy",
    "CategoricalCrossentropy",
    "ce",
    keras.losses.binary_crossentropy,
    keras.losses.SparseCategoricalCrossentropy(),
    ["sparse_categorical_crossentropy"],
]


@pytest.mark.parametrize("loss", PROBABILITIES)
def test_a_loss_of_probabilities_is_refused(model, loss):
    before = model.loss
    with pytest.raises(ValueError, match="gives logits, and this loss takes probabilities"):
        model.compile("sgd", loss)
    assert model.loss is before


def test_losses_of_logits_are_compiled_and_saved(tmp_path):
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    model.compile("sgd", None, [1.0])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.compile("adam", lambda labels, logits: keras.ops.mean(logits))
    model.compile("adam", MaskedSparseCategoricalCrossentropy(0.1))
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.loss.get_config() == model.loss.get_config()
    assert [v.path for v in again.optimizer.variables] == [
        v.path for v in model.optimizer.variables
    ]
