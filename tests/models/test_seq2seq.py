import keras
import numpy as np
import pytest
import tensorflow as tf
from models_reference import (
    SOURCE,
    TARGET,
    V_SOURCE,
    V_TARGET,
    array,
    batch,
    config,
    randomize,
    tiny_model,
)

from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

# Masks, order and files do not depend on the scheme; `layers/test_scheme_norm_matrix.py` has every
# scheme's formula in a whole model.
PLANS = ("post_ln", "sandwich_ln", "sub_ln", "admin")


@pytest.fixture(scope="module")
def models():
    """One random model a scheme, made when it is first asked for."""
    made = {}

    def get(scheme):
        if scheme not in made:
            made[scheme] = tiny_model(scheme=scheme)
        return made[scheme]

    return get


# What it computes


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("scheme", PLANS)
def test_logits_are_embedding_encoder_decoder_and_tied_projection(scheme, models):
    model = models(scheme)
    embed = model.encoder_embedding, model.decoder_embedding
    memory = model.encoder(array(embed[0](SOURCE)), padding_mask=SOURCE != 0)
    hidden = model.decoder(
        array(embed[1](TARGET)),
        array(memory),
        padding_mask=TARGET != 0,
        memory_padding_mask=SOURCE != 0,
    )
    expected = array(hidden) @ array(embed[1].embeddings).T
    logits = model(batch())
    assert (logits.shape, logits.dtype) == ((3, 5, V_TARGET), tf.float32)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("overrides", "embeddings", "has_projection"),
    [
        ({}, 2, False),
        ({"tie_embeddings": False}, 2, True),
        ({"share_embeddings": True, "source_vocabulary_size": V_TARGET}, 1, False),
    ],
)
def test_tied_untied_and_shared_embeddings(overrides, embeddings, has_projection):
    model = Seq2SeqTransformer(config(**overrides))
    tables = [w for w in model.weights if "embedding" in w.path]
    assert len(tables) == embeddings
    assert (model.vocabulary_projection is not None) == has_projection
    assert model.count_params() == sum(np.prod(w.shape) for w in model.weights)
    source = np.minimum(SOURCE, V_TARGET - 1)
    assert model(batch(source)).shape == (3, 5, V_TARGET)
    if has_projection:
        kernel = model.vocabulary_projection.kernel
        before = array(model(batch(source)))
        kernel.assign(kernel * 2.0)
        np.testing.assert_allclose(model(batch(source)), 2 * before, rtol=1e-4, atol=1e-5)


def test_dropout_acts_while_training_only():
    model = tiny_model(dropout=0.5)
    np.testing.assert_array_equal(model(batch()), model(batch(), training=False))
    difference = array(model(batch(), training=True)) - array(model(batch()))
    assert np.abs(difference).max() > 1e-2


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_dtype_policies(policy):
    model = Seq2SeqTransformer(config(scheme="pre_ln"), dtype=policy)
    logits = model(batch())
    assert logits.dtype == (tf.float64 if policy == "float64" else tf.float32)
    assert np.isfinite(array(logits)).all()
    assert {w.dtype for w in model.weights} == {"float64" if policy == "float64" else "float32"}
    memory, _ = model.encode(SOURCE)
    assert memory.dtype == policy.removeprefix("mixed_")


def test_a_decoding_step_returns_the_attention_weights_of_the_full_pass(models):
    model, beams = models("pre_ln"), 2
    memory, mask = model.encode(SOURCE)
    _, expected = model.decoder(
        model.decoder_embedding(TARGET),
        memory,
        memory_padding_mask=mask,
        padding_mask=np.ones(TARGET.shape, bool),
        return_attention_scores=True,
    )
    cache = model.initial_cache(memory, beams * len(SOURCE), TARGET.shape[1])
    for t in range(TARGET.shape[1]):
        tokens = np.repeat(TARGET[:, t], beams)
        plain = model.decode_step(tokens, cache, t, mask)
        logits, cache, scores = model.decode_step(
            tokens, cache, t, mask, return_attention_scores=True
        )
        np.testing.assert_array_equal(plain[0], logits)
        assert len(plain) == 2 and len(scores) == 2
        for layer, full in zip(scores, expected, strict=True):
            assert set(layer) == {"self_attention", "cross_attention"}
            for name, weights in layer.items():
                rows = np.repeat(array(full[name])[:, :, t], beams, axis=0)
                np.testing.assert_allclose(weights[:, :, 0], rows, atol=1e-6, err_msg=name)


# What it does not look at


@pytest.mark.parametrize("scheme", PLANS)
def test_a_future_token_changes_nothing(scheme, models):
    model, target = models(scheme), np.where(TARGET == 0, 5, TARGET)
    changed = target.copy()
    changed[:, 3] = 9
    before, after = (array(model(batch(target=ids))) for ids in (target, changed))
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    # Without a skip connection, little of a token comes through random layers.
    assert (after != before)[:, 3:].any()


