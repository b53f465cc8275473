"""What the page is told of a model, and what it refuses, by name."""

import pytest
from filled_models import tiny_model

from keras_addnorm.explain import describe_model

SIZES = {"hidden_dim": 4, "num_heads": 2, "intermediate_dim": 3, "num_encoder_layers": 1}


def model(**choices):
    return tiny_model(**{**SIZES, **choices})


def test_every_weight_is_there_once():
    attention = {"query_key_norm": "rms_norm", "value_norm": "rms_norm", "scale": "learned"}
    for choices in (
        {"share_embeddings": True, "source_vocabulary_size": 11},
        {"tie_embeddings": False, "positions": "learned", "embedding_norm": "layer_norm"},
        {"logits_bias": True, "attention": {**attention, "sink": "learned"}, "scheme": "sub_ln"},
        {"activation": "swiglu", "use_bias": False, "scheme": {"name": "gpas", "of": "admin"}},
    ):
        made = model(**choices)
        described = describe_model(made)
        kept = [id(array) for array in described.arrays.values()]
        assert sorted(kept) == sorted(map(id, made.weights)), choices
        assert described.description["num_weights"] == made.count_params()


def test_sublayers_have_the_names_of_reports():
    described = describe_model(model(scheme="pre_ln")).description
    names = [each["name"] for each in described["decoder"]["stack"]["sublayers"]]
    assert names == [
        "decoder/0/self_attention",
        "decoder/0/cross_attention",
        "decoder/0/feed_forward",
    ]
    assert described["decoder"]["stack"]["final_norm"]["kind"] == "layer_norm"
    assert described["scheme"] == "pre_ln"


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"scheme": "mhc"}, "the scheme 'mhc', which has several streams"),
        ({"norm": "seed_norm"}, "the norm 'seed_norm', expected one of layer_norm, rms_norm"),
        ({"norm": {"encoder": "batch_norm", "decoder": "derf"}}, "'batch_norm'.*'derf'"),
        ({"positions": {"name": "rotary", "base": 9.0}}, "positions 'rotary', expected 'sinusoid"),
        ({"self_attention": "ssru"}, "self_attention='ssru' has no weights"),
        ({"activation": "elu"}, "the activation 'elu', expected one of relu"),
        ({"pruned_sublayers": ["encoder/0/feed_forward"]}, "encoder/0/feed_forward are pruned"),
    ],
    ids=str,
)
def test_what_the_page_cannot_do(choices, words):
    with pytest.raises(ValueError, match=f"cannot run this model: .*{words}.*Choose a run without"):
        describe_model(model(**choices))


def test_everything_is_said_at_once_and_a_large_model_is_too_large(monkeypatch):
    monkeypatch.setattr("keras_addnorm.explain.described_model.MOST_WEIGHTS", 100)
    with pytest.raises(
        ValueError, match=r"norm 'derf'.*; .*alibi.*; .*at most 100 weights"
    ) as found:
        describe_model(model(norm="derf", positions="alibi"))
    assert str(found.value).count("cannot run") == 1
