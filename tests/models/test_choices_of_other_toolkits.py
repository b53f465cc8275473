"""Models as other toolkits have them: special ids that coincide, other positions, norms, biases.

`FORMULA` has every such choice in some model, computed here once more in NumPy.
"""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from models_reference import array

from keras_addnorm.decoding import Beam
from keras_addnorm.diagnostics import Validation, attention_maps, inspect, predict_stability
from keras_addnorm.layers.masks import token_mask
from keras_addnorm.layers.positional_embedding import SharedTableEmbedding
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, enable_lora, merge_lora
from keras_addnorm.models.rebuild import rebuild

V, D, L = 13, 8, 9

# As BART has it: positions and norm of each side beside one table. `start_id` is padding, the last.
BART = {
    "scheme": {"name": "post_ln", "final_norm": True},
    "epsilon": 1e-5,
    "positions": "learned",
    "share_embeddings": True,
    "embedding_norm": "layer_norm",
    "embedding_scale": 1.7,
    "logits_bias": True,
    "head_dim": 5,
    "num_heads": 3,
    "use_bias": False,
    "activation": "geglu_tanh",
    "pad_id": V - 1,
    "start_id": V - 1,
    "end_id": 0,
}
# As Marian has it: nothing of the sides but what is masked.
MARIAN = {
    "positions": {"name": "sinusoidal", "layout": "halves"},
    "activation": "gelu_sigmoid",
    "share_embeddings": True,
    "logits_bias": True,
    "pad_id": V - 1,
    "start_id": V - 1,
    "end_id": 0,
}
# As fairseq has it.
FAIRSEQ = {
    "scheme": "pre_ln",
    "positions": {
        "name": "sinusoidal",
        "layout": "halves",
        "timescales": "half_minus_one",
        "offset": 2,
    },
    "activation": "gelu_tanh",
    "head_dim": 3,
    "source_vocabulary_size": 11,
    "tie_embeddings": False,
    "logits_bias": False,
    "embedding_norm": {"encoder": "layer_norm", "decoder": "rms_norm"},
    "pad_id": 1,
    "start_id": 2,
    "end_id": 2,
}
MODELS = {"bart": BART, "marian": MARIAN, "fairseq": FAIRSEQ}


def make_config(name, **changes):
    sizes = {
        "source_vocabulary_size": V,
        "target_vocabulary_size": V,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "hidden_dim": D,
        "intermediate_dim": 7,
        "num_heads": 2,
        "max_length": L,
        "dropout": 0.0,
    }
    return Seq2SeqConfig(**{**sizes, **MODELS[name], **changes})


def fill(model, seed=3):
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(array(weight) + rng.normal(scale=0.4, size=tuple(weight.shape)))
    return model


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return fill(Seq2SeqTransformer(make_config(request.param), dtype="float64"))


@pytest.fixture(scope="module")
def bart():
    return fill(Seq2SeqTransformer(make_config("bart")))


def batch(config):
    """Sources and targets of several lengths; the words are 3 to 9."""
    source = np.full((3, 5), config.pad_id)
    target = np.full((3, 4), config.pad_id)
    rng = np.random.default_rng(7)
    for row, (length, words) in enumerate(((5, 3), (3, 2), (4, 0))):
        source[row, :length] = [*rng.integers(3, 10, length - 1), config.end_id]
        target[row, : 1 + words] = [config.start_id, *rng.integers(3, 10, words)]
    return {"source": source, "target": target}


# Formulas


def layer_norm(x, norm, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return array(norm.gamma) * x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) + array(
        norm.beta
    )


def normalise(x, norm, config):
    if hasattr(norm, "gamma"):
        return layer_norm(x, norm, config.epsilon)
    return array(norm.scale) * x / np.sqrt((x**2).mean(-1, keepdims=True) + config.epsilon)


def project(x, layer, config):
    y = x @ array(layer.kernel)
    return y + array(layer.bias) if config.use_bias else y