@pytest.mark.parametrize("scheme", PLANS)
def test_more_padding_changes_nothing(scheme, models):
    model = models(scheme)
    longer = np.pad(SOURCE, ((0, 0), (0, 4))), np.pad(TARGET, ((0, 0), (0, 3)))
    before, after = array(model(batch())), array(model(batch(*longer)))
    np.testing.assert_allclose(after[:, :5][TARGET != 0], before[TARGET != 0], atol=2e-6, rtol=1e-5)


def test_the_embedding_of_the_pad_token_changes_nothing(models):
    model = models("pre_ln")
    before = array(model(batch()))
    tables = [model.encoder_embedding.embeddings, model.decoder_embedding.embeddings]
    kept = [array(table) for table in tables]
    for table, values in zip(tables, kept, strict=True):
        moved = values.copy()
        moved[0] += np.random.default_rng(3).normal(size=moved.shape[1])
        table.assign(moved)
    after = array(model(batch()))
    for table, values in zip(tables, kept, strict=True):
        table.assign(values)
    real = TARGET != 0
    # Column 0 is the logit of the pad token itself, which is tied to its embedding.
    np.testing.assert_array_equal(after[real][:, 1:], before[real][:, 1:])
    assert np.abs(after[~real] - before[~real]).max() > 1e-3


@pytest.mark.parametrize("scheme", PLANS)
def test_a_neighbour_in_the_batch_changes_nothing(scheme, models):
    model = models(scheme)
    together = array(model(batch()))
    others = batch(SOURCE.copy(), TARGET.copy())
    others["source"][[0, 2]], others["target"][[0, 2]] = 3, 5
    np.testing.assert_array_equal(array(model(others))[1], together[1])
    alone = array(model(batch(SOURCE[1:2], TARGET[1:2])))
    np.testing.assert_allclose(alone[0], together[1], atol=1e-5, rtol=1e-5)


def test_every_source_token_matters(models):
    model = models("post_ln")
    before = array(model(batch()))
    for position in range(6):
        changed = SOURCE.copy()
        changed[0, position] = 11
        assert np.abs(array(model(batch(changed)))[0] - before[0]).max() > 1e-4


def test_a_source_of_padding_only_gives_finite_logits_and_gradients(models):
    model, source = models("post_ln"), SOURCE.copy()
    source[1] = 0
    with tf.GradientTape() as tape:
        logits = model(batch(source))
        loss = tf.reduce_sum(logits**2)
    gradients = tape.gradient(loss, [w.value for w in model.trainable_variables])
    for value in (logits, *gradients):
        assert np.isfinite(array(tf.convert_to_tensor(value))).all()


# Compilation


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["post_ln", "sandwich_ln", "layer_scale"])
def test_xla_equals_eager(scheme, models):
    model = models(scheme)
    compiled = tf.function(model, jit_compile=True)
    arrays = {name: tf.constant(ids, "int32") for name, ids in batch().items()}
    np.testing.assert_allclose(compiled(arrays), model(batch()), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_fit_traces_once_a_bucket_and_learns():
    traces = []

    class Counting(MaskedSparseCategoricalCrossentropy):
        def call(self, y_true, y_pred):
            traces.append(y_pred.shape)  # Python runs while tracing only
            return super().call(y_true, y_pred)

    rng = np.random.default_rng(4)

    def batches():
        for step in range(18):
            length = (3, 5, 7)[step % 3]
            ids = rng.integers(3, V_TARGET, (4, length)).astype("int32")
            target = np.concatenate([np.ones((4, 1), "int32"), ids[:, :-1]], axis=1)
            yield {"source": ids, "target": target}, ids

    spec = tf.TensorSpec((4, None), tf.int32)
    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=({"source": spec, "target": spec}, spec)
    ).apply(tf.data.experimental.assert_cardinality(18))
    model = Seq2SeqTransformer(config(num_encoder_layers=1, num_decoder_layers=1, dropout=0.1))
    model.compile(keras.optimizers.Adam(3e-3), Counting())
    losses = model.fit(dataset.take(3), verbose=0, shuffle=False).history["loss"]
    # A pass or two each: Keras may trace once more to make the optimizer's variables.
    first = len(traces)
    assert 1 <= first <= 2 * 3
    losses += model.fit(dataset, epochs=4, verbose=0, shuffle=False).history["loss"]
    assert len(traces) <= first + 3, traces
    assert losses[-1] < losses[0] - 0.1


# Saving


