"""The zoo: its registry, what is fetched from a server, what is made by the commands."""

import dataclasses
import functools
import hashlib
import http.server
import io
import itertools
import stat
import threading
import types
import zipfile

import pytest

from keras_addnorm import cli
from keras_addnorm.basics.integrity import Manifest
from keras_addnorm.basics.public_checkpoints import (
    REFUSED,
    PublicCheckpoint,
    public_checkpoints,
)
from keras_addnorm.interop import families
from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.zoo import PublishedFile, ZooModel, find, models
from keras_addnorm.runs.zoo.archive import write_archive
from keras_addnorm.runs.zoo.download import get
from keras_addnorm.runs.zoo.make import commands, make
from keras_addnorm.runs.zoo.tables import table_of_checkpoints


def test_every_model_has_settings_that_its_command_takes():
    for name, model in models().items():
        assert find(name) is model
        assert model.licence and model.about
        if name.startswith("addnorm-"):
            scheme = name.removeprefix("addnorm-").replace("-", "_")
            assert model.config.model.overrides["scheme"] == scheme
        if model.teacher:
            own = dict(model.settings["distillation"], teacher=model.teacher)
            assert DistillationConfig.from_dict(own).teacher == model.teacher
            assert find(model.teacher).teacher == ""
        if model.scores is not None:
            assert "|version:" in model.scores.bleu_signature
            assert model.weights
        if model.file is not None:
            assert model.file.address.startswith("https://") and len(model.file.sha256) == 64


def test_the_six_models_to_compare_differ_in_the_scheme_alone():
    six = [model for name, model in models().items() if name.startswith("addnorm-")]
    plain = [model.config.replace({"model.scheme": "pre_ln"}).to_dict() for model in six]
    assert len(six) == 6 and all(config == plain[0] for config in plain)
    assert len({model.config.model.overrides["scheme"] for model in six}) == 6


def test_the_commands_are_those_of_the_card():
    assert commands(find("demo-en-de")) == [
        ["train", "making/demo-en-de", "--config", "making/demo-en-de.toml"],
        ["evaluate", "making/demo-en-de", "--split", "test"],
    ]
    for model in models().values():
        for command in commands(model):
            assert cli.build_parser().parse_args(command)


# A published model, without a training: a run whose weights nobody reads here.
@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "small"
    run = RunDirectory(folder)
    folder.mkdir()
    run.write_config(RunConfig())
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.model").write_bytes(b"pieces" * 7)
    run.best_weights.write_bytes(bytes(range(251)) * 53)
    Manifest(folder).write(unlisted=("manifest.json",))
    path = folder.with_suffix(".zip")
    write_archive(folder, path)
    return folder, path.read_bytes()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        said = self.server.lengths.get(self.path, len(content))
        self.send_header("Content-Length", str(said))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as served:
        served.files, served.lengths = {}, {}
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def _published(server, content, path="/small.zip", **changes):
    """A model at an address; `changes` are what the registry says otherwise."""
    server.files[path] = content
    address = f"http://127.0.0.1:{server.server_address[1]}{path}"
    said = PublishedFile(address, hashlib.sha256(content).hexdigest(), len(content))
    return ZooModel("small", "", {}, file=dataclasses.replace(said, **changes))


def _refused(folder, model, *words):
    with pytest.raises(UserError) as refused:
        get(model, folder)
    for word in words:
        assert word in str(refused.value)
    assert not folder.exists() or not list(folder.iterdir())


def test_a_published_model_is_fetched_whole(server, packed, tmp_path):
    folder, content = packed
    found = get(_published(server, content), tmp_path / "zoo")
    assert found == tmp_path / "zoo" / "small"
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 4
    for file in files:
        assert (found / file).read_bytes() == (folder / file).read_bytes(), file
    assert [path.name for path in (tmp_path / "zoo").iterdir()] == ["small"]
    with pytest.raises(UserError, match="exists already"):
        get(_published(server, content), tmp_path / "zoo")


