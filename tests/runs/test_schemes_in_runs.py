"""A run with a scheme of each kind: trained, resumed, searched, inspected, pruned and exported."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs.export import export, export_for_ctranslate2
from keras_addnorm.runs.inspect import inspect
from keras_addnorm.runs.prune import prune, save
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.serving import load_translator

pytestmark = pytest.mark.slow

# One stream; a memory of depth, with a query at the end of each stack; several streams.
KINDS = ["keel", "attention_residuals", "mhc_lite"]
TEXTS = ["red green blue", "", "big"]


@pytest.fixture(scope="module", autouse=True)
def _prepared_data_elsewhere(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(tmp_path_factory.mktemp("tfds")))
        yield


@pytest.fixture(scope="module", params=KINDS)
def run(request, corpus, tmp_path_factory):
    config = RunConfig.from_dict(
        {
            "data": str(corpus),
            "source": "en",
            "target": "de",
            "tokenizer": {"vocabulary_size": 40},
            "model": {
                "num_encoder_layers": 2,
                "num_decoder_layers": 1,
                "hidden_dim": 8,
                "intermediate_dim": 8,
                "num_heads": 2,
                "dropout": 0.0,
                "max_length": 12,
                "scheme": request.param,
            },
            "training": {
                "epochs": 1,
                "tokens_per_batch": 12 * 16,
                "bucket_lengths": [12],
                "warmup_steps": 2,
                "peak_learning_rate": 0.02,
            },
            "evaluation": {"num_beams": 4, "length_penalty": 0.0, "max_length": 8},
        }
    )
    directory = RunDirectory(tmp_path_factory.mktemp(request.param) / "run")
    train(config, directory, say=lambda line: None, verbose=0)
    return load_run(directory)


def test_a_beam_scores_as_the_full_pass(run):
    end_id = run.model.config.end_id
    source = np.array([[*run.tokenizers.source.encode(TEXTS[0]), end_id]])
    for jit_compile in (False, True):
        ids, scores = run.model.generate(
            source, num_beams=4, max_length=8, length_penalty=0.0, jit_compile=jit_compile
        )
        target = np.concatenate([[[run.model.config.start_id]], ids[:, :-1]], axis=1)
        logits = ops.log_softmax(run.model({"source": source, "target": target}))
        found = np.take_along_axis(ops.convert_to_numpy(logits), ids[..., None], -1)[..., 0]
        np.testing.assert_allclose((found * (ids != 0)).sum(-1), scores, atol=1e-4)


def test_its_export_translates_as_it_does(run, tmp_path):
    ours = translate_texts(run, TEXTS)
    translator = load_translator(export(run, tmp_path / "model"))
    compiled = translator._module.signatures["translate_xla"](texts=tf.constant(TEXTS))
    texts = [text.decode() for text in compiled["translations"].numpy()]
    for found in (translator(TEXTS), list(zip(texts, compiled["scores"].numpy(), strict=True))):
        assert [text for text, _ in found] == [text for text, _ in ours]
        np.testing.assert_allclose([s for _, s in found], [s for _, s in ours], atol=1e-4)
    with pytest.raises(UserError, match="cannot say this model's scheme"):
        export_for_ctranslate2(run, tmp_path / "ct2")


def test_it_is_inspected_and_pruned(run, tmp_path):
    report = inspect(run, "validation[:4]", batch_size=4)
    assert len(report.sublayers) == 7
    result = prune(run, ["encoder/1/self_attention"], split="validation[:4]", pairs=4)
    pruned = load_run(save(result.model, run, tmp_path / "pruned"))
    assert pruned.model.config.pruned_sublayers == ("encoder/1/self_attention",)
    assert len(translate_texts(pruned, TEXTS)) == 3
