"""Versions come, go and break while requests are answered."""

import asyncio
import gc
import itertools
import shutil
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf
from small_models import (
    fetch,
    remove_version,
    shout,
    write_broken_version,
    write_version,
    write_warm_up,
)
from tensorflow_serving.apis import prediction_log_pb2

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server import Server, Settings, running, served_versions
from keras_addnorm.serving.server.loaded_version import WARM_UP, LoadedVersion
from keras_addnorm.serving.server.served_versions import Versions
from keras_addnorm.serving.versions import find_version


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """Versions to copy: saving one takes longer than loading it."""
    directory = tmp_path_factory.mktemp("templates")
    write_version(directory, 1, "one ")
    write_version(directory, 2, "two ")
    return directory


@pytest.fixture
def directory(tmp_path, templates):
    folder = tmp_path / "model"
    folder.mkdir()
    copy(templates / "1", folder / "1")
    return folder


def copy(template, place):
    hidden = place.with_name(f".{place.name}-new")
    shutil.copytree(template, hidden)
    hidden.rename(place)


def states(versions):
    return {
        state.version: (state.state, state.error_code) for state in versions.states(versions.name)
    }


def test_the_highest_good_version_is_served(directory, templates):
    copy(templates / "2", directory / "20")
    write_broken_version(directory, 30)
    for name in ("latest", ".4-new", "007x"):
        (directory / name).mkdir()
    (directory / "40").write_text("a file")
    versions = Versions(Settings(directory, "model"))
    with pytest.raises(ServingError, match="UNAVAILABLE: Model 'model' is still being loaded"):
        versions.find("model")
    versions.refresh()
    assert versions.find("model").number == versions.find("model", 20).number == 20
    assert states(versions) == {30: ("END", "INVALID_ARGUMENT"), 20: ("AVAILABLE", "OK")}
    with pytest.raises(ServingError, match=r"NOT_FOUND: .*Specific\(model, 1\)"):
        versions.find("model", 1)
    with pytest.raises(ServingError, match=r"NOT_FOUND: .*Latest\(other\)"):
        versions.find("other")


def test_a_new_version_takes_over_and_the_old_one_is_freed(directory, templates):
    versions = Versions(Settings(directory, "model"))
    versions.refresh()
    old = versions.find("model")
    in_flight = old.signatures["serving_default"]
    copy(templates / "2", directory / "2")
    versions.refresh()
    assert versions.find("model").number == 2
    assert states(versions) == {2: ("AVAILABLE", "OK"), 1: ("UNLOADING", "OK")}
    texts = {"texts": np.array(["a"], object)}
    assert in_flight(texts)["translations"].tolist() == [b"one A"]
    del old, in_flight
    versions.refresh()
    assert states(versions) == {2: ("AVAILABLE", "OK"), 1: ("END", "OK")}
    remove_version(directory, 1)
    versions.refresh()
    assert states(versions) == {2: ("AVAILABLE", "OK")}


def test_a_broken_version_is_refused_until_it_changes(directory, templates, caplog):
    versions = Versions(Settings(directory, "model"))
    versions.refresh()
    served = versions.current
    write_broken_version(directory, 2)
    versions.refresh()
    versions.refresh()
    assert versions.current is served
    assert states(versions)[2] == ("END", "INVALID_ARGUMENT")
    (refused,) = versions.states("model", 2)
    assert refused.error_message.startswith("Refused: ")
    assert str(directory) not in refused.error_message
    assert caplog.text.count("Refused version 2 of model 'model'") == 1  # not every second
    remove_version(directory, 2)
    copy(templates / "2", directory / "2")
    versions.refresh()
    assert versions.current.number == 2


def test_a_version_that_is_taken_away_gives_way(directory, templates):
    copy(templates / "2", directory / "2")
    versions = Versions(Settings(directory, "model"))
    versions.refresh()
    remove_version(directory, 2)
    versions.refresh()
    assert versions.current.number == 1
    remove_version(directory, 1)
    versions.refresh()
    assert versions.current.number == 1  # better the last one than none


@pytest.mark.parametrize("what", ["the version", "a folder in it", "a file in it"])
def test_links_that_lead_out_are_refused(directory, templates, what):
    if what == "the version":
        (directory / "2").symlink_to(templates / "2")
    else:
        copy(templates / "2", directory / "2")
        name = "variables" if what == "a folder in it" else "saved_model.pb"
        path = directory / "2" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(templates / "2" / name)
    versions = Versions(Settings(directory, "model"))
    versions.refresh()
    assert versions.current.number == 1
    (refused,) = versions.states("model", 2)
    assert (refused.state, refused.error_code) == ("END", "PERMISSION_DENIED")
    assert "leads out of the model's folder" in refused.error_message