ACTIVATIONS = {
    "gelu_sigmoid": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


def halves(length, config):
    fields, half = config.positions, config.hidden_dim // 2
    last = half - 1 if fields.get("timescales") == "half_minus_one" else half
    table = np.zeros((length, config.hidden_dim))
    for row in range(length):
        for i in range(half):
            angle = (row + fields.get("offset", 0)) / 10000 ** (i / last)
            table[row, i], table[row, half + i] = math.sin(angle), math.cos(angle)
    return table


def embed(ids, embedding, table, config):
    length = ids.shape[1]
    if config.positions == "learned":
        positions = array(embedding.position_encoding.embeddings)[:length]
    else:
        positions = halves(length, config)
    scale = config.embedding_scale or math.sqrt(config.hidden_dim)
    x = array(table)[ids] * scale + positions
    return x if config.embedding_norm is None else normalise(x, embedding.embedding_norm, config)


def attend(layer, x, memory, mask, config):
    width, heads = config.head_dim or config.hidden_dim // config.num_heads, config.num_heads
    q = project(x, layer.query_projection, config).reshape(*x.shape[:2], heads, width)
    k, v = (
        project(memory, one, config).reshape(*memory.shape[:2], heads, width)
        for one in (layer.key_projection, layer.value_projection)
    )
    logits = np.einsum("bthk,bshk->bhts", q, k) / math.sqrt(width)
    weights = np.where(mask[:, None], np.exp(logits - logits.max(-1, keepdims=True)), 0)
    weights /= weights.sum(-1, keepdims=True)
    context = np.einsum("bhts,bshk->bthk", weights, v).reshape(*x.shape[:2], heads * width)
    return project(context, layer.output_projection, config)


def feed_forward(layer, x, config):
    h = project(x, layer.intermediate_projection, config)
    if config.activation == "geglu_tanh":
        gate = project(x, layer.gate_projection, config)
        return project(ACTIVATIONS["gelu_tanh"](gate) * h, layer.output_projection, config)
    return project(ACTIVATIONS[config.activation](h), layer.output_projection, config)


def sublayer(x, add_norm, run, config):
    if config.scheme == "pre_ln":
        return x + run(normalise(x, add_norm.pre_norm, config))
    return normalise(x + run(x), add_norm.post_norm, config)


def stack(x, layers, mask, memory, memory_mask, config):
    for layer in layers.layers:
        x = sublayer(
            x,
            layer.self_attention_add_norm,
            lambda h, layer=layer: attend(layer.self_attention, h, h, mask, config),
            config,
        )
        if memory is not None:
            x = sublayer(
                x,
                layer.cross_attention_add_norm,
                lambda h, layer=layer: attend(
                    layer.cross_attention, h, memory, memory_mask, config
                ),
                config,
            )
        x = sublayer(
            x,
            layer.feed_forward_add_norm,
            lambda h, layer=layer: feed_forward(layer.feed_forward, h, config),
            config,
        )
    return x if layers.final_norm is None else normalise(x, layers.final_norm, config)


def formula(model, source, target):
    """The logits. A position of a target that is padding, the first apart, is hidden."""
    config = model.config
    tables = [model.encoder_embedding.embeddings, model.decoder_embedding.embeddings]
    keys = (source != config.pad_id)[:, None, :]
    x = embed(source, model.encoder_embedding, tables[0], config)
    memory = stack(x, model.encoder, np.repeat(keys, x.shape[1], 1), None, None, config)
    is_real = target != config.pad_id
    is_real[:, 0] = True
    y = embed(target, model.decoder_embedding, tables[1], config)
    mask = np.tri(target.shape[1], dtype=bool) & is_real[:, None]
    y = stack(y, model.decoder, mask, memory, np.repeat(keys, y.shape[1], 1), config)
    if not config.tie_embeddings:
        return y @ array(model.vocabulary_projection.kernel)
    return y @ array(tables[1]).T + array(model.decoder_embedding.logits_bias)


# What it computes


def test_the_model_equals_the_formula(model):
    inputs = batch(model.config)
    expected = formula(model, inputs["source"], inputs["target"])
    # Keras computes the constants of gelu in float32.
    np.testing.assert_allclose(array(model(inputs)), expected, rtol=1e-6, atol=1e-6)


def test_the_final_norm_stands_where_it_is_asked_for(model):
    needs = model.config.scheme != "post_ln"
    assert [s.final_norm is not None for s in (model.encoder, model.decoder)] == [needs, needs]


def test_a_mask_of_tokens():
    ids = np.array([[4, 0, 5], [0, 0, 0], [0, 7, 0]])
    np.testing.assert_array_equal(token_mask(ids, 0), ids != 0)
    expected = [[True, False, True], [True, False, False], [True, True, False]]
    np.testing.assert_array_equal(token_mask(ids, 0, is_first_real=True), expected)
    symbolic = token_mask(keras.KerasTensor((None, None), dtype="int32"), 0, is_first_real=True)
    assert (symbolic.shape, symbolic.dtype) == ((None, None), "bool")


def test_teacher_forcing_equals_cached_decoding(model):
    """The start token is read in both, though it may be padding."""
    config, inputs = model.config, batch(model.config)
    memory, mask = model.encode(inputs["source"])
    whole = array(model(inputs))
    # Logits of a projection are float32, which processors round differently.
    atol = 1e-12 if whole.dtype == "float64" else 1e-6
    np.testing.assert_allclose(
        array(model.decode_sequence(inputs["target"], memory, mask)[0]), whole, atol=1e-12
    )
    cache = model.initial_cache(memory, 3, 4)
    is_real = array(token_mask(inputs["target"], config.pad_id, is_first_real=True))
    for t in range(4):
        logits, cache = model.decode_step(inputs["target"][:, t], cache, t, mask)
        rows = is_real[:, t]
        np.testing.assert_allclose(array(logits)[rows], whole[rows, t], atol=atol)


def test_the_start_is_looked_at_in_the_maps(bart):
    inputs = batch(bart.config)
    maps = attention_maps(bart, inputs["source"][0], inputs["target"][0])
    np.testing.assert_allclose(maps.decoder_self.sum(-1), 1.0, atol=1e-6)
    assert (maps.decoder_self[..., 0] > 0).all()


@pytest.mark.fast_cases(1)
def test_padding_counts_in_no_loss_of_a_report(model):
    """By default, the mean over the labels that are not padding, whatever its id."""
    inputs, pad_id = batch(model.config), model.config.pad_id
    labels = np.roll(inputs["target"], -1, axis=1)
    labels[:, -1] = pad_id
    logits = array(model(inputs))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    expected = -chosen[labels != pad_id].mean()
    assert inspect(model, (inputs, labels)).loss == pytest.approx(expected, rel=1e-6)
    data = tf.data.Dataset.from_tensors((inputs, labels))
    found = Validation(data=data)(rebuild(model))
    assert found["loss"] == pytest.approx(expected, rel=1e-6)
    assert found["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)


def by_full_passes(model, source, max_length):
    """Greedy search that computes the whole target anew at each step, by the formula."""
    config = model.config
    target, scores = np.full((len(source), 1), config.start_id), np.zeros(len(source))
    never = list({config.pad_id, config.start_id} - {config.end_id})
    is_over = np.zeros(len(source), bool)
    for _ in range(max_length):
        logits = formula(model, source, target)[:, -1]
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        log_p[:, never] = -np.inf
        token = np.where(is_over, config.pad_id, log_p.argmax(-1))
        scores += np.where(is_over, 0, log_p.max(-1))
        target = np.concatenate([target, token[:, None]], axis=1)
        is_over |= token == config.end_id
    return target[:, 1:], scores


@pytest.mark.fast_cases(1)
def test_greedy_search_equals_full_passes(model):
    source = batch(model.config)["source"]
    ids, scores = model.generate(source, max_length=5, jit_compile=False)
    expected, expected_scores = by_full_passes(model, source, 5)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_beam_scores_its_outputs_as_full_passes_do(bart, jit_compile):
    source = batch(bart.config)["source"]
    beam = Beam(3, 0.0, num_return=3)
    ids, scores = bart.generate(source, beam, max_length=4, jit_compile=jit_compile)
    start = np.full((3, 1), bart.config.start_id)
    for place in range(3):
        inputs = np.concatenate([start, ids[:, place, :-1]], axis=1)
        logits = formula(bart, source, inputs)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        chosen = np.take_along_axis(log_p, ids[:, place, :, None], axis=-1)[..., 0]
        total = np.where(ids[:, place] == bart.config.pad_id, 0, chosen).sum(-1)
        np.testing.assert_allclose(scores[:, place], total, rtol=1e-4)
    greedy, _ = bart.generate(source, max_length=5, jit_compile=jit_compile)
    np.testing.assert_array_equal(greedy, by_full_passes(bart, source, 5)[0])


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "model", ["bart", "marian"], indirect=True
)  # An own projection is float32.
def test_gradients_of_what_is_shared_and_what_is_not(model):
    """Along each weight of the embeddings: the slope of a central difference."""
    inputs, config = batch(model.config), model.config
    sides = (model.encoder_embedding, model.decoder_embedding)
    embeddings = {id(weight): weight for side in sides for weight in side.weights}
    cotangent = np.random.default_rng(4).normal(size=(3, 4, config.target_vocabulary_size))
    rng = np.random.default_rng(5)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(model(inputs) * cotangent)
    weights = list(embeddings.values())
    slopes = tape.gradient(value, [w.value for w in weights])
    for weight, slope in zip(weights, slopes, strict=True):
        kept, direction, h = array(weight), rng.normal(size=weight.shape), 1e-5
        values = []
        for sign in (1, -1):
            weight.assign(kept + sign * h * direction)
            values.append((array(model(inputs)) * cotangent).sum())
        weight.assign(kept)
        expected = (values[0] - values[1]) / (2 * h)
        found = (array(tf.convert_to_tensor(slope)) * direction).sum()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=weight.path)
        assert abs(expected) > 1e-6, weight.path


