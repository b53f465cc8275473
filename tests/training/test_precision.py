"""16-bit layers learn what float32 does, also where a row is nearly all padding."""

import itertools

import keras
import numpy as np
import pytest

from keras_addnorm.data import TokenizerPair, load_translation, make_training_dataset
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.runs import RunConfig
from keras_addnorm.runs.choices import PRECISIONS
from keras_addnorm.runs.optimization import compile_model, computing_in

LONG = 113


def made(precision):
    keras.utils.set_random_seed(5)
    with computing_in(precision):
        return Seq2SeqTransformer(
            Seq2SeqConfig.preset(
                "tiny",
                source_vocabulary_size=150,
                target_vocabulary_size=150,
                num_encoder_layers=1,
                num_decoder_layers=1,
                hidden_dim=16,
                intermediate_dim=24,
                num_heads=2,
                dropout=0.0,
                scheme="pre_ln",
                share_embeddings=True,
            )
        )


@pytest.fixture(scope="module")
def losses():
    """The loss of each epoch on pairs of the demo set, by precision."""
    dataset = load_translation("demo/en-de", source="en", target="de", split="train[:1%]")
    pairs = list(itertools.islice(string_pairs(dataset), 48))
    tokenizers = TokenizerPair.train(pairs, vocabulary_size=150, kind="bpe")
    data = make_training_dataset(
        pairs, tokenizers, tokens_per_batch=7 * LONG, bucket_lengths=(LONG,), shuffle_seed=1
    )
    assert data.report.padding > 0.5
    settings = RunConfig().replace(
        {"training.warmup_steps": 5, "training.jit_compile": False, "training.schedule": "constant"}
    )
    found = {}
    for precision in PRECISIONS:
        model = made(precision)
        with computing_in(precision):
            compile_model(model, settings.training, data.report.batches)
            history = model.fit(data, epochs=4, shuffle=False, verbose=0).history
        found[precision] = (history["loss"], model)
    assert keras.config.dtype_policy().name == "float32"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_loss_is_that_of_float32_to_one_percent(losses, precision):
    expected, found = losses["float32"][0], losses[precision][0]
    assert expected[-1] < expected[0] - 0.3
    np.testing.assert_allclose(found, expected, rtol=0.01)
    assert found != expected  # They did compute in something else.


@pytest.mark.slow
def test_weights_stay_float32_and_only_float16_scales_the_loss(losses):
    scales = {
        precision: isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        for precision, (_, model) in losses.items()
    }
    assert scales == {"float32": False, "bfloat16": False, "float16": True}
    for _, model in losses.values():
        assert {weight.dtype for weight in model.trainable_weights} == {"float32"}


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_nothing_but_padding_is_no_trouble(precision):
    model = made(precision)
    ids = np.zeros((2, LONG), "int32")
    ids[0, :2] = 5, 2
    logits = keras.ops.convert_to_numpy(model({"source": ids, "target": ids}))
    assert np.isfinite(logits.astype("float32")).all()
