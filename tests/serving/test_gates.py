"""The exported model where it will live: outside Python, with XLA and without."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from exported import LENGTHS, ROWS
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from keras_addnorm.decoding import translate

pytestmark = pytest.mark.slow

COMPILED = ("translate_xla", "translate_nbest_xla")
INIT = "__saved_model_init_op"
HOSTILE = (
    "",
    "   \t",
    "ba di ku",
    "😀 ba 👩‍👩‍👧 ku",
    "שלום ba",
    "ba\u202eku di",
    "a\nb\r\nba",
    "\x00ba\x01",
    "ba" * 50_000,
    "mon " * 5_000,
)


@pytest.fixture(scope="module")
def signatures(toy):
    """The names of the tensors behind each signature."""
    message = saved_model_pb2.SavedModel.FromString((toy.path / "saved_model.pb").read_bytes())
    return {
        name: (
            {key: info.name for key, info in definition.inputs.items()},
            {key: info.name for key, info in definition.outputs.items()},
        )
        for name, definition in message.meta_graphs[0].signature_def.items()
    }


def request(signatures, name, **texts):
    inputs, outputs = signatures[name]
    return {"inputs": {inputs[key]: value for key, value in texts.items()}, "outputs": outputs}


def run_c_api(path, requests, disable_xla):
    folder = Path(tf.__file__).parent
    libraries = [
        next(folder.glob(f"libtensorflow_{part}.so.*")).as_posix() for part in ("framework", "cc")
    ]
    job = {
        "libraries": libraries,
        "model": str(path),
        "disable_xla": disable_xla,
        "requests": requests,
    }
    server = Path(__file__).with_name("c_api_server.py")
    answer = subprocess.run(
        [sys.executable, "-I", "-S", str(server)],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    return json.loads(answer.stdout.splitlines()[-1])


def warm_up_requests(path, signatures):
    records = tf.data.TFRecordDataset(str(path / "assets.extra" / "tf_serving_warmup_requests"))
    for record in records.as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert log.model_spec.name == path.parent.name
        texts = {
            key: [text.decode() for text in tf.make_ndarray(value)]
            for key, value in log.inputs.items()
        }
        name = log.model_spec.signature_name
        yield name, texts, request(signatures, name, **texts)


@pytest.mark.parametrize(
    "disable_xla",
    [pytest.param(False, marks=pytest.mark.release), True],
    ids=["as it is", "as stock TF Serving"],
)
def test_the_c_api_answers_as_python_does(toy, signatures, texts, disable_xla):
    sources = [*texts[:7], *HOSTILE]
    expected = translate(toy.model, toy.tokenizers, sources, **toy.options, jit_compile=False)
    named = list(warm_up_requests(toy.path, signatures))
    others = signatures.keys() - {"serving_default", *COMPILED, INIT}
    shapes = [(rows, columns) for rows in ROWS for columns in LENGTHS]
    assert sorted(name for name, *_ in named[len(shapes) :]) == sorted(others)
    for (name, inputs, _), (rows, columns) in zip(named, shapes, strict=False):
        lengths = [len(toy.tokenizers.source.encode(text)) + 1 for text in inputs["texts"]]
        assert name == "serving_default" and lengths == [columns] * rows  # with the end
    warm_up = [warm for *_, warm in named]
    answers = run_c_api(
        toy.path,
        [
            request(signatures, "serving_default", texts=sources),
            request(signatures, "translate_xla", texts=sources[:3]),
            request(signatures, "serving_default", texts=["ba\udcff\udcfe ku"]),
            *warm_up,
        ],
        disable_xla,
    )
    plain, compiled, invalid, *warm = answers
    assert plain["translations"][1] == expected.texts
    # The last two are of 5,000 and of 500 equal segments, whose rounding errors are equal, too.
    np.testing.assert_allclose(plain["scores"][1], expected.scores, rtol=1e-6, atol=1e-5)
    assert np.isfinite(invalid["scores"][1]).all()
    if disable_xla:
        assert "XLA" in compiled["error"]
    else:
        assert compiled.get("error") is None
        assert compiled["translations"][1] == expected.texts[:3]
        np.testing.assert_allclose(compiled["scores"][1], expected.scores[:3], atol=1e-5)
    rows = [next(iter(answer.values()))[0][0] for answer in warm if "error" not in answer]
    assert rows == [*(rows for rows, _ in shapes), *(1 for _ in others)]


def test_saved_model_cli(toy):
    def cli(*arguments):
        command = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli", *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr[-2000:]
        return answer.stdout

    # One process for both would be cheaper, but this is what a person types.
    shown = cli("show", "--dir", str(toy.path), "--tag_set", "serve")
    for name in ("serving_default", "translate_xla", "translate_nbest", "score", "encode"):
        assert f'"{name}"' in shown
    printed = cli(
        *("run", "--dir", str(toy.path), "--tag_set", "serve"),
        *("--signature_def", "serving_default", "--input_exprs", 'texts=["ba di"]'),
    )
    (expected,) = translate(toy.model, toy.tokenizers, ["ba di"], **toy.options).texts
    assert f"b{expected!r}" in printed or repr(expected.encode()) in printed
