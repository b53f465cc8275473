import dataclasses
import json

import pytest
from models_reference import config

from keras_addnorm.layers import AttentionConfig, HeadDiversity
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.schemes import DeepNorm

SIZES = {"source_vocabulary_size": 8000, "target_vocabulary_size": 7000}

# num_encoder_layers, num_decoder_layers, hidden_dim, intermediate_dim, num_heads
PRESETS = {
    "micro": (2, 2, 32, 64, 4),
    "tiny": (4, 4, 128, 256, 4),
    "small": (3, 3, 256, 1024, 8),
    "base": (6, 6, 512, 2048, 8),
    "big": (6, 6, 1024, 4096, 16),
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    c = Seq2SeqConfig.preset(name, **SIZES)
    numbers = (
        c.num_encoder_layers,
        c.num_decoder_layers,
        c.hidden_dim,
        c.intermediate_dim,
        c.num_heads,
    )
    assert numbers == PRESETS[name]
    assert (c.source_vocabulary_size, c.target_vocabulary_size) == (8000, 7000)


# The same, and millions of weights with 32,000 pieces.
STUDENTS = {
    "student-micro": (4, 2, 128, 512, 4, 5.4),
    "student-tiny": (6, 2, 256, 1536, 8, 16.9),
    "student-base-memory": (6, 4, 384, 1536, 8, 31.2),
    "student-base": (6, 2, 512, 2048, 8, 42.7),
}


@pytest.mark.parametrize("name", STUDENTS)
def test_presets_of_students(name):
    c = Seq2SeqConfig.preset(name, source_vocabulary_size=32000, target_vocabulary_size=32000)
    *numbers, millions = STUDENTS[name]
    depths = c.num_encoder_layers, c.num_decoder_layers
    assert [*depths, c.hidden_dim, c.intermediate_dim, c.num_heads] == numbers
    assert (c.scheme, c.self_attention, c.activation) == ("post_ln", "ssru", "relu")
    assert c.share_embeddings and c.tie_embeddings and c.has_logits_bias and not c.dropout
    d, f, (encoder, decoder) = c.hidden_dim, c.intermediate_dim, depths
    norm, attention, feed_forward = 2 * d, 4 * (d * d + d), 2 * d * f + f + d
    weights = 32000 * (d + 1) + encoder * (attention + feed_forward + 2 * norm)
    weights += decoder * (2 * d * d + d + attention + feed_forward + 3 * norm)
    assert round(weights / 1e6, 1) == millions
    assert (
        Seq2SeqConfig.preset(
            name, source_vocabulary_size=7, target_vocabulary_size=7, scheme="pre_ln"
        ).scheme
        == "pre_ln"
    )


def test_weights_of_a_student_are_as_many_as_its_preset_says():
    c = Seq2SeqConfig.preset("student-micro", source_vocabulary_size=7, target_vocabulary_size=7)
    assert Seq2SeqTransformer(c).count_params() == 7 * 129 + 1_255_936


def test_the_preset_for_examples_needs_no_sizes():
    c = Seq2SeqConfig.preset("micro", scheme="pre_ln")
    assert (c.source_vocabulary_size, c.target_vocabulary_size) == (100, 100)
    assert (c.max_length, c.scheme) == (32, "pre_ln")


def test_defaults():
    c = Seq2SeqConfig(**SIZES)
    assert (c.pad_id, c.start_id, c.end_id, c.max_length) == (0, 1, 2, 256)
    assert (c.scheme, c.norm, c.positions, c.activation) == (
        "post_ln",
        "layer_norm",
        "sinusoidal",
        "relu",
    )
    assert (c.tie_embeddings, c.share_embeddings) == (True, False)
    assert (c.num_encoder_layers, c.hidden_dim, c.intermediate_dim) == (6, 512, 2048)


OVERRIDES = {
    "self_attention": "ssru",
    "num_encoder_layers": 5,
    "num_decoder_layers": 7,
    "hidden_dim": 15,
    "intermediate_dim": 17,
    "num_heads": 3,
    "dropout": 0.3,
    "attention_dropout": 0.2,
    "activation_dropout": 0.15,
    "activation": "swiglu",
    "scheme": {"name": "layer_scale", "initial_value": 1e-3},
    "norm": "rms_norm",
    "epsilon": 1e-5,
    "positions": "learned",
    "max_length": 31,
    "tie_embeddings": True,
    "share_embeddings": True,
    "pad_id": 3,
    "start_id": 4,
    "end_id": 5,
    "drop_path": 0.25,
    "use_bias": False,
    "kernel_initializer": "he_normal",
    "bias_initializer": "ones",
    "gradient_checkpointing": True,
    "attention": {"num_key_value_heads": 1, "window": 4},
    "target_vocabulary_size": 8000,
    "pruned_sublayers": ("encoder/4/feed_forward", "decoder/0/cross_attention"),
    "head_dim": 6,
    "logits_bias": True,
    "embedding_scale": 1.5,
    "embedding_norm": "layer_norm",
    "start_embedding": "zeros",
}


def test_every_field_can_be_overridden_and_written_down():
    c = Seq2SeqConfig.preset("big", **{**SIZES, **OVERRIDES})
    assert {name: getattr(c, name) for name in OVERRIDES} == OVERRIDES
    changed = {*OVERRIDES, "source_vocabulary_size"}
    assert changed == {field.name for field in dataclasses.fields(c)}, "a new field: add it here"
    assert Seq2SeqConfig.from_json(c.to_json()) == c
    assert Seq2SeqConfig.from_dict(c.to_dict()) == c
    assert json.loads(c.to_json())["scheme"] == OVERRIDES["scheme"]


def test_a_scheme_object_is_written_down_too():
    c = config(scheme=DeepNorm(alpha=2.0, beta=0.5))
    assert Seq2SeqConfig.from_json(c.to_json()) == c
    assert c.to_dict()["scheme"] == {"name": "deep_norm", "alpha": 2.0, "beta": 0.5}


def test_attention_and_positions_are_written_down_as_plain_values():
    choice = AttentionConfig(scale="learned", head_diversity=HeadDiversity(outputs=0.1))
    c = config(attention=choice, positions={"name": "rotary", "base": 500.0})
    assert AttentionConfig.get(c.attention) == choice
    assert Seq2SeqConfig.from_json(c.to_json()) == c
    assert config(positions={"name": "learned"}) == config(positions="learned")
    assert config(attention={"scale": "learned"}) == config(
        attention={"scale": {"name": "learned", "initial_value": None}}
    )


def test_a_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().hidden_dim = 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"num_heads": 0}, "num_heads has to be a positive integer. Received: 0"),
        ({"hidden_dim": -8}, "hidden_dim has to be a positive integer. Received: -8"),
        ({"max_length": 2.5}, "max_length has to be a positive integer. Received: 2.5"),
        ({"source_vocabulary_size": "8k"}, "source_vocabulary_size.*Received: '8k'"),
        ({"num_decoder_layers": 0}, "num_decoder_layers"),
        (
            {"dropout": 1.0},
            "dropout is a share. Expected 0 <= share < 1 in float32. Received: 1.0",
        ),
        ({"attention_dropout": -0.1}, "attention_dropout"),
        ({"scheme": "prelayer"}, "no such residual scheme"),
        ({"norm": "batch"}, "no such norm"),
        ({"activation": "swoosh"}, "no such activation"),
        ({"positions": "rope"}, "no such kind of positions.*alibi, t5, shaw.*Received: 'rope'"),
        ({"positions": {"name": "t5", "buckets": 3}}, "'t5' has no such field.*num_buckets"),
        (
            {"positions": {"name": "shaw", "max_distance": 0}},
            "Expected 1 <= max_distance <= 1048576",
        ),
        ({"attention": {"heads": 3}}, "Expected fields among num_key_value_heads.*: heads"),
        (
            {"num_heads": 6, "attention": {"num_key_value_heads": 4}},
            "divide num_heads=6: one of 1, 2, 3, 6. Received: 4",
        ),
        ({"num_heads": 4}, "hidden_dim=6, num_heads=4. Use num_heads=3 or 6"),
        ({"share_embeddings": True}, "cannot share an embedding.*source 13, target 11"),
        ({"end_id": 0}, "padding cannot be the end"),
        ({"end_id": 11}, r"ids in \[0, 11\), pad_id other than end_id"),
        ({"pad_id": -1}, "The special ids have to lie in the target vocabulary"),
    ],
)
def test_bad_values_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config(**overrides)


def test_unknown_and_missing_fields_are_named():
    with pytest.raises(ValueError, match=r"Unknown: d_model, layers\. Expected fields among"):
        Seq2SeqConfig.preset("tiny", **SIZES, layers=3, d_model=4)
    with pytest.raises(ValueError, match="Missing: source_vocabulary_size"):
        Seq2SeqConfig.preset("tiny", target_vocabulary_size=8)
    with pytest.raises(ValueError, match=r"Unknown: a. Missing: source_vocabulary_size, target"):
        Seq2SeqConfig.from_dict({"a": 1})


def test_an_unknown_preset_lists_what_there_is():
    message = r"Expected one of micro, tiny, small, base, big, student-micro, .*Received: 'xl'"
    with pytest.raises(ValueError, match=message):
        Seq2SeqConfig.preset("xl", **SIZES)


def test_a_model_says_when_it_does_not_get_a_config():
    with pytest.raises(ValueError, match="Missing: source_vocabulary_size"):
        Seq2SeqTransformer({"hidden_dim": 8})