def test_the_folder_itself_may_be_a_link(directory, tmp_path):
    (tmp_path / "link").symlink_to(directory)
    (directory / "5").symlink_to("1")
    versions = Versions(Settings(tmp_path / "link", "model"))
    versions.refresh()
    assert versions.current.number == 5


def test_warm_up(tmp_path, caplog):
    write_version(tmp_path, 1, warm_up=["a", "b"])
    write_version(tmp_path, 2, warm_up=["a", "bad"])
    versions = Versions(Settings(tmp_path, "model"))
    with caplog.at_level("INFO", "keras_addnorm"):
        versions.refresh()
    said = [record.getMessage() for record in caplog.records]
    (note,) = (line for line in said if line.startswith("Version 1"))
    assert "--no-warm-up" in note
    progress = [line for line in said[said.index(note) :] if line.startswith("Warm-up")]
    assert progress == [f"Warm-up request {i} of 2, to 'serving_default' ..." for i in (1, 2)]
    assert versions.current.number == 1
    (refused,) = versions.states("model", 2)
    assert "a bad text" in refused.error_message
    cold = Versions(Settings(tmp_path, "model", warm_up=False))
    cold.refresh()
    assert cold.current.number == 2


def test_a_folder_of_many_files_is_not_repeated(tmp_path):
    for number in range(300):
        (tmp_path / f"{number}{'x' * 200}").touch()
    with pytest.raises(FileNotFoundError, match="no exported model") as error:
        find_version(tmp_path)
    assert len(str(error.value)) < 1000


def _ask_for(size):
    log = prediction_log_pb2.PredictionLog()
    tensor = log.predict_log.request.inputs["texts"]
    tensor.CopyFrom(tf.make_tensor_proto(["a"]))
    tensor.tensor_shape.dim[0].size = size
    return log.SerializeToString()


@pytest.mark.parametrize(
    ("records", "said"),
    [([_ask_for(10**9)], "at most 1000 bytes"), ([_ask_for(1)] * 1001, "at most 1,000 warm-up")],
    ids=["one of a billion texts", "more than there may be"],
)
def test_a_warm_up_is_bounded_as_requests_are(directory, tmp_path, monkeypatch, records, said):
    file = tmp_path / "records"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record)
    monkeypatch.setattr(tf, "make_ndarray", None)  # It would make the billion.
    version = LoadedVersion(directory / "1")
    with pytest.raises(ServingError, match=said):
        version.warm_up(file, lambda *now: None, 1000)


def test_a_version_that_fails_in_its_warm_up_is_freed(directory, monkeypatch):
    graphs = []

    class Remembered(LoadedVersion):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            graphs.append(weakref.ref(self.session.graph))

    monkeypatch.setattr(served_versions, "LoadedVersion", Remembered)
    # pytest keeps what is logged, and with an error all that it passed through.
    monkeypatch.setattr(served_versions._log, "error", lambda *arguments, **options: None)
    (directory / "1" / WARM_UP).parent.mkdir(exist_ok=True)
    (directory / "1" / WARM_UP).write_bytes(b"nonsense" * 9)
    versions = Versions(Settings(directory, "model"))
    gc.disable()  # it must not depend on when Python happens to look
    try:
        versions.refresh()
        assert states(versions) == {1: ("END", "INVALID_ARGUMENT")}
        versions.refresh()
        assert [graph() for graph in graphs] == [None]
    finally:
        gc.enable()


def test_a_computation_ends_with_its_time_and_a_warm_up_takes_it(directory):
    write_warm_up(directory / "1", ["a"], "slow")
    versions = Versions(Settings(directory, "model", timeout=0.05))
    versions.refresh()
    version = versions.current
    assert version is not None and version.number == 1
    with pytest.raises(ServingError, match="DEADLINE_EXCEEDED"):
        version.signatures["slow"]({"texts": np.array(["a"], object)})
    said = []
    version.warm_up(directory / "1" / WARM_UP, lambda *now: said.append(now))
    assert said == [(1, 1, "slow")]  # the session goes on


