"""The client: both transports give the same, wait for servers, and say what is wrong."""

import contextlib
import http.server
import json
import math
import socket
import threading
import time
from concurrent import futures

import grpc
import numpy as np
import pytest
from paused_signature import paused
from small_models import scores, shout, write_broken_version, write_version

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.serving import Client, ServingError, Translation, client
from keras_addnorm.serving.client_rest import RestTransport
from keras_addnorm.serving.server import Settings, running

TRANSPORTS = ("rest", "grpc")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("client") / "shouter"
    directory.mkdir()
    write_version(directory, 3)
    write_broken_version(directory, 4)
    with running(Settings(directory, port=0, grpc_port=0)) as server:
        yield server


def connect(server, transport, model="shouter", **options):
    target = (
        f"http://127.0.0.1:{server.port}"
        if transport == "rest"
        else f"127.0.0.1:{server.grpc_port}"
    )
    return Client(target, model=model, **options)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_translate(server, transport):
    texts = ["ba", "ärger", "", "a" * 1000]
    with connect(server, transport) as client:
        found = client.translate(iter(texts))
        assert [text for text, _ in found] == shout(texts)
        assert [score for _, score in found] == pytest.approx(scores(texts))
        assert isinstance(found[0], Translation)
        # This model does not say that it normalises: it is one from before, which expects NFKC.
        assert client.translate(["\ufb01n\tde"])[0].text == "FIN DE"
        assert client.translate([]) == []
        with pytest.raises(TypeError, match=r"Expected several texts. Received: one"):
            client.translate("one")


class Answers:
    """A transport to a model whose signature `tokenize` answers so."""

    def __init__(self, tokenize):
        self.tokenize = tokenize
        self.texts = []

    def predict(self, signature, inputs, timeout):
        if signature == "tokenize":
            if isinstance(self.tokenize, str):
                raise ServingError(self.tokenize, "No.")
            return self.tokenize
        self.texts += inputs["texts"].tolist()
        return {"translations": inputs["texts"], "scores": np.zeros(len(inputs["texts"]))}


@pytest.mark.parametrize(
    ("tokenize", "sent"),
    [({"normalized": []}, "\ufb01n"), ({}, "fin"), ("INVALID_ARGUMENT", "fin")],
)
def test_texts_are_normalised_for_a_model_that_does_not(tokenize, sent, monkeypatch):
    transport = Answers(tokenize)
    monkeypatch.setattr(client, "_transport", lambda *_: transport)
    Client("anywhere", model="m").translate(["\ufb01n"])
    assert transport.texts == [sent]


def test_texts_with_a_language_are_sent_as_they_are(monkeypatch):
    """An export with such an input normalises texts; its `tokenize` asks for the language, too."""
    transport = Answers("INVALID_ARGUMENT")
    monkeypatch.setattr(client, "_transport", lambda *_: transport)
    Client("anywhere", model="m").translate(["\ufb01n\u2026\nb"], target_language="deu_Latn")
    assert transport.texts == ["\ufb01n\u2026\nb"]


def test_nothing_is_sent_while_it_is_not_known_whether_the_model_normalises(monkeypatch):
    transport = Answers("UNAVAILABLE")
    monkeypatch.setattr(client, "_transport", lambda *_: transport)
    asking = Client("anywhere", model="m", retries=0)
    with pytest.raises(ServingError, match="UNAVAILABLE"):
        asking.translate(["\ufb01n"])
    transport.tokenize = {"normalized": []}
    asking.translate(["\ufb01n"])
    assert transport.texts == ["\ufb01n"]


