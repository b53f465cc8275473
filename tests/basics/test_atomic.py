"""Files and folders that are whole or not there, after an error, a kill and a power cut."""

import errno
import os
import re
import socket
import stat
import tempfile
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keras_addnorm.basics import atomic, atomic_file, atomic_folder
from keras_addnorm.basics.atomic import is_device, remove_leftovers, require_space
from keras_addnorm.basics.locks import lock
from keras_addnorm.data import Tokenizer


@pytest.fixture
def events(monkeypatch):
    """What is flushed, by its name at that time, and what is renamed, in order."""
    seen = []
    flush = os.fsync

    def fsync(descriptor):
        seen.append(("flush", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        flush(descriptor)

    def moving(move):
        def rename(old, new):
            seen.append(("rename", Path(new).name))
            move(old, new)

        return rename

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", moving(os.replace))
    monkeypatch.setattr(os, "rename", moving(os.rename))
    return seen


def test_content_is_on_the_disk_before_its_name_and_its_name_thereafter(events, tmp_path):
    path = tmp_path / "folder" / "config.toml"
    with atomic_file(path) as temporary:
        temporary.write_text("a = 1")
    assert events == [
        ("flush", f".{os.getpid()}.config.toml"),
        ("rename", "config.toml"),
        ("flush", "folder"),
    ]
    assert path.read_text() == "a = 1"


def test_a_block_that_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_file(path) as temporary:
        temporary.write_text("new")
        raise KeyError
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


class FullError(OSError):
    """What the disk says."""


def test_a_flush_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor):
        raise FullError

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FullError), atomic_file(path) as temporary:
        temporary.write_text("new")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_a_pipe_is_written_to_and_stays(tmp_path):
    """As a device does; a file in its place would be one for every process."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        with atomic_file(pipe) as path:
            path.write_text("text")
        assert read.result() == "text"
    assert [is_device(path) for path in (pipe, tmp_path, tmp_path / "none", "/dev/stdout")] == [
        *(True, False, False, True)
    ]
    assert stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]


def test_a_file_that_nobody_wrote_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "file"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_flushed_is_no_error(tmp_path, monkeypatch):
    """Some file systems refuse it. A file that cannot be flushed is one."""
    flush = os.fsync

    def only_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise FullError
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    with atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("new")
    with atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "inside").write_text("new")
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "folder", "inside"}


def test_all_of_a_folder_is_on_the_disk_before_its_name(events, tmp_path):
    with atomic_folder(tmp_path / "models" / "7") as temporary:
        assert temporary.parent == tmp_path / "models" and temporary.name.startswith(".7-")
        (temporary / "variables").mkdir()
        (temporary / "variables" / "data").write_text("numbers")
        (temporary / "graph.pb").write_text("nodes")
        (temporary / "link").symlink_to("nowhere")
        assert events == []
    *flushed, rename, last = events
    assert {kind for kind, _ in flushed} == {"flush"}
    assert sorted(name for _, name in flushed) == sorted(
        ["variables", "data", "graph.pb", temporary.name]
    )
    assert flushed[-1] == ("flush", temporary.name)
    assert (rename, last) == (("rename", "7"), ("flush", "models"))
    made = tmp_path / "models" / "7"
    assert (made / "variables" / "data").read_text() == "numbers"
    assert stat.S_IMODE(made.stat().st_mode) == 0o755
    assert [path.name for path in made.parent.iterdir()] == ["7"]


@pytest.mark.parametrize("moment", ["block", "fsync", "rename"])
def test_a_folder_that_fails_leaves_nothing(tmp_path, monkeypatch, moment):
    def fail(*_):
        raise FullError(errno.ENOSPC, "disk full")

    if moment != "block":
        monkeypatch.setattr(os, moment, fail)
    with pytest.raises(FullError), atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "file").write_text("half of it")
        if moment == "block":
            fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["a file", "an empty folder", "a full folder"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_folder_is_never_replaced(tmp_path, kind, when):
    path = tmp_path / "7"

    def make():
        if kind == "a file":
            path.write_text("theirs")
        else:
            path.mkdir()
            if kind == "a full folder":
                (path / "theirs").write_text("theirs")

    def attempt():
        with atomic_folder(path) as temporary:
            (temporary / "ours").write_text("ours")
            if when == "meanwhile":
                make()

    if when == "before":
        make()
    if (kind, when) == ("an empty folder", "meanwhile"):
        attempt()  # POSIX renames over an empty folder: nothing is lost
        assert [p.name for p in tmp_path.rglob("*")] == ["7", "ours"]
        return
    with pytest.raises(FileExistsError, match=r"'.*7': it exists already. A folder is never repl"):
        attempt()
    left = {"7"} | ({"theirs"} if kind == "a full folder" else set())
    assert {p.name for p in tmp_path.rglob("*")} == left


def test_a_tokenizer_is_flushed_before_it_has_its_name(events, tmp_path):
    words = ["red green blue", "big small old new"]
    Tokenizer.train(words * 4, vocabulary_size=20).save(tmp_path / "tokenizer.model")
    (kind, name), *rest = events
    assert kind == "flush" and "tokenizer.model" in name
    assert rest[0] == ("rename", "tokenizer.model")


@pytest.fixture
def left_over(tmp_path):
    """A folder with what killed processes may have left beside what they may not."""
    left = (".7-abcd_123.tmp", ".8-abcd_123.tmp")
    for name in (*left, ".7-original", ".7-short.tmp", "7-abcd_123.tmp", ".7-ABCD_123.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("half")
    (tmp_path / ".7-01234567.tmp").write_text("a file")
    return tmp_path


def test_what_a_killed_process_has_left_goes_with_the_next_folder_of_that_name(left_over):
    before = {path.name for path in left_over.iterdir()}
    with atomic_folder(left_over / "7"):
        assert not (left_over / ".7-abcd_123.tmp").exists()
    assert {path.name for path in left_over.iterdir()} == before - {".7-abcd_123.tmp"} | {"7"}
    remove_leftovers(left_over, lambda name: name.isdecimal())
    left = before - {".7-abcd_123.tmp", ".8-abcd_123.tmp"} | {"7"}
    assert {path.name for path in left_over.iterdir()} == left
    remove_leftovers(left_over / "none", lambda name: True)


def test_what_somebody_writes_stays(left_over):
    """Its lock is that of another open file, as of another process in whatever container."""
    written = os.open(left_over / ".7-abcd_123.tmp", os.O_RDONLY)
    assert lock(written)
    assert not lock(os.open(left_over / ".7-abcd_123.tmp", os.O_RDONLY), wait=False)
    with atomic_folder(left_over / "9") as ours:
        (ours / "file").write_text("ours")
        remove_leftovers(left_over, lambda name: True)
        assert (ours / "file").read_text() == "ours"
    assert (left_over / ".7-abcd_123.tmp" / "half").exists()
    os.close(written)
    remove_leftovers(left_over, lambda name: name == "7")
    assert not (left_over / ".7-abcd_123.tmp").exists()


@pytest.mark.parametrize("moment", ["mkdtemp", "lock"])
def test_a_folder_that_is_taken_for_left_over_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch, moment
):
    places = {"mkdtemp": (tempfile, "mkdtemp"), "lock": (atomic, "lock")}
    original, taken = getattr(*places[moment]), []

    def act(*arguments, **options):
        found = original(*arguments, **options)
        if not taken:
            (folder,) = tmp_path.glob(".7-*")
            folder.rmdir()
            taken.append(folder)
        return found

    monkeypatch.setattr(*places[moment], act)
    with atomic_folder(tmp_path / "7") as folder:
        assert taken and folder != taken[0]
    assert [path.name for path in tmp_path.iterdir()] == ["7"]


@pytest.mark.parametrize(
    ("limit", "free", "number"),
    [(10, 99, errno.EFBIG), (11, 16, errno.ENOSPC), (11, 17, None), (-1, 17, None)],
)
def test_files_of_others_need_space_before_they_are_written(
    tmp_path, monkeypatch, limit, free, number
):
    usage = types.SimpleNamespace(free=free)
    monkeypatch.setattr(atomic.resource, "getrlimit", lambda kind: (limit, -1))
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda folder: usage)
    if number is None:
        require_space(tmp_path, 6, 11)
        return
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
        require_space(tmp_path, 6, 11)
    assert caught.value.errno == number and caught.value.filename == str(tmp_path)


def test_a_pipe_that_nobody_reads_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_SECONDS_FOR_A_READER", 0.1)
    pipe, bound = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(bound))
    for path, what in ((pipe, "a pipe that nobody reads"), (bound, "a socket")):
        with pytest.raises(ValueError, match=f"{path.name}' is {what}"), atomic_file(path) as place:
            place.write_text("a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "socket"]