def test_a_model_that_was_killed_before_it_was_packed_is_packed(tmp_path, monkeypatch):
    """Its training is not done again, and what it was made of goes."""
    monkeypatch.setattr("keras_addnorm.runs.zoo.make._run", None)
    weights = "best.weights.h5"
    for file in (f"demo-en-de/{weights}", f"making/demo-en-de/{weights}", "making/demo-en-de.toml"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("weights of another" if "making" in file else "weights")
    with pytest.raises(UserError, match="exists already"):  # It was fetched meanwhile.
        make(find("demo-en-de"), tmp_path)
    (tmp_path / "making" / "demo-en-de" / weights).write_text("weights")
    _, archive = make(find("demo-en-de"), tmp_path)
    assert zipfile.ZipFile(archive).namelist() == [weights]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo-en-de", "demo-en-de.zip"]
    with pytest.raises(UserError, match="exists already"):
        make(find("demo-en-de"), tmp_path)


def test_what_is_not_the_published_file_is_refused(server, packed, tmp_path):
    _, content = packed
    refused = functools.partial(_refused, tmp_path / "zoo")
    other = content[:-1] + bytes([content[-1] ^ 1])
    digest = hashlib.sha256(content).hexdigest()
    refused(_published(server, other, sha256=digest), "SHA-256", digest[:12], "zoo make small")
    short = _published(server, content[:-97], sha256=digest, size=len(content))
    refused(short, f"ended after {len(content) - 97:,} of {len(content):,} bytes")
    # The server said more than it sent.
    server.lengths["/cut.zip"] = len(content)
    refused(_published(server, content[:-97], "/cut.zip", size=len(content)), "bytes")
    refused(_published(server, content, size=len(content) - 1), "is longer than")
    absent = _published(server, content)
    address = absent.file.address.replace("small", "nothing")
    absent = dataclasses.replace(absent, file=dataclasses.replace(absent.file, address=address))
    refused(absent, "HTTPError", "404", "zoo make small")
    closed = dataclasses.replace(absent.file, address="http://127.0.0.1:9/small.zip")
    refused(dataclasses.replace(absent, file=closed), "cannot be read", "refused")


def test_a_server_that_sends_drop_by_drop_is_given_up(server, packed, tmp_path, monkeypatch):
    _, content = packed
    clock = types.SimpleNamespace(monotonic=functools.partial(next, itertools.count(step=1000)))
    monkeypatch.setattr("keras_addnorm.runs.zoo.download.time", clock)
    _refused(tmp_path / "zoo", _published(server, content), "sent 0 of", "in 32 seconds")


def test_a_model_that_is_nowhere_is_made_here(tmp_path):
    _refused(tmp_path / "zoo", find("demo-en-de"), "not published anywhere yet", "zoo make demo")


def _zip(*entries, compression=zipfile.ZIP_STORED):
    """An archive of (name, content, kind of file)."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        for name, content, kind in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (kind | 0o644) << 16
            entry.compress_type = compression
            archive.writestr(entry, content)
    return written.getvalue()


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("../outside", stat.S_IFREG, "lead out"),
        ("a/../../outside", stat.S_IFREG, "lead out"),
        ("/outside", stat.S_IFREG, "lead out"),
        ("a\\..\\outside", stat.S_IFREG, "lead out"),
        ("c:outside", stat.S_IFREG, "lead out"),
        ("link", stat.S_IFLNK, "no plain file"),
        ("pipe", stat.S_IFIFO, "no plain file"),
        ("folder/", stat.S_IFDIR, "no plain file"),
        ("config.toml", stat.S_IFREG, "same place"),
        ("config.toml/more", stat.S_IFREG, "same place"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_an_archive_with_a_path_trick_is_refused(server, tmp_path, name, kind, words):
    content = _zip(("config.toml", "x", stat.S_IFREG), (name, "/etc/passwd", kind))
    _refused(tmp_path / "zoo", _published(server, content), words, "Nothing was kept")
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["zoo"])


def test_an_archive_of_something_else_is_refused(server, packed, tmp_path):
    folder, content = packed
    refused = functools.partial(_refused, tmp_path / "zoo")
    bomb = _zip(("a", b"\0" * 100_000, stat.S_IFREG), compression=zipfile.ZIP_DEFLATED)
    refused(_published(server, bomb), "is compressed")
    twice = content.replace(b"PK\x05\x06", b"PK\x05\x07")
    refused(_published(server, twice), "no archive of a model")
    refused(_published(server, _zip(("a", "b", stat.S_IFREG))), "is not a run directory")
    entries = [
        (path.relative_to(folder).as_posix(), path.read_bytes(), stat.S_IFREG)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    changed = [
        (name, b"changed" if name == "best.weights.h5" else content, kind)
        for name, content, kind in entries
    ]
    refused(_published(server, _zip(*changed)), "best.weights.h5", "damaged")


def test_the_same_files_give_the_same_archive(packed, tmp_path):
    folder, content = packed
    write_archive(folder, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list"], ("demo-en-de-student", "Apache-2.0", "distill")),
        (["list", "--public"], ("facebook/bart-base", "same shape", "facebook/wmt19-en-de")),
    ],
)
def test_the_lists_are_printed(capsys, arguments, words):
    assert cli.main(["zoo", *arguments]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "demo-en-de"], "list takes no MODEL"),
        (["get", "demo-en-de", "zoo", "--public"], "--public belongs to list"),
        (["make", "demo-en-de"], "expected make MODEL DIR"),
    ],
)
def test_a_wrong_use_is_told_in_a_line(capsys, arguments, words):
    with pytest.raises(SystemExit):
        cli.main(["zoo", *arguments])
    assert words in capsys.readouterr().err


def test_a_mistyped_model_has_the_nearest(capsys, tmp_path):
    assert cli.main(["zoo", "get", "addnorm-pre_ln", str(tmp_path / "zoo")]) == 2
    assert "Did you mean 'addnorm-pre-ln'" in capsys.readouterr().err


def test_a_licence_that_nobody_looked_up_is_not_checked():
    kinds = {"a/read": "MIT", "a/unread": ""}
    listed = [PublicCheckpoint(name, "bart", kinds[name], "never tried") for name in kinds]
    lines = [line.split("  ") for line in table_of_checkpoints(listed).splitlines()[1:3]]
    assert [[cell.strip() for cell in line if cell.strip()] for line in lines] == [
        ["a/read", "bart", "MIT", "never tried"],
        ["a/unread", "bart", "not checked", "never tried"],
    ]


def test_every_public_checkpoint_is_of_a_family_that_is_read_or_is_refused():
    known = public_checkpoints()
    assert len(known) > 40
    for checkpoint in known.values():
        is_read = checkpoint.family in families.names()
        assert is_read == (checkpoint.state != REFUSED), checkpoint
        assert bool(checkpoint.why) == (checkpoint.state == REFUSED)


_SMALL = {
    "data": "demo/en-de",
    "source": "en",
    "target": "de",
    "licence": "Apache-2.0",
    "split": "train[:60]",
    "validation": "validation[:8]",
    "tokenizer": {"vocabulary_size": 200, "joint": True},
    "model": {
        "preset": "micro",
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "hidden_dim": 8,
        "intermediate_dim": 8,
        "num_heads": 2,
        "max_length": 64,
    },
    "training": {"epochs": 1, "bucket_lengths": [64], "jit_compile": False},
    "evaluation": {"num_beams": 1, "max_length": 4},
}


@pytest.mark.release
def test_a_student_is_made_with_its_teacher_and_can_be_fetched(server, monkeypatch, tmp_path):
    teacher = ZooModel("teacher", "a teacher", _SMALL)
    settings = {**_SMALL, "distillation": {"beams": 1, "noise": 0.0}}
    student = ZooModel("student", "a student", settings, "teacher")
    monkeypatch.setattr("keras_addnorm.runs.zoo.make.find", {"teacher": teacher}.__getitem__)
    zoo, said = tmp_path / "zoo", []
    made, archive = make(student, zoo, say=said.append)
    assert sorted(path.name for path in zoo.iterdir()) == [
        *("student", "student.zip", "teacher", "teacher.zip")
    ]
    assert [line.split()[1] for line in said] == ["train", "evaluate", "distill", "evaluate"]
    run = RunDirectory(made)
    run.check(made)
    assert run.read_config().data == "demo/en-de"
    card = run.card.read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    assert "--teacher teacher" in card and "| teacher | student |" in card
    assert str(tmp_path) not in card + run.config.read_text()
    fetched = get(dataclasses.replace(_published(server, archive.read_bytes()), name="again"), zoo)
    assert fetched.joinpath("README.md").read_text() == card
    with pytest.raises(UserError, match="exists already"):
        make(student, zoo)
