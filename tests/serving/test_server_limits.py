"""One request does not stop the others: limits before the work, and large work beside it."""

import asyncio
import base64
import contextlib
import dataclasses
import http.client
import json
import math
import socket
import struct
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf
import uvicorn
from small_models import fetch, shout, write_version
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from keras_addnorm.serving import Client, ServingError
from keras_addnorm.serving.server import Settings, connections, grpc_api, json_tensors, running
from keras_addnorm.serving.server.connections import connection_class
from keras_addnorm.serving.server.conversions import Conversions
from keras_addnorm.serving.server.held_bytes import HeldBytes
from keras_addnorm.serving.server.json_tensors import PredictBody, answer
from keras_addnorm.serving.server.limits import LARGE, TooMuchError, check_cost
from keras_addnorm.serving.server.loaded_version import Signature, Spec

REQUEST = 120_000
ROWS, TEXT, VALUES, ANSWER = REQUEST // 400, REQUEST // 40, REQUEST // 20, 3 * REQUEST


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("limits") / "shouter"
    directory.mkdir()
    write_version(directory, 1)
    settings = Settings(
        directory,
        port=0,
        grpc_port=0,
        workers=1,
        max_request_bytes=REQUEST,
        max_held_bytes=ANSWER,
        send_timeout=0.2,
        warm_up=False,
    )
    with running(settings) as server:
        yield server


def predict(server, texts, signature="serving_default"):
    body = {"inputs": {"texts": texts}, "signature_name": signature}
    return fetch(server, "/v1/models/shouter:predict", body)[::2]


def client(server, transport):
    target = f"http://127.0.0.1:{server.port}" if transport == "rest" else None
    return Client(target or f"127.0.0.1:{server.grpc_port}", model="shouter", retries=0)


@contextlib.contextmanager
def replaced(server, name, function):
    """Puts a function in the place of a signature's."""
    signatures = server.service.versions.current.signatures
    original = signatures[name]
    signatures[name] = dataclasses.replace(original, function=function, function_beside=None)
    try:
        yield
    finally:
        signatures[name] = original


def until(look):
    """Waits for something that comes by itself."""
    for _ in range(3000):
        if look():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it has not come")


# As many characters as to be large, in texts that may be as long as these.
LARGE_TEXTS = ["ab" * 1000] * 40


