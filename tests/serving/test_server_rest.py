"""The server over REST: what TensorFlow Serving answers, and nothing that kills it."""

import base64
import gzip
import http.client
import json
import math
import re
import socket
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from paused_signature import paused
from small_models import fetch, scores, shout, write_version

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server import Settings, running
from keras_addnorm.serving.server.listening import listen
from keras_addnorm.serving.server.rest import _inflated

GUIDE = Path(__file__).parents[2] / "docs" / "how_to" / "web_page.md"
LIMIT = 100_000
QUEUE = 2
ROWS = LIMIT // 400
HEAD = b"POST /v1/models/shouter:predict HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A small model behind a server with small limits."""
    directory = tmp_path_factory.mktemp("rest") / "shouter"
    directory.mkdir()
    write_version(directory, 3)
    with running(
        Settings(
            directory,
            port=0,
            grpc_port=None,
            max_request_bytes=LIMIT,
            queue=QUEUE,
            workers=1,
        )
    ) as server:
        yield server


@pytest.fixture(scope="module")
def translator_server(toy):
    """A translation model behind a server."""
    with running(Settings(toy.path.parent, port=0, grpc_port=None)) as server:
        yield server


def predict(server, body, path="/v1/models/shouter:predict"):
    status, headers, answer = fetch(server, path, body)
    assert headers["content-type"] == "application/json"
    return status, answer


def count(server, **labels):
    """How many requests the server has counted under some labels."""
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    metrics = fetch(server, "/metrics")[2]
    found = re.search(rf"^keras_addnorm_requests_total{{{wanted}}} (\S+)$", metrics, re.M)
    return float(found[1]) if found else 0.0


def post(texts, signature="serving_default"):
    return {"inputs": {"texts": texts}, "signature_name": signature}


def test_answers_are_those_of_the_translator(translator, translator_server, texts):
    sources = [*texts[:8], "", "mon " * 40]
    expected = translator(sources)
    status, answer = predict(
        translator_server, {"inputs": {"texts": sources}}, "/v1/models/toy:predict"
    )
    assert status == 200
    assert answer["outputs"]["translations"] == [text for text, _ in expected]
    assert answer["outputs"]["scores"] == pytest.approx([score for _, score in expected], abs=1e-5)
    # Alone, and all at the same time: they are merged as they come.
    with ThreadPoolExecutor(8) as pool:
        alone = list(
            pool.map(
                lambda text: predict(
                    translator_server, {"instances": [text]}, "/v1/models/toy:predict"
                ),
                sources,
            )
        )
    assert [status for status, _ in alone] == [200] * len(sources)
    for (_, found), (text, score) in zip(alone, expected, strict=True):
        (row,) = found["predictions"]
        assert row["translations"] == text
        assert row["scores"] == pytest.approx(score, abs=1e-5)


def test_every_signature_of_an_export_answers(translator_server):
    for name in ("translate", "translate_nbest", "tokenize", "encode"):
        status, answer = predict(
            translator_server, post(["ba di", "ku"], name), "/v1/models/toy:predict"
        )
        assert status == 200, answer
        assert all(len(value) == 2 for value in answer["outputs"].values())
    both = {"inputs": {"source": ["ba"], "target": ["di"]}, "signature_name": "score"}
    status, answer = predict(translator_server, both, "/v1/models/toy/versions/1:predict")
    assert status == 200
    assert answer["outputs"]["scores"][0] < 0


def test_rows_and_columns(server):
    texts = ["ba", "ärger \u2028 <b>", ""]
    for path in (
        "/v1/models/shouter:predict",
        "/v1/models/shouter/versions/3:predict",
        "/v1/Models/shouter:Predict",
    ):
        status, answer = predict(server, {"instances": texts}, path)
        assert status == 200
        assert answer == {
            "predictions": [
                {"translations": text, "scores": pytest.approx(score)}
                for text, score in zip(shout(texts), scores(texts), strict=True)
            ]
        }
    rows = {"instances": [{"texts": text} for text in texts]}
    assert predict(server, rows) == (200, answer)
    for columns in (texts, {"texts": texts}):
        status, found = predict(server, {"inputs": columns})
        assert (status, found["outputs"]["translations"]) == (200, shout(texts))
        assert found["outputs"]["scores"] == pytest.approx(scores(texts))
    assert predict(server, {"inputs": []}) == (200, {"outputs": {"translations": [], "scores": []}})