def test_a_config_and_its_dict_make_the_same_model():
    model = Seq2SeqTransformer(config().to_dict(), name="m")
    assert model.config == config()
    clone = Seq2SeqTransformer.from_config(model.get_config())
    assert (clone.config, clone.name) == (model.config, "m")
    assert [w.path for w in clone.weights] == [w.path for w in model.weights]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("scheme", PLANS)
def test_keras_and_weight_files_round_trip(scheme, models, tmp_path):
    model = models(scheme)
    expected = array(model(batch()))
    model.save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras")
    assert isinstance(reloaded, Seq2SeqTransformer)
    assert reloaded.config == model.config
    np.testing.assert_array_equal(reloaded(batch()), expected)

    model.save_weights(tmp_path / "m.weights.h5")
    other = Seq2SeqTransformer(config(scheme=scheme))
    assert not np.allclose(other(batch()), expected)
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(other(batch()), expected)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "overrides",
    [
        {"tie_embeddings": False},
        {"share_embeddings": True, "source_vocabulary_size": V_TARGET},
        {"positions": "learned", "activation": "swiglu", "norm": "rms_norm"},
    ],
)
def test_other_shapes_round_trip_too(overrides, tmp_path):
    model, source = tiny_model(**overrides), np.minimum(SOURCE, V_TARGET - 1)
    model.save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(reloaded(batch(source)), model(batch(source)))
    if "share_embeddings" in overrides:
        assert reloaded.encoder_embedding is reloaded.decoder_embedding


def test_the_dtype_policy_is_saved(tmp_path):
    model = Seq2SeqTransformer(config(), dtype="mixed_bfloat16")
    model.save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras")
    assert reloaded.decoder.dtype_policy.name == "mixed_bfloat16"
    assert reloaded.encoder_embedding.compute_dtype == "bfloat16"
    np.testing.assert_array_equal(reloaded(batch()), model(batch()))


@pytest.mark.slow
def test_a_compiled_model_keeps_its_optimizer_and_loss(tmp_path):
    model = Seq2SeqTransformer(config(num_encoder_layers=1, num_decoder_layers=1))
    model.compile("adam", MaskedSparseCategoricalCrossentropy(0.1))
    labels = np.roll(TARGET, -1, axis=1)
    model.fit(batch(), labels, verbose=0)
    model.save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras")
    assert int(reloaded.optimizer.iterations) == 1
    moments = zip(reloaded.optimizer.variables, model.optimizer.variables, strict=True)
    for mine, theirs in moments:
        np.testing.assert_array_equal(array(mine), array(theirs))
    assert reloaded.loss.label_smoothing == 0.1


# Reading and misuse


def test_summary_names_the_parts_of_the_figure():
    lines = []
    Seq2SeqTransformer(config()).summary(print_fn=lambda line, **_: lines.append(line))
    text = "\n".join(lines)
    for part in (
        "source",
        "encoder_embedding",
        "encoder",
        "target",
        "decoder_embedding",
        "decoder",
    ):
        assert part in text


def test_attributes_are_the_sublayers():
    model = Seq2SeqTransformer(config(num_encoder_layers=1, num_decoder_layers=3))
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (1, 3)
    assert (model.encoder.num_other_layers, model.decoder.num_other_layers) == (3, 1)
    assert randomize(model).encoder_embedding.vocabulary_size == V_SOURCE


def test_ids_without_a_batch_axis_are_named(models):
    with pytest.raises(ValueError, match=r"Invalid input shape for input.*'source'"):
        models("post_ln")(batch(SOURCE[0]))


def test_learned_positions_end_at_max_length():
    model = Seq2SeqTransformer(config(positions="learned", max_length=6))
    with pytest.raises(ValueError, match=r"Expected at most 6 positions. Received: 7"):
        model(batch())


@pytest.mark.parametrize("name", ["tiny"])
def test_a_preset_builds(name):
    model = Seq2SeqTransformer(
        Seq2SeqConfig.preset(name, source_vocabulary_size=V_SOURCE, target_vocabulary_size=V_TARGET)
    )
    # Counted by hand: D = 128, F = 256, 4 + 4 layers, two tables, and Pre-LN's two final norms.
    attention, feed_forward, norm = 4 * (128 * 128 + 128), 2 * 128 * 256 + 128 + 256, 2 * 128
    encoder = 4 * (attention + feed_forward + 2 * norm)
    decoder = 4 * (2 * attention + feed_forward + 3 * norm)
    assert model.count_params() == encoder + decoder + 2 * norm + 128 * (V_SOURCE + V_TARGET)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("from_preset", "Seq2SeqConfig.preset"), ("from_pretrained", "interop.load_pretrained")],
)
def test_constructors_of_other_libraries_are_answered_with_ours(name, answer):
    with pytest.raises(AttributeError, match=f"Seq2SeqTransformer has no '{name}'. .*{answer}"):
        getattr(Seq2SeqTransformer, name)