@pytest.mark.parametrize("transport", ["rest", "grpc"])
@pytest.mark.parametrize(
    ("texts", "signature", "words"),
    [
        (["a", "é" * (TEXT // 2 + 1)], "serving_default", f"at most {TEXT} bytes; received one of"),
        (["a" * 1000] + ["a"] * 100, "padded", f"at most {ANSWER} bytes; for 101 rows"),
        (["a"] * (ROWS + 1), "serving_default", f"Expected at most {ROWS} rows"),
    ],
)
def test_what_costs_too_much_is_refused_before_it_is_computed(
    server, transport, texts, signature, words
):
    called = []
    with (
        replaced(server, signature, lambda **arrays: called.append(arrays)),
        client(server, transport) as asked,
        pytest.raises(ServingError) as error,
    ):
        asked.predict(signature, texts=texts)
    assert error.value.code == "INVALID_ARGUMENT" and words in error.value.message
    assert called == [] and server.service.held.total == 0


def test_limits_have_their_status(server):
    for texts in (["a" * (TEXT + 1)], ["a"] * (VALUES + 1)):
        assert predict(server, texts)[0] == 413
    assert predict(server, ["a" * 1000] + ["a"] * 100, "padded")[0] == 413
    assert predict(server, ["a" * TEXT]) == (
        200,
        {"outputs": {"translations": ["A" * TEXT], "scores": [pytest.approx(-0.1 * TEXT)]}},
    )


def signature_of(**outputs):
    specs = {name: Spec(dtype, shape) for name, (dtype, shape) in outputs.items()}
    return Signature("f", 1, {"texts": Spec(tf.string, (None,))}, specs, dict)


@pytest.mark.parametrize(
    ("outputs", "size"),
    [
        ({"y": (tf.float32, (None,))}, 3 * 4),
        ({"y": (tf.float32, (None, None, 5))}, 3 * 7 * 5 * 4),
        ({"y": (tf.int64, (None, 2, None))}, 3 * 2 * 7 * 8),
        ({"y": (tf.string, (None, None))}, 3 * 7 * 64),
        ({"y": (tf.float32, None), "z": (tf.float32, ())}, 3 * 7 * 4 + 4),
    ],
)
def test_what_an_answer_takes_is_known_before(outputs, size):
    texts = {"texts": np.array([b"a", b"1234567", b""], object)}
    signature = signature_of(**outputs)
    size += 8  # the texts themselves
    limits = types.SimpleNamespace(max_rows=3, max_text_bytes=7, max_answer_bytes=size)
    assert check_cost(signature, texts, limits) == size
    limits.max_answer_bytes -= 1
    with pytest.raises(TooMuchError, match=f"at most {size - 1} bytes; for 3 rows .* take {size}"):
        check_cost(signature, texts, limits)


@pytest.mark.parametrize(
    ("body", "is_too_much"),
    [
        (b'{"inputs": [1, 2, 3]}', False),
        (b'{"inputs": [1, 2, 3, 4]}', True),
        (b'{"inputs": ["a,b,[c],{d}", ",,,,"]}', False),
        (b'{"inputs": ["\\",,,,,", "\\\\"]}', False),
        (b'{"inputs": [[[[]]]]}', True),
        (b'{"inputs": ["\\\\",1,2,3,4]}', True),
    ],
)
def test_values_are_counted_before_they_are_read(body, is_too_much):
    json.loads(body)
    if is_too_much:
        with pytest.raises(TooMuchError, match="at most 4 values in one request"):
            PredictBody.parse(body, 4)
    else:
        assert PredictBody.parse(body, 4).value


@pytest.mark.parametrize("body", [b'"\\"' * 9, b'{"a": "' + b"," * 9, b'"' + b'\\"' * 9 + b",,,,,"])
def test_strings_that_do_not_end_are_counted_once(body):
    with pytest.raises(ServingError, match="JSON Parse error"):
        PredictBody.parse(body, 4)


def test_the_server_answers_while_something_large_is_converted(server):
    """The thread that converts is held up; small requests, health and metrics do not need it."""
    release = threading.Event()
    blocked = server.service.conversions._pool.submit(release.wait, 60)
    with ThreadPoolExecutor(2) as pool, client(server, "grpc") as asked:
        large = pool.submit(predict, server, LARGE_TEXTS)
        of_grpc = pool.submit(asked.predict, texts=LARGE_TEXTS)
        until(lambda: server.service.held.total > 2 * LARGE)
        for path in ("/healthz", "/readyz", "/metrics", "/v1/models/shouter"):
            assert fetch(server, path)[0] == 200
        assert predict(server, ["a"])[1]["outputs"]["translations"] == ["A"]
        assert asked.predict(texts=["a"])["translations"] == ["A"]
        assert not large.done() and not of_grpc.done() and not blocked.done()
        release.set()
        assert large.result()[1]["outputs"]["translations"] == shout(LARGE_TEXTS)
        assert of_grpc.result()["translations"].tolist() == shout(LARGE_TEXTS)
    until(lambda: server.service.held.total == 0)


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_large_requests_share_a_limit(server, transport):
    holding = server.service.held.open()
    holding.add(ANSWER)
    try:
        with client(server, transport) as asked:
            with pytest.raises(ServingError, match="RESOURCE_EXHAUSTED: Large requests may take"):
                asked.predict(texts=LARGE_TEXTS)
            assert asked.predict(texts=["a"])["translations"] == ["A"]
            holding.close()
            assert asked.predict(texts=LARGE_TEXTS)["translations"].tolist() == shout(LARGE_TEXTS)
    finally:
        holding.close()
    until(lambda: "keras_addnorm_held_bytes 0.0" in fetch(server, "/metrics")[2])


def test_held_bytes():
    held = HeldBytes(10)
    assert not held.was_emptied()
    with held.open() as first, held.open() as second:
        first.add(12)  # more than all, but alone
        with pytest.raises(ServingError, match="may take 10 bytes together"):
            second.add(1)
        first.close()
        second.add(4)
        first.add(6)
        assert held.total == 10 and not held.was_emptied()
    assert held.total == 0
    assert [held.was_emptied(), held.was_emptied()] == [True, False]


def test_memory_is_given_back_after_large_requests(server, tmp_path, monkeypatch):
    from keras_addnorm.serving.server import app

    until(lambda: server.service.held._is_clean)  # it gives back, too
    given_back = threading.Event()
    monkeypatch.setattr(app, "give_memory_back", given_back.set)
    write_version(tmp_path, 1)
    settings = Settings(tmp_path, "shouter", port=0, grpc_port=None, poll_seconds=0.01)
    with running(settings) as other:
        assert predict(other, ["a"])[0] == 200
        assert other.service.held._is_clean
        assert predict(other, LARGE_TEXTS)[0] == 200
        assert given_back.wait(60)
        # And now and then, since large requests may follow each other without a pause.
        given_back.clear()
        monkeypatch.setattr(app, "_GIVING_BACK", 0.0)
        assert given_back.wait(60)
        assert other.service.held._is_clean


def large_answer(count):
    return lambda texts: {"words": np.zeros((1, count))}


def test_who_does_not_read_is_dropped(server):
    """The buffers of both sides hold a part of the answer; the rest is not even made."""
    body = json.dumps({"signature_name": "padded", "inputs": ["a b c" * 200] * 3}).encode()
    head = "POST /v1/models/shouter:predict HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Length: {len(body)}"
    with replaced(server, "padded", large_answer(5_000_000)), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        until(lambda: server.service.held.total > LARGE)
        until(lambda: server.service.held.total == 0)
        with contextlib.suppress(ConnectionResetError):
            received = 0
            while chunk := connection.recv(1 << 20):
                received += len(chunk)
            assert received < 20_000_000
    assert predict(server, ["a"])[0] == 200


def test_who_reads_gets_a_large_answer_in_pieces(server):
    with replaced(server, "padded", large_answer(400_000)):
        status, headers, found = fetch(
            server,
            "/v1/models/shouter:predict",
            {"signature_name": "padded", "inputs": ["a"]},
        )
    assert (status, headers["transfer-encoding"], headers["content-length"]) == (
        200,
        "chunked",
        None,
    )
    assert found == {"outputs": [[0.0] * 400_000]}
    assert server.service.held.total == 0


def raw(server, data):
    """What the server answers to a client that closes its sending half."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := connection.recv(65536):
            found += chunk
    return found


def post(text, **headers):
    body = json.dumps({"inputs": [text]}).encode()
    headers = {"Host": "localhost", "Content-Length": len(body), **headers}
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    head = "POST /v1/models/shouter:predict HTTP/1.1\r\n" + "".join(lines) + "\r\n"
    return head.encode() + body


def test_a_client_that_has_said_all_gets_its_answer(server):
    for _ in range(5):
        found = raw(server, post("ba"))
        assert found.startswith(b"HTTP/1.1 200") and b'"BA"' in found
    found = raw(server, post("ba") + post("di") + post("ku"))
    assert found.count(b"HTTP/1.1 200") == 3
    assert found.index(b'"BA"') < found.index(b'"DI"') < found.index(b'"KU"')
    # What is no whole request has no answer, and nothing keeps the connection.
    assert raw(server, post("ba")[:-1]) == b""
    assert raw(server, b"") == b""
    found = raw(server, post("ba") + post("di")[:-1])
    assert found.count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("leaves", ["closes", "resets"])
def test_what_nobody_waits_for_is_not_computed_further(server, leaves, monkeypatch):
    """A large request in portions: none begins after its client has gone."""
    monkeypatch.setattr(connections, "_QUESTION_SECONDS", 0.05)
    calls, began, go = [], threading.Event(), threading.Event()

    def slow(texts):
        calls.append(len(texts))
        began.set()
        assert go.wait(60)
        return {"translations": texts, "scores": np.zeros(len(texts), np.float32)}

    cancelled = 'code="CANCELLED",protocol="rest",signature="serving_default"} '
    with replaced(server, "serving_default", slow), socket.socket() as connection:
        connection.connect(("127.0.0.1", server.port))
        body = json.dumps({"inputs": ["a"] * 193}).encode()
        head = post("").partition(b"Content-Length")[0]
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert began.wait(60)
        before = fetch(server, "/metrics")[2].partition(cancelled)[2].partition("\n")[0]
        if leaves == "resets":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        until(
            lambda: (
                cancelled in (text := fetch(server, "/metrics")[2])
                and text.partition(cancelled)[2].partition("\n")[0] != before
            )
        )
        go.set()
        assert predict(server, ["b"])[0] == 200
    assert calls == [64, 1]


def test_a_client_that_has_said_all_gets_a_late_answer(server, monkeypatch):
    """It is asked whether it is there meanwhile, in a way that clients pass over."""
    monkeypatch.setattr(connections, "_QUESTION_SECONDS", 0.05)
    go = threading.Event()

    def slow(texts):
        assert go.wait(60)
        return {"translations": texts, "scores": np.zeros(len(texts), np.float32)}

    with (
        replaced(server, "serving_default", slow),
        socket.create_connection(("127.0.0.1", server.port)) as connection,
    ):
        connection.sendall(post("ba"))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        go.set()
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, b'"ba"' in answer.read()) == (200, True)


def test_two_lengths_are_refused_and_the_connection_closed(server):
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    chunked = post("ba", Transfer_Encoding="chunked").partition(b"\r\n\r\n")[0]
    for data in (
        chunked + b"\r\n\r\n0\r\n\r\n" + hidden,
        chunked.replace(b"POST /v1/models/shouter:predict", b"GET /healthz") + b"\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(data)
            found = b""
            while chunk := connection.recv(65536):  # until the server closes
                found += chunk
        assert found.startswith(b"HTTP/1.1 400")
        assert b"Content-Length or Transfer-Encoding; received both" in found
        assert found.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "data",
    [
        b"GET /healthz\r\n\r\n",
        b"\0" * 99,
        b"GET /healthz HTTP/1.1\r\n\r\n",
        post("ba", Content_Length="16, 3"),
        post("ba", Content_Length="0x10"),
        post("ba", Content_Length=-1),
        post("ba", Transfer_Encoding="identity").replace(b"Content-Length: 16\r\n", b""),
        post("ba").replace(b"Content-Length: ", b"Content-Length: 5\r\nContent-Length: "),
        post("ba").replace(b"Host: localhost", b"Host: localhost\r\nTransfer-Encoding : chunked"),
        post("ba").replace(b"Host: localhost", b"Host: localhost\r\nX: a\rContent-Length: 5"),
    ],
)
def test_what_is_no_request_is_refused_in_json_and_nothing_behind_it_is_read(server, data):
    found = raw(server, data + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 400") and found.count(b"HTTP/1.1") == 1
    head, _, body = found.partition(b"\r\n\r\n")
    assert b"connection: close" in head and "error" in json.loads(body)


def test_a_coding_that_is_said_twice_is_one_of_two_steps(server):
    data = post("ba").replace(
        b"Host: localhost", b"Host: localhost\r\n" + b"Content-Encoding: gzip\r\n" * 2 + b"X: a"
    )
    assert b"received the coding 'gzip, gzip'" in raw(server, data)


ARRAYS = {
    "scalar": np.float32(0.1),
    "vector": np.arange(7, dtype=np.int8),
    "flags": np.array([[True, False]] * 5),
    "half": np.array([0.1, 2, -3], np.float16).reshape(3, 1),
    "single": np.linspace(-1, 1, 3 * 5 * 7).astype(np.float32).reshape(3, 5, 7),
    "double": np.array([1e300, 0.1, 1e-5]),
    "not all finite": np.array([1, math.nan, 0.1, -math.inf] * 3, np.float32),
    "strings": np.array([["a", "é\u2028", ""]] * 4, object),
    "empty": np.zeros((0, 3), np.float32),
    "empty rows": np.zeros((2, 0), np.float32),
    "turned": np.arange(12, dtype=np.uint16).reshape(3, 4).T,
    "words_bytes": np.array([b"\xff", b""], object),
}


def encoded(array):
    """Strings are bytes objects."""
    if array.dtype != object or any(isinstance(value, bytes) for value in array.ravel()):
        return array
    return np.array([v.encode() for v in array.ravel()], object).reshape(array.shape)


@pytest.mark.parametrize("block", [1, 4, 10_000])
@pytest.mark.parametrize("name", ARRAYS)
def test_answers_are_the_same_whatever_their_pieces(monkeypatch, name, block):
    monkeypatch.setattr(json_tensors, "_BLOCK", block)
    monkeypatch.setattr(json_tensors, "_PIECE", block)
    array = encoded(np.asarray(ARRAYS[name]))
    (found,) = json.loads(b"".join(answer({name: array}, is_row_format=False))).values()
    expected = array.tolist()
    if name == "words_bytes":
        expected = [{"b64": base64.b64encode(value).decode()} for value in expected]
    elif array.dtype == object:
        expected = ARRAYS[name].tolist()
    np.testing.assert_equal(
        np.array(found, array.dtype if array.dtype != object else object).tolist(), expected
    )
    if array.ndim and len(array):
        outputs = {name: array, "index": np.arange(len(array))}
        rows = json.loads(b"".join(answer(outputs, is_row_format=True)))["predictions"]
        assert [row["index"] for row in rows] == list(range(len(array)))
        np.testing.assert_equal([row[name] for row in rows], found)


def test_a_string_that_is_cut_behind_a_backslash_is_looked_through_once():
    """From each quotation mark in it on, it took the square of their number: an hour for 1 MB."""
    body = b'{"inputs": [1, "' + b'\\",' * 1000 + b"\\"
    found = [part[0][:1] for part in json_tensors._STRUCTURE.finditer(body)]
    assert found == [b"{", b'"', b"[", b",", b'"']
    for rest in (b'"]}', b"", b"\\"):
        with pytest.raises(ServingError, match=r"JSON Parse error|JSON object"):
            PredictBody.parse(body + rest + b"x", 5)


def test_a_large_answer_is_made_in_small_pieces():
    outputs = {"states": np.ones((200, 30, 40), np.float32), "n": np.zeros(200, np.int64)}
    for is_row_format in (False, True):
        pieces = list(answer(outputs, is_row_format=is_row_format))
        assert len(pieces) > 5 and max(map(len, pieces)) < 200_000


def test_large_messages_of_grpc_are_held_until_they_are_read(server):
    """And given back with the call."""
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = "shouter", "padded"
    message.inputs["texts"].CopyFrom(tf.make_tensor_proto(["a b c" * 200] * 3))
    held = []

    def function(texts):
        held.append(server.service.held.total)
        return {"words": np.zeros((1, 300_000))}

    with (
        replaced(server, "padded", function),
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        assert tf.make_ndarray(stub.Predict(message).outputs["words"]).shape == (1, 300_000)
        assert held[0] > LARGE
        until(lambda: server.service.held.total == 0)


def http2_frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def call_of_grpc(message):
    """A call to predict, as its bytes; whoever makes it lets nothing of the answer be sent."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/tensorflow.serving.PredictionService/Predict",
        ":authority": "a",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in headers.items()
    )
    settings, headers, data = 4, 1, 0
    no_window = struct.pack(">HI", 4, 0)
    body = message.SerializeToString()
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + http2_frame(settings, 0, 0, no_window)
        + http2_frame(headers, 4, 1, block)
        + http2_frame(data, 1, 1, b"\0" + struct.pack(">I", len(body)) + body)
    )


def test_who_never_takes_an_answer_over_grpc_is_dropped(tmp_path, monkeypatch):
    """Its connection reads and answers, but gives the call no room to send into."""
    monkeypatch.setattr(grpc_api, "_CONNECTION_AGE", 50)
    write_version(tmp_path, 1)
    limits = {"timeout": 1.5, "send_timeout": 0.2, "warm_up": False}
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = "shouter", "padded"
    message.inputs["texts"].CopyFrom(tf.make_tensor_proto(["a b c" * 200] * 3))
    with running(Settings(tmp_path, "shouter", port=0, grpc_port=0, **limits)) as server:
        # Others do not notice that their connections end.
        with client(server, "grpc") as asked:
            for _ in range(100):
                assert asked.predict(texts=["a"])["translations"] == ["A"]
        held = server.service.held
        with (
            replaced(server, "padded", large_answer(300_000)),
            socket.create_connection(("127.0.0.1", server.grpc_port), timeout=60) as connection,
        ):
            connection.sendall(call_of_grpc(message))
            until(lambda: held.total > LARGE)
            with contextlib.suppress(ConnectionResetError):
                received = 0
                while chunk := connection.recv(65536):  # until the server closes
                    received += len(chunk)
                assert received < 10_000
            until(lambda: held.total == 0)


class FakeLoop:
    """Keeps what is to be called later."""

    def __init__(self):
        self.later = []

    def call_later(self, seconds, function):
        self.later.append([seconds, function, True])
        entry = self.later[-1]
        return types.SimpleNamespace(cancel=lambda: entry.__setitem__(2, False))

    def waiting(self):
        return [seconds for seconds, _, is_wanted in self.later if is_wanted]

    def let_time_pass(self):
        for _, function, is_wanted in self.later:
            if is_wanted:
                function()


class FakeTransport(asyncio.Transport):
    """Notes what becomes of it."""

    def __init__(self, buffered=0):
        super().__init__()
        self.ended, self.written, self.buffered = [], [], buffered

    def write(self, data):
        self.written.append(data)

    def abort(self):
        self.ended.append("abort")

    def close(self):
        self.ended.append("close")

    def is_closing(self):
        return bool(self.ended)

    def get_write_buffer_size(self):
        return self.buffered


def connection(transport):
    from uvicorn.server import ServerState

    config = uvicorn.Config(None, http=connection_class(7.5), lifespan="off", log_config=None)
    config.load_app = lambda: None
    config.load()
    made = config.http_protocol_class(config, ServerState(), {}, FakeLoop())
    made.connection_made(transport)
    return made


def awaited(transport):
    """A connection whose request has come."""
    made = connection(transport)
    made.cycle = types.SimpleNamespace(
        scope={"http_version": "1.1"},
        response_started=False,
        response_complete=False,
        more_body=False,
        message_event=asyncio.Event(),
    )
    made.loop.later.clear()
    return made


def test_who_sends_no_request_is_dropped():
    """Nothing, or a byte of its head now and then; a request that has come has its own limits."""
    made = connection(FakeTransport())
    assert made.loop.waiting() == [10]
    made.data_received(b"GET / HT")
    made.loop.let_time_pass()
    assert made.transport.ended == ["abort"]
    made = connection(FakeTransport())
    made.cycle = awaited(FakeTransport()).cycle
    made.loop.let_time_pass()
    assert made.transport.ended == []


def test_who_has_said_all_is_asked_whether_it_is_there():
    made = awaited(FakeTransport())
    assert made.eof_received()
    assert made.loop.waiting() == [1] and made.transport.written == []
    for count in (1, 2, 3):
        made.loop.later.pop(0)[1]()
        assert made.transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"] * count
    made.cycle.response_started = True
    made.loop.let_time_pass()
    assert len(made.transport.written) == 3


def test_a_client_of_http_1_0_is_not_asked():
    made = awaited(FakeTransport())
    made.cycle.scope["http_version"] = "1.0"
    assert made.eof_received()
    made.loop.let_time_pass()
    assert made.transport.written == []


def test_a_connection_waits_for_a_reader_and_then_no_longer():
    transport = FakeTransport()
    made = awaited(transport)
    made.pause_writing()
    assert made.loop.waiting() == [7.5] and made.flow.write_paused
    made.resume_writing()
    assert made.loop.waiting() == [] and not made.flow.write_paused
    made.loop.let_time_pass()
    assert transport.ended == []
    made.pause_writing()
    made.loop.let_time_pass()
    assert transport.ended == ["abort"]
    made.connection_lost(None)
    assert made.loop.waiting() == []


@pytest.mark.parametrize(("buffered", "waiting"), [(0, []), (3, [7.5])])
def test_a_closed_connection_does_not_wait_for_ever(buffered, waiting):
    """What is in the buffer of a connection that is closed is still sent, if somebody reads."""
    made = awaited(FakeTransport(buffered))
    made.timeout_keep_alive_handler()
    assert made.transport.ended == ["close"]
    assert made.loop.waiting() == waiting


def test_what_pieces_are_made_of_is_given_back_at_once():
    """Not when Python happens to look for garbage."""
    ended = []

    def pieces():
        try:
            yield b"a"
            yield b"b"
        finally:
            ended.append(True)

    async def read_one():
        conversions = Conversions()
        made = conversions.each(pieces())
        assert [await anext(made), ended] == [b"a", []]
        await made.aclose()
        await conversions.close()

    asyncio.run(read_one())
    assert ended == [True]