# One table, two sides


def test_the_sides_share_the_table_alone(bart):
    source, target = bart.encoder_embedding, bart.decoder_embedding
    assert isinstance(source, SharedTableEmbedding)
    assert source.embeddings is target.embeddings
    assert source.position_encoding is not target.position_encoding
    assert source.embedding_norm is not target.embedding_norm
    paths = [weight.path for weight in bart.weights]
    assert len(paths) == len(set(paths))
    tables = [weight for weight in bart.weights if weight.shape == (V, D)]
    assert len(tables) == 1


def test_sides_without_anything_of_their_own_are_one_layer():
    shared = Seq2SeqTransformer(make_config("marian", start_id=1))
    assert shared.encoder_embedding is shared.decoder_embedding
    marian = Seq2SeqTransformer(make_config("marian"))
    assert marian.encoder_embedding.embeddings is marian.decoder_embedding.embeddings
    assert marian.encoder_embedding.weights == []


# Files and copies


def test_files_copies_and_clones(bart, tmp_path):
    inputs = batch(bart.config)
    expected = array(bart(inputs))
    bart.save(tmp_path / "m.keras")
    bart.save_weights(tmp_path / "m.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    assert loaded.config == bart.config
    from_weights = Seq2SeqTransformer(bart.config)
    from_weights.load_weights(tmp_path / "m.weights.h5")
    clone = keras.models.clone_model(bart)
    assert clone.encoder_embedding.embeddings is clone.decoder_embedding.embeddings
    assert clone.decoder_embedding.embeddings is not bart.decoder_embedding.embeddings
    clone.set_weights(bart.get_weights())
    for one in (loaded, from_weights, clone, rebuild(bart)):
        np.testing.assert_allclose(array(one(inputs)), expected, rtol=1e-6, atol=1e-6)
    layer = bart.encoder_embedding
    alone = SharedTableEmbedding.from_config(layer.get_config())
    assert (alone.norm, alone.scale, alone.vocabulary_size) == ("layer_norm", 1.7, V)


@pytest.mark.parametrize("name", MODELS)
def test_configs_are_plain(name):
    config = make_config(name)
    again = Seq2SeqConfig.from_json(json.dumps(config.to_dict()))
    assert again == config and hash(again) == hash(config)


def test_lora_and_quantisation(tmp_path):
    """The table is one matrix for both sides, beside a bias that is not rounded."""
    model = fill(Seq2SeqTransformer(make_config("bart")))
    inputs = batch(model.config)
    before = array(model(inputs))
    enable_lora(model, 2, filters="embedding")
    matrix = model.decoder_embedding.lora_embeddings_b
    matrix.assign(np.random.default_rng(1).normal(size=matrix.shape))
    changed = array(model(inputs))
    assert np.abs(changed - before).max() > 1e-2
    merged = merge_lora(model)
    np.testing.assert_allclose(array(merged(inputs)), changed, rtol=1e-4, atol=1e-5)
    merged.quantize("int8", filters="embedding")
    rounded = array(merged(inputs))
    assert merged.decoder_embedding.quantization_mode == "int8"
    np.testing.assert_allclose(rounded, changed, atol=0.1 * np.abs(changed).max())
    bias = array(merged.decoder_embedding.logits_bias)
    np.testing.assert_array_equal(bias, array(model.decoder_embedding.logits_bias))
    merged.save_weights(tmp_path / "m.weights.h5")
    loaded = Seq2SeqTransformer.from_config(merged.get_config())
    loaded.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_allclose(array(loaded(inputs)), rounded, rtol=1e-5, atol=1e-5)


# Refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad_id": 3, "end_id": 3}, "padding cannot be the end.*pad_id other than end_id"),
        ({"end_id": V}, r"Expected ids in \[0, 13\)"),
        ({"source_vocabulary_size": 5}, "pad_id in the source vocabulary, below 5. Received: 12"),
        ({"positions": {"name": "sinusoidal", "layout": "thirds"}}, "interleaved, halves.*thirds"),
        ({"positions": {"name": "sinusoidal", "timescales": "full"}}, "half_minus_one.*'full'"),
        ({"positions": {"name": "sinusoidal", "offset": -1}}, "integer >= 0. Received: -1"),
        ({"positions": {"name": "sinusoidal", "phase": 1}}, "layout', 'timescales', 'offset"),
        ({"hidden_dim": 7, "num_heads": 1}, "an even hidden_dim >= 2. Received: hidden_dim=7"),
        ({"embedding_scale": 0.0}, "finite number. Expected scale > 0.*Received: 0.0"),
        ({"embedding_norm": "batch_norm"}, "leaks in a decoder"),
        ({"head_dim": 0}, "head_dim has to be a positive integer"),
        ({"num_heads": 3}, "hidden_dim to be a multiple of num_heads"),
    ],
    ids=str,
)
def test_bad_choices_are_named(changes, message):
    choices = {"share_embeddings": False} | changes
    with pytest.raises(ValueError, match=message):
        make_config("marian", **choices)


def test_a_forecast_keeps_ids_that_coincide():
    config = make_config(
        "bart",
        hidden_dim=80,
        head_dim=50,
        target_vocabulary_size=600,
        source_vocabulary_size=600,
        pad_id=599,
        start_id=599,
    )
    looked_at = predict_stability(config, max_width=48).looked_at
    assert looked_at.pad_id == looked_at.start_id != looked_at.end_id
    assert (looked_at.hidden_dim, looked_at.head_dim) == (48, 30)
    assert looked_at.embedding_scale == pytest.approx(1.7 * (48 / 80) ** 0.5)


def test_logits_of_an_own_projection_can_be_without_bias():
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "hidden_dim": 8, "num_heads": 2}
    config = Seq2SeqConfig(11, 11, **sizes, tie_embeddings=False)
    assert config.has_logits_bias and Seq2SeqTransformer(config).vocabulary_projection.use_bias
    plain = Seq2SeqTransformer(dataclasses.replace(config, logits_bias=False))
    assert plain.vocabulary_projection.bias is None
    ids, _ = plain.generate(np.array([[5, 6, 2]]), max_length=3, jit_compile=False)
    assert ids.shape == (1, 3)
    assert not dataclasses.replace(config, tie_embeddings=True).has_logits_bias