def test_bytes_travel_as_base64(server):
    raw = [b"\x00\xff\x00", b"", "ä".encode()]
    coded = [{"b64": base64.b64encode(value).decode()} for value in raw]
    assert predict(server, {"inputs": coded, "signature_name": "echo"}) == (200, {"outputs": coded})
    assert predict(server, {"instances": coded, "signature_name": "echo"}) == (
        200,
        {"predictions": coded},
    )
    named = {"instances": [{"value": value} for value in coded], "signature_name": "echo"}
    assert predict(server, named) == (200, {"predictions": coded})
    for text in ("YmE=", "YmE", "Y mE\n="):  # the padding may be missing
        status, answer = predict(server, {"instances": [{"b64": text}]})
        assert (status, answer["predictions"][0]["translations"]) == (200, "BA")


NUMBERS = {
    "half": [0.5, math.inf],
    "single": [0.25, 1],
    "double": [1e300, 2.5],
    "small": [-128, 126],
    "big": [2**63 - 1, -(2**63)],
    "flag": [True, False],
}


def numbers(**changed):
    return {"inputs": {**NUMBERS, **changed}, "signature_name": "numbers"}


def test_numbers_of_every_type(server):
    status, answer = predict(server, numbers())
    assert status == 200
    assert answer["outputs"] == {
        "sum": [1e300, "Infinity"],
        "small": [-127, 127],
        "big": [2**63 - 1, -(2**63)],
        "flag": [False, True],
    }
    rows = [{name: column[i] for name, column in NUMBERS.items()} for i in range(2)]
    status, answer = predict(server, {"instances": rows, "signature_name": "numbers"})
    assert [row["small"] for row in answer["predictions"]] == [-127, 127]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_not_finite_are_valid_json(server, number):
    bare = json.dumps({"inputs": [[0.5, float(number), 1]], "signature_name": "matrix"})
    for body in (bare.encode(), {"inputs": [[0.5, number, 1]], "signature_name": "matrix"}):
        status, answer = predict(server, body)
        assert (status, answer["outputs"]) == (200, {"x": [[0.5, number, 1.0]], "total": number})


def test_halves_of_surrogate_pairs_are_left_out(server):
    texts = ["\ud83da\ude00", "\ud83d\ude00", "b\udfff"]
    status, answer = predict(server, {"inputs": texts})
    assert status == 200
    assert answer["outputs"]["translations"] == ["A", "\U0001f600", "B"]


def test_floats_are_written_in_their_own_precision(server):
    # The last one lies between two numbers of that precision.
    body = {"inputs": [[0.1, 0.2, 16777217]], "signature_name": "matrix"}
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/models/shouter:predict", json.dumps(body))
    text = connection.getresponse().read().decode()
    connection.close()
    assert '"x":[[0.1,0.2,16777216.0]]' in text


def test_outputs_without_rows_want_columns(server):
    status, answer = predict(server, {"instances": [[1, 2, 3]], "signature_name": "matrix"})
    assert status == 400
    assert "column format" in answer["error"]


