"""The server over gRPC, asked with the official stubs."""

import asyncio
import re
import socket
import types
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from paused_signature import paused
from small_models import fetch, scores, shout, write_version
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server import Server, Settings, grpc_api, proto_tensors, running
from keras_addnorm.serving.server.health import Health

LIMIT = 100_000


class ManyRows(Settings):
    """As many rows as a larger request may have."""

    max_rows = 10_000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("grpc") / "shouter"
    directory.mkdir()
    write_version(directory, 3)
    with running(
        ManyRows(directory, port=0, grpc_port=0, max_request_bytes=LIMIT, queue=1, workers=1)
    ) as server:
        yield server


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture
def models(channel):
    return model_service_pb2_grpc.ModelServiceStub(channel)


def request(texts=None, *, model="shouter", version=None, signature="", **inputs):
    message = predict_pb2.PredictRequest()
    message.model_spec.name = model
    message.model_spec.signature_name = signature
    if version is not None:
        message.model_spec.version.value = version
    if texts is not None:
        inputs["texts"] = np.array(texts, object)
    for name, value in inputs.items():
        message.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return message


def outputs(answer):
    return {name: tf.make_ndarray(tensor) for name, tensor in answer.outputs.items()}


def refused(call, message, code):
    with pytest.raises(grpc.RpcError) as error:
        call(message, timeout=60)
    assert error.value.code() == code, error.value.details()
    for secret in ("Traceback", "node ", ".py", "Unexpected"):
        assert secret not in error.value.details()
    return error.value.details()


def test_predict(stub):
    texts = ["ba", "ärger", ""]
    for message in (request(texts), request(texts, version=3, signature="serving_default")):
        answer = stub.Predict(message, timeout=60)
        found = outputs(answer)
        assert [text.decode() for text in found["translations"]] == shout(texts)
        np.testing.assert_allclose(found["scores"], scores(texts), rtol=1e-6)
        assert answer.model_spec.name == "shouter"
        assert answer.model_spec.version.value == 3
        assert answer.model_spec.signature_name == "serving_default"


