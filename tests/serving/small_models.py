"""Models of a few operations, saved in no time: what a server does can be seen by eye."""

import json
import os
import shutil
import urllib.error
import urllib.request

import numpy as np
import tensorflow as tf


class Shouter(tf.Module):
    """Answers in capitals, behind a mark that tells the versions apart."""

    def __init__(self, mark):
        super().__init__()
        self._mark = mark

    def translate(self, texts):
        bad = tf.reduce_any(tf.equal(texts, "bad"))
        fine = tf.debugging.assert_equal(bad, False, "a bad text")
        with tf.control_dependencies([fine]):
            translations = tf.strings.join([self._mark, tf.strings.upper(texts, "utf-8")])
        lengths = tf.strings.length(texts, "UTF8_CHAR")
        return {"translations": translations, "scores": -0.1 * tf.cast(lengths, tf.float32)}

    def numbers(self, half, single, double, small, big, flag):
        return {
            "sum": tf.cast(half, tf.float64) + tf.cast(single, tf.float64) + double,
            "small": small + 1,
            "big": big,
            "flag": tf.logical_not(flag),
        }

    def echo(self, value):
        return {"value_bytes": value}

    def matrix(self, x):
        return {"x": x, "total": tf.reduce_sum(x)}

    def padded(self, texts):
        return {"words": tf.strings.split(texts).to_tensor("")}

    def slow(self, texts):
        _, x = tf.while_loop(
            lambda i, x: i < 100_000,
            lambda i, x: (i + 1, tf.math.sin(x)),
            (0, tf.ones([8])),
            parallel_iterations=1,
        )
        kept = tf.identity(tf.strings.as_string(tf.reduce_sum(x) * 0))
        return {"texts": tf.strings.join([texts, tf.strings.substr(kept, 0, 0)])}


def write_version(directory, version, mark="", warm_up=()):
    """Saves a version as an export does: beside its place, and renamed."""
    module = Shouter(mark)
    text = tf.TensorSpec([None], tf.string, "texts")

    def row(dtype, name):
        return tf.TensorSpec([None], dtype, name)

    signatures = {
        "serving_default": (module.translate, [text]),
        "numbers": (
            module.numbers,
            [
                row(tf.float16, "half"),
                row(tf.float32, "single"),
                row(tf.float64, "double"),
                row(tf.int8, "small"),
                row(tf.int64, "big"),
                row(tf.bool, "flag"),
            ],
        ),
        "echo": (module.echo, [row(tf.string, "value")]),
        "matrix": (module.matrix, [tf.TensorSpec([None, 3], tf.float32, "x")]),
        "padded": (module.padded, [text]),
        "slow": (module.slow, [text]),
    }
    place = directory / str(version)
    hidden = directory / f".{version}-new"
    tf.saved_model.save(
        module,
        str(hidden),
        {
            name: tf.function(function, autograph=False, input_signature=specs)
            for name, (function, specs) in signatures.items()
        },
    )
    if warm_up:
        write_warm_up(hidden, warm_up)
    os.rename(hidden, place)
    return place


def write_warm_up(folder, texts, signature=""):
    """Writes a version's warm-up requests, one a text."""
    from tensorflow_serving.apis import prediction_log_pb2

    (folder / "assets.extra").mkdir()
    with tf.io.TFRecordWriter(
        str(folder / "assets.extra" / "tf_serving_warmup_requests")
    ) as writer:
        for text in texts:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.name = "any"
            log.predict_log.request.model_spec.signature_name = signature
            log.predict_log.request.inputs["texts"].CopyFrom(tf.make_tensor_proto([text]))
            writer.write(log.SerializeToString())


def write_broken_version(directory, version):
    """A folder that looks like a version and is none."""
    hidden = directory / f".{version}-new"
    (hidden / "variables").mkdir(parents=True)
    (hidden / "saved_model.pb").write_bytes(b"\x0a\xff\xff\xff\xffnonsense")
    os.rename(hidden, directory / str(version))


def remove_version(directory, version):
    """Takes a version away at once, as it came."""
    hidden = directory / f".{version}-old"
    os.rename(directory / str(version), hidden)
    shutil.rmtree(hidden)


def shout(texts, mark=""):
    """What `Shouter.translate` answers."""
    return [mark + text.upper() for text in texts]


def scores(texts):
    return [float(np.float32(-0.1) * np.float32(len(text))) for text in texts]


def fetch(server, path, body=None, headers=None):
    """Status, headers and content of an answer; JSON is read."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}", data, headers=headers or {}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, answer.headers, _content(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, _content(error)


def _content(answer):
    text = answer.read().decode()
    is_json = answer.headers["content-type"] == "application/json"
    return json.loads(text, parse_constant=_refuse) if is_json else text


def _refuse(name):
    raise ValueError(f"no JSON: {name}")