def test_status_and_metadata(server):
    available = {
        "model_version_status": [
            {
                "version": "3",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    for path in ("/v1/models/shouter", "/v1/models/shouter/versions/3"):
        assert fetch(server, path)[::2] == (200, available)
    for path in ("/v1/models/shouter/metadata", "/v1/models/shouter/versions/3/metadata"):
        status, _, answer = fetch(server, path)
        assert status == 200
        assert answer["model_spec"] == {"name": "shouter", "signature_name": "", "version": "3"}
        signatures = answer["metadata"]["signature_def"]["signature_def"]
        assert {"serving_default", "numbers", "echo"} <= signatures.keys()
        default = signatures["serving_default"]
        assert default["method_name"] == "tensorflow/serving/predict"
        assert default["inputs"] == {
            "texts": {
                "name": "serving_default_texts:0",
                "dtype": "DT_STRING",
                "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
            }
        }


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v1/models/other", 404, "Could not find any versions of model other"),
        ("/v1/models/shouter/versions/4", 404, "Could not find version 4 of model shouter"),
        ("/v1/models/other/metadata", 404, "Latest(other). This server has Latest(shouter)."),
        ("/v1/models/shouter/versions/4/metadata", 404, "Specific(shouter, 4)"),
        ("/v1/models", 400, "Missing model name in request."),
        ("/v1/models/shouter/labels/stable", 400, "Unrecognized servable version label: stable"),
        ("/v1/models/shouter/versions/99999999999999999999", 400, "too large"),
        ("/v1/models/shouter/versions/" + "9" * 5000, 400, "too large"),
        ("/v1/models/shouter/nonsense", 400, "Malformed request: GET"),
        ("/v1/models/shouter:predict", 400, "shouter:predict. Send it with POST"),
        ("/v1/models/..", 404, "Could not find any versions of model .."),
        ("/v1/models/..%2F..%2Fetc%2Fpasswd", 404, "Could not find any versions of model ../.."),
        ("/v1/models/shouter/versions/../../../etc/passwd", 400, "Malformed request"),
        ("/v1/models/%00", 404, "Could not find"),
        ("/nowhere", 404, "Not Found"),
        ("/page.html", 404, "Not Found"),
        ("/../../etc/passwd", 404, "Not Found"),
    ],
)
def test_questions_that_have_no_answer(server, path, status, words):
    found, headers, answer = fetch(server, path)
    assert (found, headers["content-type"]) == (status, "application/json")
    assert list(answer) == ["error"]
    assert words in answer["error"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/models/other:predict", 404),
        ("/v1/models/shouter/versions/2:predict", 404),
        ("/v1/models/shouter/labels/stable:predict", 400),
        ("/v1/models/shouter", 400),
        ("/v1/models/shouter:dance", 400),
        ("/v1/models/shouter:classify", 501),
        ("/v1/models/shouter:regress", 501),
        ("/metrics", 405),
    ],
)
def test_calls_to_the_wrong_place(server, path, status):
    found, answer = predict(server, {"inputs": ["a"]}, path)
    assert found == status
    assert list(answer) == ["error"]


BAD_BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "two values": b"{} {}",
    "no object": b"[1, 2]",
    "a word": b'"instances"',
    "no key": b"{}",
    "both keys": b'{"inputs": ["a"], "instances": ["a"]}',
    "no list": b'{"instances": "a"}',
    "an empty list": b'{"instances": []}',
    "a mixed list": b'{"instances": ["a", {"texts": "b"}]}',
    "other names": b'{"instances": [{"text": "b"}]}',
    "a missing name": b'{"inputs": {"text": ["b"]}}',
    "a number": b'{"inputs": [1]}',
    "null": b'{"inputs": null}',
    "a null text": b'{"instances": [null]}',
    "a scalar": b'{"inputs": "a"}',
    "a matrix": b'{"inputs": [["a"], ["b"]]}',
    "ragged": b'{"inputs": [["a"], []]}',
    "lists and values": b'{"inputs": ["a", ["b"]]}',
    "values and lists": b'{"inputs": [["a"], "b"]}',
    "bad base64": b'{"inputs": [{"b64": "?"}]}',
    "base64 of a number": b'{"inputs": [{"b64": 1}]}',
    "not UTF-8": b'{"inputs": ["\xff\xfe"]}',
    "UTF-16": '{"inputs": ["a"]}'.encode("utf-16"),
    "a zero byte": b'{"inputs": ["a"]}\x00',
    "a signature that is none": b'{"inputs": ["a"], "signature_name": "none"}',
    "a signature that is a list": b'{"inputs": ["a"], "signature_name": []}',
    "deep lists": b'{"inputs": ' + b"[" * 2_400 + b"]" * 2_400 + b"}",
    "fairly deep lists": b'{"inputs": ' + b"[" * 300 + b"]" * 300 + b"}",
    "deep objects": b'{"a":' * 4_000 + b"1" + b"}" * 4_000,
    "open lists": b"[" * 4_900,
    "a huge integer": b'{"signature_name": "matrix", "inputs": [[1, 2, ' + b"9" * 50_000 + b"]]}",
    "a huge exponent": b'{"signature_name": "matrix", "inputs": [[1, 2, 1e99999]]}',
    "too large for float32": b'{"signature_name": "matrix", "inputs": [[1, 2, 1e39]]}',
    "a whole number too large for float32": (
        b'{"signature_name": "matrix", "inputs": [[1, 2, 1' + b"0" * 39 + b"]]}"
    ),
    "a wrong width": b'{"signature_name": "matrix", "inputs": [[1, 2]]}',
    "a text for a number": b'{"signature_name": "matrix", "inputs": [["1", 2, 3]]}',
    "true for a number": b'{"signature_name": "matrix", "inputs": [[true, 2, 3]]}',
    "plain values for several inputs": b'{"signature_name": "numbers", "inputs": [1]}',
    "plain rows for several inputs": b'{"signature_name": "numbers", "instances": [1]}',
    "too small for int8": json.dumps(numbers(small=[-129, 0])).encode(),
    "too large for int64": json.dumps(numbers(big=[2**63, 0])).encode(),
    "a fraction for an integer": json.dumps(numbers(small=[1.5, 0])).encode(),
    "true for an integer": json.dumps(numbers(small=[True, 0])).encode(),
    "one for a flag": json.dumps(numbers(flag=[1, 0])).encode(),
    "too large for float16": json.dumps(numbers(half=[65_536.5, 0])).encode(),
    "columns of different lengths": json.dumps(numbers(double=[1, 2, 3])).encode(),
    "what the model refuses": b'{"inputs": ["good", "bad"]}',
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_bodies(server, name):
    status, answer = predict(server, BAD_BODIES[name])
    assert status == 400
    assert list(answer) == ["error"]
    assert answer["error"]
    for secret in ("Traceback", "node ", ".py", str(server.settings.directory)):
        assert secret not in answer["error"]
    assert predict(server, {"inputs": ["a"]})[0] == 200


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"b64": "_-8="}, "no base64 of the standard alphabet"),
        ({"b64": "YQ=a"}, "no base64"),
        ({"b64": "é"}, "no base64"),
        (1, "not of type string"),
    ],
)
def test_u6_a_text_that_is_none_says_why(server, value, words):
    status, answer = predict(server, {"inputs": [value]})
    assert (status, words in answer["error"]) == (400, True), answer


