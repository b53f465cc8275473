"""A served search whose model computes something that is no number says so."""

import numpy as np
import pytest
import tensorflow as tf
from exported import make_model

from keras_addnorm.data import Tokenizer
from keras_addnorm.decoding import translate
from keras_addnorm.serving import export_saved_model, load_translator
from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.loaded_version import LoadedVersion, Signature


def test_the_server_says_that_the_request_is_not_at_fault():
    def compute(**inputs):
        tf.debugging.Assert(False, ["A logit was NaN or infinite at step", 3, "of the search."])

    with pytest.raises(ServingError, match="A logit was NaN or infinite") as error:
        Signature("translate", 1, {}, {}, compute)({})
    assert error.value.code == "INTERNAL"


@pytest.mark.slow
def test_logits_that_overflow(texts, tmp_path):
    tokenizer = Tokenizer.train(texts, vocabulary_size=61)
    model = make_model(61, 61, tie_embeddings=False, hidden_dim=8)
    kernel = model.vocabulary_projection.kernel
    # Each weight is a number; a sum of eight of them is none.
    kernel.assign(np.full(kernel.shape, 3e38, "float32") * np.sign(kernel))
    with pytest.raises(FloatingPointError, match="step 0 of the search"):
        translate(model, tokenizer, texts[:1], max_length=4)
    path = export_saved_model(
        model,
        tokenizer,
        tmp_path / "toy",
        strategies={"translate": "greedy", "translate_nbest": {"name": "beam", "num_return": 2}},
        batch_buckets=[1],
        length_buckets=[8],
        max_length=4,
    )
    translator = load_translator(path)
    assert translator([""])[0].text == ""  # nothing is searched
    with pytest.raises(FloatingPointError, match="A logit was NaN or infinite in the search"):
        translator(["", texts[0]])
    loaded = LoadedVersion(path)
    for name in ("translate", "translate_nbest", "translate_xla", "translate_nbest_xla"):
        with pytest.raises(ServingError, match="A logit was NaN or infinite at step") as error:
            loaded.signatures[name]({"texts": np.array([texts[0].encode()], object)})
        assert error.value.code == "INTERNAL"
    pair = {name: np.array([texts[0].encode()], object) for name in ("source", "target")}
    with pytest.raises(ServingError, match="NaN or infinite while targets were scored") as error:
        loaded.signatures["score"](pair)
    assert error.value.code == "INTERNAL"