def test_nothing_is_unpickled_or_run(directory, tmp_path):
    """Files that Python would run by itself, beside a good model, stay files."""
    mark = tmp_path / "mark"
    code = f"open({str(mark)!r}, 'w')"
    for name in ("__init__.py", "sitecustomize.py", "saved_model.py"):
        (directory / "1" / name).write_text(code)
    (directory / "1" / "model.pkl").write_bytes(
        b"cbuiltins\nexec\n(V" + code.encode() + b"\ntR."  # what pickle would run
    )
    (directory / "1" / "keras_metadata.pb").write_bytes(b"\xff" * 30)
    versions = Versions(Settings(directory, "model"))
    versions.refresh()
    assert versions.current.number == 1
    assert not mark.exists()


@pytest.mark.slow
def test_swaps_lose_no_request_and_leave_nothing(directory, templates):
    """Clients ask all the time while versions come, break and go."""
    lives = []

    def remember(server):
        version = server.service.versions.current
        lives.append(
            [weakref.ref(part) for part in (version, version.session, version.session.graph)]
        )

    settings = Settings(directory, port=0, grpc_port=None, poll_seconds=0.01)
    with running(settings) as server:
        texts = [f"text {i}" for i in range(7)]
        done, wrong, answered = threading.Event(), [], itertools.count()
        known = [shout(texts, mark) for mark in ("one ", "two ")]

        def ask():
            while not done.is_set():
                status, _, answer = fetch(server, "/v1/models/model:predict", {"inputs": texts})
                if status != 200 or answer["outputs"]["translations"] not in known:
                    wrong.append((status, answer))
                next(answered)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        remember(server)
        for version in range(2, 8):
            if version == 4:
                write_broken_version(directory, version)
                _wait_for(server, version, "END")
            else:
                copy(templates / str(1 + version % 2), directory / str(version))
                _wait_for(server, version, "AVAILABLE")
                remember(server)
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert next(answered) > 6
        for version in (1, 2, 3, 5, 6):
            _wait_for(server, version, "END")
        alive = [[part() is not None for part in parts] for parts in lives]
        assert alive == [[False] * 3] * 5 + [[True] * 3]
        assert "keras_addnorm_model_version 7.0" in fetch(server, "/metrics")[2]
        _, _, status = fetch(server, "/v1/models/model/versions/4")
        (entry,) = status["model_version_status"]
        assert (entry["state"], entry["status"]["error_code"]) == ("END", "INVALID_ARGUMENT")
        assert entry["status"]["error_message"].startswith("Refused: ")


def _wait_for(server, version, state):
    for _ in range(6000):
        code, _, answer = fetch(server, f"/v1/models/model/versions/{version}")
        if code == 200 and answer["model_version_status"][0]["state"] == state:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"version {version} has not become {state}: {answer}")


def test_a_server_without_a_model_does_not_start(tmp_path):
    for directory in (tmp_path / "nowhere", str(tmp_path / "nowhere")):
        with pytest.raises(FileNotFoundError, match="There is no exported model in"):
            Server(Settings(directory))
    (tmp_path / "mine" / "1").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"Did you mean '.*/mine'\?$"):
        Server(Settings(tmp_path))
    write_broken_version(tmp_path, 1)
    with (
        pytest.raises(RuntimeError, match="has not started") as error,
        running(Settings(tmp_path, port=0, grpc_port=0)),
    ):
        raise AssertionError
    assert "No version in" in str(error.value.__cause__)


def test_tasks_that_outlive_the_server_are_not_cut_off(tmp_path, monkeypatch):
    write_version(tmp_path, 1)
    ended = []

    async def serve(self, on_signals):
        async def last_task():
            await asyncio.sleep(0.05)
            ended.append(self)

        self.task = asyncio.create_task(last_task())

    monkeypatch.setattr(Server, "serve", serve)
    server = Server(Settings(tmp_path))
    server.run()
    assert ended == [server]


def test_ports_that_are_taken(directory):
    with running(Settings(directory, port=0, grpc_port=0)) as server:
        for ports in (
            {"port": server.port, "grpc_port": 0},
            {"port": 0, "grpc_port": server.grpc_port},
        ):
            with (
                pytest.raises(RuntimeError, match="has not started") as error,
                running(Settings(directory, **ports)),
            ):
                raise AssertionError
            assert isinstance(error.value.__cause__, OSError)
            assert "Cannot listen at 127.0.0.1" in str(error.value.__cause__)


def test_threads_of_an_operation(directory):
    versions = Versions(Settings(directory, "model", intra_op_threads=3))
    versions.refresh()
    # TensorFlow keeps the setting of the process' first session; what this one asked for is here.
    assert versions.current.session._config.intra_op_parallelism_threads == 3
