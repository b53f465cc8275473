"""A run with a scheme of each kind: trained, searched, inspected, pruned, exported, refused.

Without XLA, under which `tests/schemes/test_stream_schemes.py` runs all of them.
"""

import numpy as np
import pytest
from keras import ops

from keras_addnorm.diagnostics import prune
from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs.export import export, export_for_runtime
from keras_addnorm.runs.inspect import inspect
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.serving import load_translator

pytestmark = pytest.mark.slow

# One stream; a memory of depth, with a query at the end of each stack; several streams.
KINDS = [
    pytest.param("keel", marks=pytest.mark.release),
    pytest.param("attention_residuals", marks=pytest.mark.release),
    "mhc_lite",
]
TEXTS = ["red green blue", "", "big"]


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
                "jit_compile": False,
            },
            "evaluation": {"num_beams": 1, "length_penalty": 0.0, "max_length": 8},
        }
    )
    directory = RunDirectory(tmp_path_factory.mktemp(request.param) / "run")
    train(config, directory, say=lambda line: None, verbose=0)
    return load_run(directory)


def logits_of(model, source, target):
    return ops.convert_to_numpy(model({"source": source, "target": target}))


def test_a_beam_scores_as_the_full_pass(run):
    config = run.model.config
    source = np.array([[*run.tokenizers.source.encode(TEXTS[0]), config.end_id]])
    ids, scores = run.model.generate(
        source, num_beams=4, max_length=8, length_penalty=0.0, jit_compile=False
    )
    target = np.concatenate([[[config.start_id]], ids[:, :-1]], axis=1)
    logits = ops.convert_to_numpy(ops.log_softmax(logits_of(run.model, source, target)))
    found = np.take_along_axis(logits, ids[..., None], -1)[..., 0]
    np.testing.assert_allclose((found * (ids != 0)).sum(-1), scores, atol=1e-4)


def test_it_is_inspected_pruned_and_refused_by_name(run, tmp_path):
    report = inspect(run, "validation[:4]", batch_size=4)
    assert len(report.sublayers) == 7
    source, target = np.array([[5, 6, 2]]), np.array([[1, 7]])
    name = "encoder/1/self_attention"
    result = prune(run.model, [name], evaluate=lambda model: {"loss": 0.0})
    assert result.model.config.pruned_sublayers == (name,)
    whole, pruned = (logits_of(model, source, target) for model in (run.model, result.model))
    assert np.isfinite(pruned).all() and not np.allclose(whole, pruned)
    with pytest.raises(UserError, match="cannot say this model's scheme"):
        export_for_runtime(run, tmp_path / "ct2", "ctranslate2")


@pytest.mark.parametrize("run", ["mhc_lite"], indirect=True)
def test_its_export_translates_as_it_does(run, tmp_path):
    translator = load_translator(export(run, tmp_path / "model"))
    end_id = run.model.config.end_id
    for text, (found, score) in zip(TEXTS[::2], translator(TEXTS[::2]), strict=True):
        source = np.array([[*run.tokenizers.source.encode(text), end_id]])
        ids, scores = run.model.generate(
            source, max_length=8, length_penalty=0.0, jit_compile=False
        )
        assert found == run.tokenizers.target.decode([int(i) for i in ids[0] if i > end_id])
        np.testing.assert_allclose(score, scores[0], atol=1e-4)