@pytest.mark.parametrize("text", ["YWI=", "YWI", "Y W\nI"])
def test_u6_base64_needs_no_padding(server, text):
    assert predict(server, {"inputs": [{"b64": text}]})[1]["outputs"]["translations"] == ["AB"]


PREDICT = "/v1/models/shouter:predict"
BODY = b'{"inputs": ["a"]}'


def zipped(body):
    # Without the time, which would be in the names of the cases.
    return gzip.compress(body, mtime=0)


ZIPPED = zipped(BODY)


@pytest.mark.parametrize(
    ("coding", "body", "status", "words"),
    [
        ("gzip", ZIPPED, 200, '["A"]'),
        ("GZIP", ZIPPED, 200, '["A"]'),
        ("gzip", zipped(BODY[:7]) + zipped(BODY[7:]), 200, '["A"]'),
        ("identity", BODY, 200, '["A"]'),
        ("gzip", BODY, 400, "The body is no gzip"),
        ("gzip", ZIPPED[:-9], 400, "it ends too early"),
        ("gzip", ZIPPED + b"more", 400, "The body is no gzip"),
        ("gzip", b"", 400, "it ends too early"),
        ("gzip", zipped(b" " * (LIMIT + 1)), 413, f"larger than {LIMIT} bytes"),
        ("gzip", zipped(b" " * LIMIT) * 2, 413, f"larger than {LIMIT} bytes"),
        ("gzip", zipped(b"") * 15 + ZIPPED, 200, '["A"]'),
        ("gzip", zipped(b"") * 16 + ZIPPED, 400, "it has more than 16 members"),
        ("br", BODY, 415, "'Content-Encoding: gzip'"),
        ("gzip, gzip", zipped(ZIPPED), 415, "received the coding 'gzip, gzip'"),
    ],
)
def test_f10_bodies_under_gzip_are_inflated_up_to_the_limit(server, coding, body, status, words):
    found, headers, answer = fetch(server, PREDICT, body, {"Content-Encoding": coding})
    assert (found, words in json.dumps(answer)) == (status, True), answer
    assert headers["accept-encoding"] == ("gzip" if status == 415 else None)