@pytest.mark.slow
def test_answers_are_those_of_the_translator(toy, translator, texts, capsys):
    """Those to the requests that the export's README shows, too."""
    expected = translator(texts[:5])
    with (
        running(Settings(toy.path.parent, port=0, grpc_port=0, warm_up=False)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        found = outputs(stub.Predict(request(texts[:5], model="toy"), timeout=60))
        readme = (toy.path / "assets.extra" / "README.md").read_text("utf-8")
        (code,) = re.findall(r"Over gRPC.*?```python\n(.*?)```", readme, re.DOTALL)
        exec(code.replace("localhost:8500", f"127.0.0.1:{server.grpc_port}"), {})
        (body, path) = re.findall(r"curl -d '(.*)' http://localhost:8501(\S+)", readme)[0]
        status, _, answer = fetch(server, path, body.encode())
    assert [text.decode() for text in found["translations"]] == [text for text, _ in expected]
    np.testing.assert_allclose(found["scores"], [score for _, score in expected], atol=1e-5)
    ((shown, _),) = translator(["a text"])
    assert capsys.readouterr().out.strip() == str(np.array([shown.encode()], object))
    assert status == 200 and answer["predictions"][0]["translations"] == shown


def test_tensors_of_every_type(stub):
    inputs = {
        "half": np.array([0.5, 1], np.float16),
        "single": np.array([0.25, 1], np.float32),
        "double": np.array([1, 2.5]),
        "small": np.array([-128, 126], np.int8),
        "big": np.array([2**63 - 1, 0], np.int64),
        "flag": np.array([True, False]),
    }
    found = outputs(stub.Predict(request(signature="numbers", **inputs), timeout=60))
    np.testing.assert_array_equal(found["sum"], [1.75, 4.5])
    np.testing.assert_array_equal(found["small"], [-127, 127])
    np.testing.assert_array_equal(found["big"], inputs["big"])
    np.testing.assert_array_equal(found["flag"], [False, True])
    raw = np.array([b"\x00\xff\x00", b""], object)
    found = outputs(stub.Predict(request(signature="echo", value=raw), timeout=60))
    assert found["value_bytes"].tolist() == raw.tolist()
    found = outputs(stub.Predict(request(signature="matrix", x=np.ones((2, 3), "f")), timeout=60))
    assert found["total"] == 6
    empty = outputs(stub.Predict(request([]), timeout=60))
    assert empty["translations"].shape == empty["scores"].shape == (0,)


def test_only_the_outputs_that_are_asked_for(stub):
    message = request(["a"])
    message.output_filter.append("scores")
    assert set(stub.Predict(message, timeout=60).outputs) == {"scores"}
    message.output_filter.append("scores")
    refused(stub.Predict, message, grpc.StatusCode.INVALID_ARGUMENT)
    for wrong in (["nothing"], ["scores"] * 9_000, ["x" * 9_000]):
        message.output_filter[:] = wrong
        details = refused(stub.Predict, message, grpc.StatusCode.INVALID_ARGUMENT)
        assert "output tensor alias not found" in details
        assert len(details) < 400 and "['scores', 'translations']" in details


def labelled():
    message = request(["a"])
    message.model_spec.version_label = "stable"
    return message


def with_tensor(**fields):
    message = request()
    tensor = tensor_pb2.TensorProto(**fields.pop("tensor", {}))
    for size in fields.pop("sizes", ()):
        tensor.tensor_shape.dim.add(size=size)
    message.inputs["texts"].CopyFrom(tensor)
    return message


STRING = {"dtype": types_pb2.DT_STRING, "string_val": [b"a"]}
BAD = {
    "no model": (request(["a"], model=""), "INVALID_ARGUMENT"),
    "another model": (request(["a"], model="other"), "NOT_FOUND"),
    "another version": (request(["a"], version=2), "NOT_FOUND"),
    "a label": (labelled(), "INVALID_ARGUMENT"),
    "another signature": (request(["a"], signature="none"), "FAILED_PRECONDITION"),
    "no input": (request(), "INVALID_ARGUMENT"),
    "another input": (request(text=["a"]), "INVALID_ARGUMENT"),
    "one input more": (request(["a"], more=["a"]), "INVALID_ARGUMENT"),
    "numbers": (
        with_tensor(tensor={"dtype": 1, "float_val": [1.0]}, sizes=[1]),
        "INVALID_ARGUMENT",
    ),
    "a matrix": (request([["a"]]), "INVALID_ARGUMENT"),
    "a scalar": (with_tensor(tensor=STRING), "INVALID_ARGUMENT"),
    "another width": (
        request(signature="matrix", x=np.ones((2, 2), "f")),
        "INVALID_ARGUMENT",
    ),
    "what the model refuses": (request(["good", "bad"]), "INVALID_ARGUMENT"),
    "a tensor without type": (with_tensor(sizes=[1]), "INVALID_ARGUMENT"),
    "an unknown type": (with_tensor(tensor={"dtype": 99}, sizes=[1]), "INVALID_ARGUMENT"),
    "a resource": (with_tensor(tensor={"dtype": 20}, sizes=[1]), "INVALID_ARGUMENT"),
    "a variant": (with_tensor(tensor={"dtype": 21}, sizes=[1]), "INVALID_ARGUMENT"),
    "a tensor of any size": (with_tensor(tensor=STRING, sizes=[10**12]), "INVALID_ARGUMENT"),
    "a size that overflows": (with_tensor(tensor=STRING, sizes=[2**62, 4]), "INVALID_ARGUMENT"),
    "a negative size": (with_tensor(tensor=STRING, sizes=[-1]), "INVALID_ARGUMENT"),
    "two negative sizes": (with_tensor(tensor=STRING, sizes=[-1, -1]), "INVALID_ARGUMENT"),
    "fewer places than values": (with_tensor(tensor=STRING, sizes=[0]), "INVALID_ARGUMENT"),
    "very many axes": (with_tensor(tensor=STRING, sizes=[1] * 300), "INVALID_ARGUMENT"),
    "bytes that are no strings": (
        with_tensor(tensor={"dtype": types_pb2.DT_STRING, "tensor_content": b"abc"}, sizes=[1]),
        "INVALID_ARGUMENT",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(stub, name):
    message, code = BAD[name]
    assert refused(stub.Predict, message, grpc.StatusCode[code])
    assert outputs(stub.Predict(request(["a"]), timeout=60))["translations"] == [b"A"]


def test_one_value_may_stand_for_several(stub):
    found = outputs(stub.Predict(with_tensor(tensor=STRING, sizes=[3]), timeout=60))
    assert found["translations"].tolist() == [b"A"] * 3


def repeated(dtype, size, **value):
    tensor = tensor_pb2.TensorProto(dtype=dtype, **value)
    tensor.tensor_shape.dim.add(size=size)
    return tensor


def test_names_are_compared_before_tensors_are_made(stub, monkeypatch):
    made = []
    monkeypatch.setattr(tf, "make_ndarray", made.append)
    message = request()
    for i in range(50):
        message.inputs[f"made up {i}"].CopyFrom(repeated(1, 20_000, float_val=[1.0]))
    details = refused(stub.Predict, message, grpc.StatusCode.INVALID_ARGUMENT)
    assert re.search(r"expected the inputs \['texts'\]; received \['made up \d+'", details)
    assert details.endswith("and others.") and len(details) < 300
    assert made == []


def test_very_many_sizes_are_refused_before_they_are_multiplied(stub, monkeypatch):
    """The product of a message's 80,000 took 80 seconds, in which nobody else was served."""
    multiplied = []
    monkeypatch.setattr(proto_tensors, "math", types.SimpleNamespace(prod=multiplied.append))
    message = with_tensor(tensor=STRING, sizes=[2**62] * 255)
    refused(stub.Predict, message, grpc.StatusCode.INVALID_ARGUMENT)
    assert multiplied == []


def test_values_that_are_repeated_are_bounded(stub):
    """A small message that would take much memory: one long text often, several tensors."""
    long = repeated(types_pb2.DT_STRING, 100, string_val=[b"a" * (LIMIT // 99)])
    columns = {
        "half": repeated(types_pb2.DT_HALF, 5_000, half_val=[0]),
        "single": repeated(types_pb2.DT_FLOAT, 5_000, float_val=[0]),
        "double": repeated(types_pb2.DT_DOUBLE, 5_000, double_val=[0]),
        "small": repeated(types_pb2.DT_INT8, 5_000, int_val=[0]),
        "big": repeated(types_pb2.DT_INT64, 5_000, int64_val=[0]),
        "flag": repeated(types_pb2.DT_BOOL, 5_000, bool_val=[False]),
    }
    for signature, tensors in (("serving_default", {"texts": long}), ("numbers", columns)):
        message = request(signature=signature)
        for name, tensor in tensors.items():
            message.inputs[name].CopyFrom(tensor)
        details = refused(stub.Predict, message, grpc.StatusCode.INVALID_ARGUMENT)
        assert f"Expected inputs of at most {LIMIT} bytes together" in details
    message.inputs["big"].CopyFrom(repeated(types_pb2.DT_INT64, 1, int64_val=[0]))
    assert outputs(stub.Predict(message, timeout=60))["sum"].shape == (5_000,)


def test_many_rows_are_refused(stub):
    details = refused(stub.Predict, request(["a"] * 10_001), grpc.StatusCode.INVALID_ARGUMENT)
    assert "Expected at most 10000 rows in one request; received 10001" in details


def test_broken_messages_and_frames(server, channel, stub):
    call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    good = request(["ba", "di"]).SerializeToString()
    generator = np.random.default_rng(5)
    codes = set()
    for _ in range(40):
        broken = bytearray(good)
        broken[generator.integers(len(broken))] = generator.integers(256)
        try:
            call(bytes(broken[: generator.integers(len(broken) + 1)]), timeout=60)
        except grpc.RpcError as error:
            codes.add(error.code().name)
            assert "Traceback" not in error.details()
    assert "INTERNAL" in codes  # a message that is none
    assert codes <= {"INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"}
    refused(call, b"\xff\xff\xff", grpc.StatusCode.INTERNAL)
    refused(call, b"", grpc.StatusCode.INVALID_ARGUMENT)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for data in (
        b"GET / HTTP/1.1\r\n\r\n",
        preface + b"\x00\x00",
        preface + bytes(range(256)) * 20,
        preface + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\xff\xff\xff\x01\x25\x00\x00\x00\x01",
    ):
        with socket.create_connection(("127.0.0.1", server.grpc_port)) as connection:
            connection.sendall(data)
    assert outputs(stub.Predict(request(["a"]), timeout=60))["translations"] == [b"A"]


def test_large_messages_are_refused(stub):
    refused(stub.Predict, request(["a" * 2 * LIMIT]), grpc.StatusCode.RESOURCE_EXHAUSTED)
    texts = ["a" * (LIMIT // 40)] * 39
    found = outputs(stub.Predict(request(texts), timeout=60))
    assert found["translations"].tolist() == [b"A" * (LIMIT // 40)] * 39


def test_what_the_server_does_not_have(stub):
    message = classification_pb2.ClassificationRequest()
    refused(stub.Classify, message, grpc.StatusCode.UNIMPLEMENTED)


def test_a_full_queue_and_a_deadline(server, stub):
    with paused(server) as (entered, release), ThreadPoolExecutor(2) as pool:
        first = pool.submit(stub.Predict, request(["first"]), timeout=60)
        assert entered.acquire(timeout=60)
        second = pool.submit(stub.Predict, request(["second"]), timeout=60)
        while "keras_addnorm_queue_length 1.0" not in fetch(server, "/metrics")[2]:
            pass
        details = refused(stub.Predict, request(["third"]), grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert "queue is full" in details
        release.set()
        answers = [outputs(future.result())["translations"] for future in (first, second)]
        assert answers == [[b"FIRST"], [b"SECOND"]]
    with paused(server):
        with pytest.raises(grpc.RpcError) as error:
            stub.Predict(request(["late"]), timeout=0.05)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert outputs(stub.Predict(request(["a"]), timeout=60))["translations"] == [b"A"]


def test_a_call_that_is_cancelled_is_not_computed(server, stub):
    """It waits behind another one when its client gives up."""
    with paused(server) as (entered, release):
        first = stub.Predict.future(request(["first"]), timeout=60)
        assert entered.acquire(timeout=60)
        gone = stub.Predict.future(request(["gone"]), timeout=60)
        while "keras_addnorm_queue_length 1.0" not in fetch(server, "/metrics")[2]:
            pass
        gone.cancel()
        while "keras_addnorm_queue_length 0.0" not in fetch(server, "/metrics")[2]:
            pass
        release.set()
        assert outputs(first.result())["translations"] == [b"FIRST"]
        assert outputs(stub.Predict(request(["a"]), timeout=60))["translations"] == [b"A"]
        assert entered.acquire(timeout=60)
        assert not entered.acquire(blocking=False)  # nobody has computed the other one


@pytest.mark.parametrize("letter", ["a", "\u8a9e", "\U0001f600", "%", "\n"])
def test_an_error_of_any_letters_fits_into_a_header(stub, monkeypatch, letter):
    def refusing(*_):
        raise ServingError("INVALID_ARGUMENT", letter * 5000)

    monkeypatch.setattr(grpc_api, "_parsed", refusing)
    said = refused(stub.Predict, request(["a"]), grpc.StatusCode.INVALID_ARGUMENT)
    assert 300 < len(said) == said.count(letter)
    # Beyond 8 KiB a client may refuse the answer for its headers.
    assert len(quote(said)) <= 8192


def test_calls_at_a_time_are_bounded(tmp_path, monkeypatch):
    """Each may hold a message of --max-request-bytes before the server looks at it."""
    monkeypatch.setattr(grpc_api, "_MORE_CALLS", 0)
    write_version(tmp_path, 1)
    settings = Settings(tmp_path, "shouter", port=0, grpc_port=0, queue=2, warm_up=False)
    with running(settings) as small, grpc.insecure_channel(f"127.0.0.1:{small.grpc_port}") as own:
        watching = [
            health_pb2_grpc.HealthStub(own).Watch(health_pb2.HealthCheckRequest()) for _ in range(2)
        ]
        for watch in watching:
            next(watch)
        message = "Concurrent RPC limit exceeded"
        stub = prediction_service_pb2_grpc.PredictionServiceStub(own)
        said = refused(stub.Predict, request(["a"]), grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert message in said
        watching[0].cancel()
        while True:
            try:
                assert outputs(stub.Predict(request(["a"]), timeout=60))["translations"] == [b"A"]
                break
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def status_request(model="shouter", version=None):
    message = get_model_status_pb2.GetModelStatusRequest()
    message.model_spec.name = model
    if version is not None:
        message.model_spec.version.value = version
    return message


def test_status(models):
    for version in (None, 3):
        (state,) = models.GetModelStatus(status_request(version=version)).model_version_status
        assert (state.version, state.State.Name(state.state)) == (3, "AVAILABLE")
        assert (state.status.error_code, state.status.error_message) == (0, "")
    refused(models.GetModelStatus, status_request("other"), grpc.StatusCode.NOT_FOUND)
    refused(models.GetModelStatus, status_request(version=4), grpc.StatusCode.NOT_FOUND)
    refused(models.GetModelStatus, status_request(""), grpc.StatusCode.INVALID_ARGUMENT)


def test_metadata(stub):
    message = get_model_metadata_pb2.GetModelMetadataRequest()
    message.model_spec.name = "shouter"
    refused(stub.GetModelMetadata, message, grpc.StatusCode.INVALID_ARGUMENT)
    for wrong in (["signature_def", "x"], ["signature_def"] * 5_000, ["x" * 5_000]):
        message.metadata_field[:] = wrong
        assert len(refused(stub.GetModelMetadata, message, grpc.StatusCode.INVALID_ARGUMENT)) < 400
    message.metadata_field[:] = ["signature_def"]
    answer = stub.GetModelMetadata(message)
    assert answer.model_spec.version.value == 3
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    default = signatures.signature_def["serving_default"]
    assert default.inputs["texts"].dtype == types_pb2.DT_STRING
    assert set(default.outputs) == {"translations", "scores"}


def test_health(channel):
    stub = health_pb2_grpc.HealthStub(channel)

    def status(call, service):
        return call(health_pb2.HealthCheckRequest(service=service), timeout=60)

    for service in ("", "PredictionService", "tensorflow.serving.ModelService"):
        assert status(stub.Check, service).status == health_pb2.HealthCheckResponse.SERVING
    refused(stub.Check, health_pb2.HealthCheckRequest(service="a"), grpc.StatusCode.NOT_FOUND)
    unknown = next(status(stub.Watch, "a")).status
    assert unknown == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def test_health_while_it_loads(server):
    starting = Server(Settings(server.settings.directory, port=0, grpc_port=0, poll_seconds=0.01))
    refresh, seen = starting.service.versions.refresh, []

    def look():
        with grpc.insecure_channel(f"127.0.0.1:{starting.grpc_port}") as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            status = check(health_pb2.HealthCheckRequest(), timeout=60).status
        name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
        return name, *fetch(starting, "/readyz")[::2]

    def ask_and_refresh():
        seen.append(look())
        refresh()
        if len(seen) == 2:
            starting.stop()

    starting.service.versions.refresh = ask_and_refresh
    asyncio.run(asyncio.wait_for(starting.serve(), 120))
    assert seen[:2] == [
        ("NOT_SERVING", 503, {"status": "loading"}),
        ("SERVING", 200, {"status": "ready"}),
    ]


def test_who_watches_health_hears_of_the_end_and_does_not_stop_it(server):
    settings = Settings(server.settings.directory, port=0, grpc_port=0, grace_seconds=60)
    names = health_pb2.HealthCheckResponse.ServingStatus
    with running(settings) as other:
        channel = grpc.insecure_channel(f"127.0.0.1:{other.grpc_port}")
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert names.Name(next(watched).status) == "SERVING"
    assert [names.Name(answer.status) for answer in watched] == ["NOT_SERVING"]
    channel.close()


def test_who_watches_health_hears_of_an_end_that_comes_while_an_answer_is_sent():
    async def hear():
        health = Health()
        health.serve()
        answers = health.Watch(health_pb2.HealthCheckRequest(), None)
        heard = [await anext(answers)]
        health.stop()  # The first answer is not yet on its way.
        return heard + [answer async for answer in answers]

    names = health_pb2.HealthCheckResponse.ServingStatus
    assert [names.Name(a.status) for a in asyncio.run(hear())] == ["SERVING", "NOT_SERVING"]
