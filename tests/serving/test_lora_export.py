"""A LoRA-tuned model is exported as it is in Python; a quantised one is refused."""

import numpy as np
import pytest
from exported import LENGTHS, OPTIONS, ROWS, make_model, make_tokenizers

from keras_addnorm.decoding import translate
from keras_addnorm.models import enable_lora
from keras_addnorm.serving import export_saved_model, load_translator


def tuned_model(**overrides):
    model, rng = make_model(101, 89, **overrides), np.random.default_rng(4)
    enable_lora(model, 3)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(scale=0.5, size=tuple(weight.shape)))
    return model


@pytest.mark.slow
def test_f1_an_export_translates_as_the_tuned_model(texts, new_texts, tmp_path):
    """Of a scheme that is folded; where none is, the export begins behind the fold."""
    model, tokenizers = tuned_model(scheme="rezero"), make_tokenizers(texts)
    export_saved_model(
        model,
        tokenizers,
        tmp_path / "m",
        batch_buckets=ROWS[-1:],
        length_buckets=LENGTHS[-1:],
        **OPTIONS,
    )
    found = load_translator(tmp_path / "m")(new_texts[:6])
    expected = translate(model, tokenizers, new_texts[:6], jit_compile=False, **OPTIONS)
    base = make_model(101, 89, scheme="rezero")
    untuned = translate(base, tokenizers, new_texts[:6], jit_compile=False, **OPTIONS)
    assert [text for text, _ in found] == expected.texts != untuned.texts
    np.testing.assert_allclose([score for _, score in found], expected.scores, rtol=1e-4)


def test_f9_a_quantised_model_is_not_exported(texts, tmp_path):
    model = make_model(101, 89)
    model.quantize("int8", filters="query")
    with pytest.raises(ValueError, match=r'3 quantised layers.*storage="int8"'):
        export_saved_model(model, make_tokenizers(texts), tmp_path / "m")
    assert not (tmp_path / "m").exists()