def test_f10_a_bomb_is_not_inflated():
    """A little more than the limit is made of it, not all."""
    bomb = gzip.compress(bytes(20_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ServingError, match=f"larger than {LIMIT} bytes"):
            _inflated(bomb, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 10 * LIMIT
    finally:
        tracemalloc.stop()


def preflight(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    asked = {"Origin": "http://elsewhere", "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "content-type"
    connection.request("OPTIONS", path, headers=asked)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_m7_pages_of_other_origins_may_call_where_it_is_switched_on(server, tmp_path):
    answer = preflight(server, PREDICT)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (403, None)
    write_version(tmp_path, 1)
    settings = Settings(tmp_path, "shouter", port=0, grpc_port=None, cors=True, warm_up=False)
    with running(settings) as open_server:
        answer = preflight(open_server, PREDICT)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert "Content-Type" in answer.headers["access-control-allow-headers"]
        for body, status in ((BODY, 200), (b"{", 400)):
            found, headers, _ = fetch(open_server, PREDICT, body, {"Origin": "http://elsewhere"})
            assert (found, headers["access-control-allow-origin"]) == (status, "*")


def test_the_page_of_the_guide_sends_what_the_server_takes(translator, translator_server, toy):
    """docs/how_to/web_page.md: its address, its body, and the field that it reads."""
    [page] = re.findall(r"```html\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert set(re.findall(r'getElementById\("(\w+)"\)', page)) <= set(
        re.findall(r'id="(\w+)"', page)
    )
    [path] = re.findall(r'"http://127\.0\.0\.1:8501(/.*?)"', page)
    [body] = re.findall(r"JSON\.stringify\(\{ (\w+): texts \}\)", page)
    [(rows, field)] = re.findall(r"found\.(\w+)\.map\(\(one\) => one\.(\w+)\)", page)
    [problem] = re.findall(r"new Error\(found\.(\w+)\)", page)
    status, answer = predict(
        translator_server,
        {body: ["ba di", "ku"]},
        path.replace("/mine:", f"/{toy.path.parent.name}:"),
    )
    assert status == 200
    expected = [each.text for each in translator(["ba di", "ku"])]
    assert [one[field] for one in answer[rows]] == expected
    status, answer = predict(translator_server, {body: []}, path)
    assert (status != 200, list(answer)) == (True, [problem])


def test_random_bodies(server):
    import random

    generator = random.Random(7)
    good = json.dumps(post(["ba", "di"])).encode()
    for _ in range(60):
        body = bytearray(good)
        for _ in range(generator.randrange(1, 5)):
            body[generator.randrange(len(body))] = generator.randrange(256)
        body = bytes(body[: generator.randrange(len(body) + 1)])
        status, answer = predict(server, body)
        assert status in (200, 400)
        assert status == 200 or list(answer) == ["error"]
    assert predict(server, good)[0] == 200


def raw(server, data):
    """What the server answers to bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := connection.recv(65536):
            found += chunk
    return found


def test_broken_http(server):
    for data in (
        b"\x00\x01\x02\xff" * 20,
        b"GARBAGE\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
    ):
        assert raw(server, data).startswith(b"HTTP/1.1 400")
    # A body that ends too early: nobody is left to be answered.
    raw(server, HEAD + b"Content-Length: 99\r\n\r\n{")
    assert predict(server, {"inputs": ["a"]})[0] == 200


def test_large_bodies_are_refused(server):
    labels = {"protocol": "rest", "signature": "", "code": "RESOURCE_EXHAUSTED"}
    before = count(server, **labels), count(server, **labels | {"code": "OK"})
    status, answer = predict(server, {"inputs": ["a" * LIMIT]})
    assert (status, answer) == (413, {"error": f"The request is larger than {LIMIT} bytes."})
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    chunks = (b"a" * 1000 for _ in range(LIMIT // 1000 + 1))
    connection.request("POST", "/v1/models/shouter:predict", chunks, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    found = raw(server, HEAD + b"Content-Length: 9999999999999\r\n\r\n{")
    assert found.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in found
    after = count(server, **labels), count(server, **labels | {"code": "OK"})
    assert after == (before[0] + 3, before[1])
    texts = ["a" * (LIMIT // 40 - 4)] * 39  # Each with quotes, a comma and a blank.
    assert predict(server, {"inputs": texts})[1]["outputs"]["translations"] == ["A" * 2496] * 39


@pytest.mark.parametrize("signature", ["serving_default", "padded"])
def test_many_rows_are_refused(server, signature):
    status, answer = predict(server, post(["a"] * (ROWS + 1), signature))
    assert (status, answer["error"]) == (
        400,
        f"Expected at most {ROWS} rows in one request; received {ROWS + 1}. Send several requests, "
        "or start the server with a larger max_request_bytes.",
    )
    assert predict(server, post(["a"] * ROWS, signature))[0] == 200


def test_a_full_queue_refuses_and_recovers(server):
    with paused(server) as (entered, release), ThreadPoolExecutor(1 + QUEUE) as pool:
        first = pool.submit(predict, server, {"inputs": ["first"]})
        assert entered.acquire(timeout=60)
        others = [pool.submit(predict, server, {"inputs": [f"t{i}"]}) for i in range(QUEUE)]
        _until(lambda: fetch(server, "/metrics")[2], f"keras_addnorm_queue_length {QUEUE}.0")
        status, answer = predict(server, {"inputs": ["one too many"]})
        assert status == 429
        assert "queue is full" in answer["error"]
        assert fetch(server, "/healthz")[0] == 200
        release.set()
        answers = [future.result() for future in (first, *others)]
    assert [answer["outputs"]["translations"] for _, answer in answers] == [
        ["FIRST"],
        ["T0"],
        ["T1"],
    ]
    assert predict(server, {"inputs": ["a"]})[0] == 200


def _until(look, words):
    for _ in range(2000):
        if words in look():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{words!r} has not come: {look()}")


def test_time_is_up(tmp_path):
    write_version(tmp_path, 1)
    settings = Settings(tmp_path, "slow", port=0, grpc_port=None, timeout=0.05, workers=1)
    with running(settings) as server:
        with paused(server) as (_, release):
            path = "/v1/models/slow:predict"
            status, answer = predict(server, {"inputs": ["a"]}, path)
            assert (status, answer["error"]) == (
                504,
                "The request was not answered within 0.05 seconds.",
            )
            # The second one waits behind the first and is given up before it begins.
            assert predict(server, {"inputs": ["b"]}, path)[0] == 504
            release.set()
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = HEAD.replace(b"shouter", b"slow")
            connection.sendall(head + b"Content-Length: 9\r\n\r\n{")
            assert connection.recv(100).startswith(b"HTTP/1.1 504")


def test_an_error_that_nobody_expected_stays_in_the_log(server, caplog):
    signatures = server.service.versions.current.signatures
    original = signatures["echo"]

    class Broken(dict):
        def keys(self):
            raise ZeroDivisionError("a secret")

    import dataclasses

    signatures["echo"] = dataclasses.replace(original, inputs=Broken())
    try:
        status, answer = predict(server, {"inputs": ["a"], "signature_name": "echo"})
    finally:
        signatures["echo"] = original
    assert (status, answer) == (500, {"error": "The server failed to answer; its log says why."})
    assert "a secret" in caplog.text


def test_health_and_metrics(server, monkeypatch):
    assert fetch(server, "/healthz")[::2] == (200, {"status": "alive"})
    assert fetch(server, "/readyz")[::2] == (200, {"status": "ready"})
    with monkeypatch.context() as patch:
        patch.setattr(server.service, "is_stopping", True)
        assert fetch(server, "/readyz")[::2] == (503, {"status": "stopping"})

    good = {"protocol": "rest", "signature": "serving_default", "code": "OK"}
    bad = {"protocol": "rest", "signature": "", "code": "INVALID_ARGUMENT"}
    before = count(server, **good), count(server, **bad)
    predict(server, {"inputs": ["a"]})
    predict(server, {"inputs": ["a"], "signature_name": "made up by a stranger"})
    assert (count(server, **good), count(server, **bad)) == (before[0] + 1, before[1] + 1)
    text = fetch(server, "/metrics")[2]
    assert "stranger" not in text
    for metric in (
        "keras_addnorm_model_version 3.0",
        "keras_addnorm_queue_length 0.0",
        'keras_addnorm_batch_rows_count{signature="serving_default"}',
        'keras_addnorm_request_seconds_bucket{le="0.001",protocol="rest",signature="serving_default"}',
    ):
        assert metric in text


def test_the_page_loads_nothing_from_elsewhere(server):
    status, headers, page = fetch(server, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "; script-src 'sha256-" in policy and "; style-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert re.findall(r"https?://[^\s\"']+", page) == ["http://www.w3.org/2000/svg"]
    assert "shouter: translation" in page


def test_the_name_of_a_model_is_escaped():
    from keras_addnorm.serving.server.page import Page

    evil = '"><script>alert(1)</script>'
    for page in (Page(evil).html(), Page("mine").html(evil)):
        assert "<script>alert" not in page
        assert "&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "{{" not in Page("mine").html()


@pytest.mark.parametrize(
    ("card", "note"),
    [
        (b'{"note": "It knows dates."}', "It knows dates."),
        (b'{"note": 3}', ""),
        (b"[]", ""),
        (b"{", ""),
        (None, ""),
    ],
)
def test_the_page_says_what_the_card_notes(tmp_path, card, note):
    from keras_addnorm.serving.server.loaded_version import _note

    if card is not None:
        (tmp_path / "model.json").write_bytes(card)
    assert _note(tmp_path / "model.json") == note


def test_answers_do_not_wait_for_acknowledgements():
    with listen("127.0.0.1", 0) as listening:
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
