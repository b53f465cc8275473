"""The command in a process of its own: it needs no Keras, and it leaves nobody unanswered."""

import re
import signal
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_models import fetch, write_version

from keras_addnorm import cli
from keras_addnorm.basics.optional import install_line
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs import serve as serve_module
from keras_addnorm.serving import Client

# Runs the command as its script does, where there is no Keras to import.
_COMMAND = """
import sys
sys.modules["keras"] = None
from keras_addnorm import cli
from keras_addnorm.basics.optional import install_line
status = cli.main()
sys.exit(status)
"""


@pytest.mark.slow
def test_sigterm_answers_what_is_in_flight(tmp_path):
    directory = tmp_path / "shouter"
    directory.mkdir()
    write_version(directory, 1)
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "serve", directory, "--port=0", "--grpc-port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        log, ports = [], {}
        for line in process.stderr:
            log.append(line)
            if found := re.search(r"Ready: (http|gRPC)\D+127\.0\.0\.1:(\d+)", line):
                ports[found[1]] = int(found[2])
            if len(ports) == 2:
                break
        assert len(ports) == 2, "".join(log)
        server = types.SimpleNamespace(port=ports["http"])
        clients = [
            Client(f"http://127.0.0.1:{ports['http']}", model="shouter", retries=0),
            Client(f"127.0.0.1:{ports['gRPC']}", model="shouter", retries=0),
        ]
        with ThreadPoolExecutor(2) as pool:
            answers = [
                pool.submit(client.predict, "slow", texts=[f"text {i}"])
                for i, client in enumerate(clients)
            ]
            _until_both_are_at_work(server)
            process.send_signal(signal.SIGTERM)
            for i, answer in enumerate(answers):
                assert answer.result()["texts"].tolist() == [f"text {i}"]
        out, rest = process.stdout.read(), process.stderr.read()
        process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    for client in clients:
        client.close()
    assert process.returncode == 0, rest
    assert "Stopped." in rest
    assert "Traceback" not in rest
    assert "deprecated" not in "".join(log), "what a user cannot mend is not said"
    assert out == ""


def _until_both_are_at_work(server):
    for _ in range(6000):
        text = fetch(server, "/metrics")[2]
        if re.search(r'batch_rows_sum{signature="slow"} 2\.0', text):
            return
        threading.Event().wait(0.005)
    raise AssertionError(text)


def test_importing_the_room_imports_no_server():
    code = (
        "import sys, keras_addnorm.serving, keras_addnorm.serving.client, keras_addnorm.cli; "
        "import keras_addnorm.serving.server; "
        "print(sorted({'starlette', 'uvicorn', 'grpc', 'prometheus_client', 'tensorflow', 'keras'}"
        " & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_flags_become_settings(monkeypatch, tmp_path):
    handed = {}
    monkeypatch.setattr(
        serve_module, "serve", lambda directory, **settings: handed.update(settings, d=directory)
    )
    flags = [
        "--port",
        "1",
        "--host",
        "0.0.0.0",
        "--max-request-bytes",
        "5",
        "--no-warm-up",
        "--cors",
    ]
    assert cli.main(["serve", str(tmp_path), *flags]) == 0
    assert handed == {
        "d": tmp_path,
        "port": 1,
        "host": "0.0.0.0",
        "max_request_bytes": 5,
        "warm_up": False,
        "cors": True,
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "There is no exported model in"),
        (("--queue", "0"), "--queue must be at least 1. Received: 0"),
    ],
)
def test_what_the_user_can_mend(capsys, tmp_path, flags, words):
    assert cli.main(["serve", str(tmp_path), *flags]) == 2
    assert words in capsys.readouterr().err


def test_a_run_is_exported_first(capsys, tmp_path):
    RunDirectory(tmp_path / "mine").write_config(RunConfig())
    assert cli.main(["serve", str(tmp_path / "mine")]) == 2
    command = f"`keras-addnorm export {tmp_path / 'mine'} saved_models/mine`"
    assert f"This is a run: {command} makes what can be served" in capsys.readouterr().err


def test_missing_libraries_are_named(capsys, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "keras_addnorm.serving.server.app", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(["serve", str(tmp_path)]) == 2
    assert install_line("serve") in capsys.readouterr().err
