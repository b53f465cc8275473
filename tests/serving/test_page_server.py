"""`keras-addnorm serve` of a page that translates in the browser: its files, and nothing else."""

import re
import signal
import socket
import subprocess
import sys

import pytest
from small_models import fetch

from keras_addnorm import cli
from keras_addnorm.basics.integrity import IN_EXPORTS, DamagedFileError, Manifest
from keras_addnorm.serving.server import Settings, running

PARTS = {
    "index.html": ("text/html; charset=utf-8", b"<p>page</p>"),
    "service_worker.js": ("text/javascript; charset=utf-8", b"worker"),
    "page.css": ("text/css; charset=utf-8", b"style"),
    "model.bin": ("application/octet-stream", b"weights" * 700),
    "vocab.spm": ("application/octet-stream", b"\0\1"),
    "config.yml": ("application/yaml", b"a: b"),
    "engine/program.wasm": ("application/wasm", b"\0asm"),
    "engine/NOTICE.txt": ("text/plain; charset=utf-8", b"whose"),
    IN_EXPORTS: ("application/json", None),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    above = tmp_path_factory.mktemp("above")
    (above / "secret.txt").write_text("secret")
    folder = above / "page"
    for name, (_, content) in PARTS.items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    Manifest(folder, IN_EXPORTS).write()
    (folder / ".hidden").write_text("secret")
    (folder / "out.txt").symlink_to(above / "secret.txt")
    (folder / "up").symlink_to(above)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with running(Settings(folder, port=0)) as server:
        yield server


@pytest.mark.parametrize("name", PARTS)
def test_each_file_has_its_type_and_the_policy(server, folder, name):
    status, headers, found = fetch(server, f"/{name}")
    kind, content = PARTS[name]
    assert (status, headers["content-type"]) == (200, kind)
    assert content is None or found.encode() == content
    assert int(headers["content-length"]) == (folder / name).stat().st_size
    policy = headers["content-security-policy"]
    for part in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"):
        assert part in policy.split("; ")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-cache"


def test_the_page_is_at_the_root_and_addresses_may_have_digests(server):
    assert fetch(server, "/")[2] == "<p>page</p>"
    assert fetch(server, "/page.css?0123")[2] == "style"


def test_what_has_not_changed_is_not_sent_again(server):
    _, headers, _ = fetch(server, "/page.css")
    again = fetch(server, "/page.css", headers={"if-none-match": headers["etag"]})
    assert (again[0], again[2], again[1]["etag"]) == (304, "", headers["etag"])
    assert fetch(server, "/page.css", headers={"if-none-match": '"other"'})[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/engine/../../secret.txt",
        "/..%2fsecret.txt",
        "//secret.txt",
        "/out.txt",
        "/up/secret.txt",
        "/.hidden",
        "/engine",
        "/engine/",
        "/page.css/",
        "/page.css%00",
        "/v1/models/page",
    ],
)
def test_nothing_else_is_there(server, path):
    # As it stands: clients tidy paths up before they send them.
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"secret" not in answer
    assert b"content-security-policy: default-src 'none'" in answer


def test_it_only_reads(server):
    status, _, _ = fetch(server, "/page.css", b"new")
    assert status == 405


def test_it_answers_under_its_own_names_alone(server):
    assert fetch(server, "/", headers={"Host": "evil.example"})[0] == 403
    assert fetch(server, "/", headers={"Origin": "null"})[0] == 403
    assert fetch(server, "/", headers={"Host": f"[::1]:{server.port}"})[0] == 200


def test_a_damaged_folder_is_not_served(folder, tmp_path):
    damaged = tmp_path / "page"
    damaged.mkdir()
    for name in ("index.html", "service_worker.js", "model.bin"):
        (damaged / name).write_bytes(b"1")
    Manifest(damaged, IN_EXPORTS).write()
    (damaged / "model.bin").write_bytes(b"2")
    with (
        pytest.raises(DamagedFileError, match=r"model\.bin' is damaged"),
        running(Settings(damaged, port=0)),
    ):
        pass
    with running(Settings(damaged, port=0, verify=False)) as server:
        (damaged / "index.html").unlink()
        assert fetch(server, "/")[0] == 404
        # Exchanged for a link while it is served.
        (tmp_path / "secret.txt").write_text("secret")
        (damaged / "index.html").symlink_to(tmp_path / "secret.txt")
        assert fetch(server, "/")[0] == 404


def test_settings_of_models_are_refused(capsys, folder):
    assert cli.main(["serve", str(folder), "--queue", "3", "--no-warm-up"]) == 2
    said = capsys.readouterr().err
    assert "This folder is a page that translates in the browser" in said
    assert "Expected --host or --allowed-hosts or --port or --verify. " in said
    assert "Received: --queue 3, --no-warm-up" in said


def test_a_model_without_its_page_says_how_to_get_one(capsys, tmp_path):
    (tmp_path / "model.bin").write_bytes(b"")
    assert cli.main(["serve", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "--engine node_modules/@browsermt/bergamot-translator" in said


@pytest.mark.slow
def test_the_command_needs_no_tensorflow_and_ends_at_sigterm(folder):
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
        "from keras_addnorm import cli; sys.exit(cli.main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", folder, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stderr:
            if found := re.search(r"Ready: http://127\.0\.0\.1:(\d+)/", line):
                break
        server = type("Server", (), {"port": int(found[1])})
        assert fetch(server, "/")[2] == "<p>page</p>"
        process.send_signal(signal.SIGTERM)
        assert "Stopped." in process.stderr.read()
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