def test_both_transports_give_the_same_arrays(server):
    inputs = {
        "half": np.array([0.5, 1], np.float16),
        "single": np.array([0.25, 1], np.float32),
        "double": [1.0, 2.5],
        "small": np.array([-128, 126], np.int8),
        "big": [2**63 - 1, 0],
        "flag": [True, False],
    }
    found = {}
    for transport in TRANSPORTS:
        with connect(server, transport) as client:
            found[transport] = [
                client.predict("numbers", **inputs),
                client.predict("echo", value=[b"\xff\x00", b""]),
                client.predict("echo", value=["ä\x00"]),
                client.predict("matrix", x=np.full((2, 3), 0.1, np.float32)),
                client.predict("padded", texts=["a b", "c"]),
                client.predict(texts=["a"]),
            ]
    for rest, remote in zip(*found.values(), strict=True):
        assert rest.keys() == remote.keys()
        for name, array in rest.items():
            np.testing.assert_array_equal(array, remote[name])
            assert (array.dtype, array.shape) == (remote[name].dtype, remote[name].shape)
    assert found["rest"][1]["value_bytes"].tolist() == [b"\xff\x00", b""]
    assert found["rest"][2]["value_bytes"].tolist() == ["ä\x00".encode()]
    assert found["rest"][4]["words"].tolist() == [["a", "b"], ["c", ""]]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_status(server, transport):
    with connect(server, transport) as client:
        refused, served = client.status()
        assert served == (3, "AVAILABLE", "OK", "")
        assert refused[:3] == (4, "END", "INVALID_ARGUMENT")
        assert refused.error_message.startswith("Refused: ")
    with connect(server, transport, version=3) as client:
        assert client.status() == [served]
        assert client.translate(["a"])[0].text == "A"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_wrong(server, transport):
    with connect(server, transport) as client:
        for call, code, words in (
            (lambda: client.predict("none", texts=["a"]), None, "none"),
            (lambda: client.predict(texts=[1]), "INVALID_ARGUMENT", "texts"),
            (lambda: client.predict(text=["a"]), "INVALID_ARGUMENT", "text"),
            (lambda: client.translate(["bad"]), "INVALID_ARGUMENT", "a bad text"),
        ):
            with pytest.raises(ServingError) as error:
                call()
            assert words in error.value.message
            assert error.value.code == (
                code or ("INVALID_ARGUMENT" if transport == "rest" else "FAILED_PRECONDITION")
            )
    for options in ({"model": "other"}, {"version": 9}):
        with connect(server, transport, **options) as client, pytest.raises(ServingError) as error:
            client.translate(["a"])
        assert error.value.code == "NOT_FOUND"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_time_is_up(server, transport):
    with paused(server), connect(server, transport, timeout=0.1) as client:
        with pytest.raises(ServingError) as error:
            client.translate(["a"])
        assert error.value.code == "DEADLINE_EXCEEDED"
    with connect(server, transport) as client:
        assert client.translate(["a"])[0].text == "A"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_many_threads_share_a_client(server, transport):
    with connect(server, transport) as client, futures.ThreadPoolExecutor(5) as pool:
        texts = [[f"t{i}"] for i in range(40)]
        found = list(pool.map(client.translate, texts))
    assert [[text for text, _ in each] for each in found] == [shout(text) for text in texts]


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that a client makes, without making them."""
    made = []
    monkeypatch.setattr(client.time, "sleep", made.append)
    monkeypatch.setattr(client.random, "uniform", lambda low, high: high)
    return made


class Scripted:
    """An HTTP server that answers what it is told to, one after the other."""

    def __init__(self, *answers):
        self.asked = 0
        script, scripted = iter(answers), self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                scripted.asked += 1
                status, body = next(script)
                if status is None:  # hang up without a word
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                self.do_GET()

            def log_message(self, *arguments):
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/prefix/"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def failure(status):
    return status, json.dumps({"error": f"number {status}"}).encode()


GOOD = (200, b'{"model_version_status": []}')


def test_what_passes_is_tried_again(pauses):
    with Scripted(failure(503), failure(429), (None, b""), GOOD) as scripted:
        assert Client(scripted.url, model="m").status() == []
    assert scripted.asked == 4
    assert pauses == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "INVALID_ARGUMENT"),
        (404, "NOT_FOUND"),
        (413, "INVALID_ARGUMENT"),
        (500, "INTERNAL"),
        (501, "UNIMPLEMENTED"),
        (504, "DEADLINE_EXCEEDED"),
        (418, "UNKNOWN"),
    ],
)
def test_what_stays_is_not_tried_again(pauses, status, code):
    with Scripted(failure(status)) as scripted, pytest.raises(ServingError) as error:
        Client(scripted.url, model="m").status()
    assert (error.value.code, error.value.message) == (code, f"number {status}")
    assert pauses == []


def test_tries_end(pauses):
    with Scripted(*[failure(503)] * 3) as scripted, pytest.raises(ServingError, match="number 503"):
        Client(scripted.url, model="m", retries=2).status()
    assert (scripted.asked, pauses) == (3, [0.1, 0.2])
    with Scripted(failure(503)) as scripted, pytest.raises(ServingError, match="number 503"):
        Client(scripted.url, model="m", retries=99, timeout=0.05).status()
    assert scripted.asked == 1  # the next try would come too late


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "the answer is not JSON"),
        (200, b"null", "the answer is not a JSON object: b'null'"),
        (404, b"[]", "the answer is not a JSON object"),
    ],
)
def test_an_answer_of_another_kind_of_server(status, body, words):
    with Scripted((status, body)) as scripted, pytest.raises(ServingError, match=words):
        Client(scripted.url, model="m").status()


NO_SERVER_OF_MODELS = "The answer is not that of a server of translation models"


@pytest.mark.parametrize(
    "status",
    [None, 3, [3], [{}], [{"version": "x"}], [{"version": 1, "state": "AVAILABLE", "status": 3}]],
)
def test_a_status_that_is_none(status):
    body = json.dumps({"model_version_status": status}).encode()
    with Scripted((200, body)) as scripted, pytest.raises(ServingError, match=NO_SERVER_OF_MODELS):
        Client(scripted.url, model="m").status()


METADATA = {
    "metadata": {
        "signature_def": {
            "signature_def": {
                "serving_default": {
                    "outputs": {
                        "translations": {"dtype": "DT_STRING"},
                        "scores": {"dtype": "DT_FLOAT"},
                    }
                }
            }
        }
    }
}


@pytest.mark.parametrize(
    ("metadata", "answer"),
    [
        ({"metadata": [1]}, {}),
        ({"metadata": {"signature_def": {"signature_def": {"a": 3}}}}, {}),
        (METADATA, {"inputs": 3}),
        (METADATA, {"outputs": 3}),
        (METADATA, {"outputs": {"scores": [1.0]}}),
        (METADATA, {"outputs": {"translations": ["a"], "scores": ["b"]}}),
        (METADATA, {"outputs": {"translations": ["a"], "scores": [1.0, 2.0]}}),
        (METADATA, {"outputs": {"translations": ["a", "b"], "scores": [1.0, 2.0]}}),
        (METADATA, {"outputs": {"translations": [{"b64": 3}], "scores": [1.0]}}),
        (METADATA, {"outputs": {"translations": [None], "scores": [1.0]}}),
        (METADATA, {"outputs": {"translations": ["a"], "scores": [math.nan]}}),
    ],
)
def test_a_prediction_that_is_none(metadata, answer):
    bodies = [(200, json.dumps(one).encode()) for one in (metadata, answer)]
    with Scripted(*bodies) as scripted, pytest.raises(ServingError, match=NO_SERVER_OF_MODELS):
        Client(scripted.url, model="m", retries=0).translate(["a"])


def test_what_a_server_says_is_shown_escaped_and_not_at_any_length():
    body = json.dumps({"error": "\x1b[2J" + "x" * 10**6}).encode()
    with Scripted((400, body)) as scripted, pytest.raises(ServingError) as error:
        Client(scripted.url, model="m").status()
    assert len(str(error.value)) < 2100 and "\x1b" not in str(error.value)


def test_an_answer_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr("keras_addnorm.serving.client_rest.LARGEST_ANSWER", 10**5)
    with (
        Scripted((200, b" " * 10**6)) as scripted,
        pytest.raises(ServingError, match="INTERNAL: The answer has more than 100,000"),
    ):
        Client(scripted.url, model="m").status()


def test_an_answer_of_very_many_values_is_not_read(monkeypatch):
    monkeypatch.setattr("keras_addnorm.serving.client_rest.MOST_VALUES", 1000)
    with (
        Scripted((200, b"[" + b"[]," * 500 + b"1]")) as scripted,
        pytest.raises(ServingError, match="INTERNAL: The answer has more than 1,000 values"),
    ):
        Client(scripted.url, model="m").status()


def test_an_answer_that_comes_drop_by_drop_is_given_up():
    with Scripted() as scripted:
        handler = scripted._server.RequestHandlerClass

        def drip(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(50):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.02)

        handler.do_GET = drip
        with pytest.raises(ServingError, match="No answer from"):
            Client(scripted.url, model="m", timeout=0.2, retries=0).status()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (CHUNKED + b"1;", b"x"),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n"),
    ],
    ids=["status", "headers", "continue", "size of a chunk", "trailers"],
)
def test_what_stands_around_an_answer_has_an_end_too(first, again):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(first)
                end = time.monotonic() + 1.5
                while time.monotonic() < end:
                    connection.sendall(again)
                    time.sleep(0.02)

        with futures.ThreadPoolExecutor(1) as pool:
            pool.submit(answer)
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with pytest.raises(ServingError, match="No answer from"):
                Client(url, model="m", timeout=0.2, retries=0).status()


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://host:99999",
        "http://host:x",
        "http://[::1",
        "http://a b",
        "http://host/\n",
        "http://host/ä",
        "http://user:word@host",
        "http://host/?key=1",
        "http://host/#part",
    ],
)
def test_an_address_that_is_none(url):
    with pytest.raises(ArgumentError, match="This is no address of a server"):
        Client(url, model="m")


def test_a_version_that_no_server_has():
    with pytest.raises(ArgumentError, match="the number of a version or None"):
        Client("localhost:8500", model="m", version=2**63)


def test_a_tensor_whose_shape_has_no_end_is_refused():
    from tensorflow.core.framework import tensor_pb2

    from keras_addnorm.serving.client_grpc import _to_array

    tensor = tensor_pb2.TensorProto(dtype=1, float_val=[1.0])
    tensor.tensor_shape.dim.add(size=3)
    assert _to_array("y", tensor).tolist() == [1.0] * 3
    for size in (10**12, -1):
        tensor.tensor_shape.dim[0].size = size
        with pytest.raises(ValueError, match="would have"):
            _to_array("y", tensor)
    for _ in range(254):
        tensor.tensor_shape.dim.add(size=2**62)
    with pytest.raises(ValueError, match="would have 255 axes"):
        _to_array("y", tensor)


def test_metadata_and_prediction_share_the_time(monkeypatch):
    transport, given = RestTransport("http://127.0.0.1:9", "m", None), []
    outputs = {"y": {"dtype": "DT_FLOAT"}, "z": {"dtype": "DT_FLOAT"}}
    metadata = {"signature_def": {"signature_def": {"s": {"outputs": outputs}}}}

    def ask(method, path, timeout, body=None):
        given.append(timeout)
        time.sleep(0.05)
        return {"metadata": metadata, "outputs": {"y": [1.0], "z": [2.0]}}

    monkeypatch.setattr(transport, "_ask", ask)
    assert transport.predict("s", {}, 10.0)["z"].tolist() == [2.0]
    assert transport.predict("s", {}, 0.01)["y"].tolist() == [1.0]  # the types are known by now
    first, second, third = given
    assert first <= 10.0 and second <= first - 0.05
    assert 0 < third <= 0.01


@pytest.mark.parametrize("scheme", ["http://", "grpc://"])
def test_nobody_is_there(pauses, scheme):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = Client(f"{scheme}127.0.0.1:{port}", model="m", retries=1)
    with pytest.raises(ServingError) as error:
        client.status()
    assert error.value.code == "UNAVAILABLE"
    assert pauses == [0.1]
    client.close()


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("", {"model": "m"}),
        ("localhost:1", {"model": ""}),
        ("http://", {"model": "m"}),
        ("localhost:1", {"model": "m", "timeout": 0}),
        ("localhost:1", {"model": "m", "retries": -1}),
        ("http://localhost:1", {"model": "m", "timeout": 1e10}),
        ("http://localhost:1", {"model": "\ud800"}),
        (f"http://{'a' * 64}:1", {"model": "m"}),
    ],
)
def test_arguments_that_make_no_sense(target, options):
    with pytest.raises(ArgumentError, match="Expected a"):
        Client(target, **options)


@pytest.mark.parametrize("value", [object(), {1}, 1j, np.datetime64("2020")])
def test_an_input_that_json_has_not(value):
    with Scripted((200, json.dumps(METADATA).encode())) as scripted:
        # A NumPy number as a timeout, too, which a socket does not take.
        client = Client(scripted.url, model="m", timeout=np.float32(5), retries=0)
        with pytest.raises(ArgumentError, match=r"An input cannot be sent: .*not JSON serial"):
            client.predict(texts=value)


def test_an_official_stub_server_is_understood_too():
    """Another server on the official messages, as TensorFlow Serving is one."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    class Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            answer = predict_pb2.PredictResponse(model_spec=request.model_spec)
            answer.outputs["translations"].CopyFrom(request.inputs["texts"])
            count = len(tf.make_ndarray(request.inputs["texts"]))
            answer.outputs["scores"].CopyFrom(tf.make_tensor_proto(np.ones(count, np.float32)))
            return answer

    server = grpc.server(futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Client(f"127.0.0.1:{port}", model="m") as client:
        assert client.translate(["a", "b"]) == [("a", 1.0), ("b", 1.0)]
    server.stop(None).wait()


def test_a_state_that_has_no_name_is_refused():
    from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

    class Servicer(model_service_pb2_grpc.ModelServiceServicer):
        def GetModelStatus(self, request, context):
            answer = get_model_status_pb2.GetModelStatusResponse()
            answer.model_version_status.add(version=1, state=77)
            return answer

    server = grpc.server(futures.ThreadPoolExecutor(1))
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with (
        Client(f"127.0.0.1:{port}", model="m", retries=0) as client,
        pytest.raises(ServingError, match="not that of a server of translation models"),
    ):
        client.status()
    server.stop(None).wait()
