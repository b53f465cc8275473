"""The digests of a folder's files: what is damaged or missing is named, whoever writes then."""

import hashlib
import json
import os
import threading

import h5py
import numpy as np
import pytest

from keras_addnorm.basics import integrity
from keras_addnorm.basics.integrity import (
    DamagedFileError,
    Manifest,
    _digest_of_list,
    open_weights,
    sha256,
)


@pytest.fixture
def folder(tmp_path):
    """A folder with three listed files and one that is not listed."""
    manifest = Manifest(tmp_path)
    names = ("a.txt", "tokenizer/one.model", "tokenizer/two.model")
    (tmp_path / "tokenizer").mkdir()
    with manifest.rewriting(tmp_path / "a.txt", tmp_path / "tokenizer"):
        for name in names:
            (tmp_path / name).write_text(name)
    (tmp_path / "tokenizer2").write_text("of somebody else")
    assert manifest.read().keys() == set(names)
    return tmp_path


def flip(path, byte=3):
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)


def test_digests_are_those_of_sha256sum(folder):
    digest = Manifest(folder).read()["a.txt"]
    assert digest == hashlib.sha256(b"a.txt").hexdigest() == sha256(folder / "a.txt")
    assert sha256(folder) is sha256(folder / "none") is sha256(folder / "a.txt" / "none") is None


def test_a_whole_folder_passes_and_so_does_what_is_not_listed(folder):
    manifest = Manifest(folder)
    manifest.check(folder)
    flip(folder / "tokenizer2")
    manifest.check(folder / "tokenizer2")
    manifest.check(folder / "none")
    Manifest(folder / "none").check(folder / "none" / "a.txt")
    Manifest(folder / "a.txt").check(folder / "a.txt" / "b")


@pytest.mark.parametrize("name", ["a.txt", "tokenizer/two.model"])
def test_what_has_changed_is_named_with_what_to_do(folder, name):
    flip(folder / name)
    for place in (folder, folder / name, (folder / name).parent):
        with pytest.raises(DamagedFileError, match=rf"'.*{name}' is damaged.*Do this\. .*--no-ver"):
            Manifest(folder).check(place, "Do this.")
    (folder / name).unlink()
    with pytest.raises(DamagedFileError, match=rf"'.*{name}' is missing, and '.*manifest.json' l"):
        Manifest(folder).check(folder)
    Manifest(folder).check(folder / "tokenizer" / "one.model")


def test_each_bit_of_the_manifest_itself_counts(folder):
    manifest = Manifest(folder)
    whole = manifest.path.read_bytes()
    for byte in range(0, len(whole), 7):
        flip(manifest.path, byte)
        try:
            assert manifest.read() == json.loads(whole)["files"]  # A space for another.
        except DamagedFileError as error:
            assert "manifest.json' is damaged" in str(error) and "delete it" in str(error)
        manifest.path.write_bytes(whole)
    for text in (b"", b"[]", b"{}", b'{"files": {}, "digest": 3}', b"\xff"):
        manifest.path.write_bytes(text)
        with pytest.raises(DamagedFileError, match=r"manifest.json' is damaged"):
            manifest.check(folder / "a.txt")


class Killed(BaseException):
    pass


def test_a_killed_writer_leaves_no_wrong_digest(folder, monkeypatch):
    manifest = Manifest(folder)

    def stop(*_):
        raise Killed

    rewriting = manifest.rewriting(folder / "a.txt")
    with monkeypatch.context() as patch, pytest.raises(Killed), rewriting:
        (folder / "a.txt").write_text("new")
        # What comes after the block of a process that is killed does not happen.
        patch.setattr(Manifest, "_change", stop)
    assert "a.txt" not in manifest.read()
    manifest.check(folder)


@pytest.mark.parametrize("is_replaced", [True, False])
def test_after_an_error_what_was_not_replaced_is_listed_as_it_was(folder, is_replaced):
    manifest = Manifest(folder)
    before = manifest.read()
    with pytest.raises(OSError, match="full"), manifest.rewriting(folder / "a.txt"):
        if is_replaced:
            (folder / "a.txt").write_text("new")
        raise OSError("full")
    assert manifest.read() == {k: v for k, v in before.items() if not is_replaced or k != "a.txt"}
    manifest.check(folder)


def test_what_is_forgotten_is_not_missed_and_an_empty_list_is_no_file(folder):
    manifest = Manifest(folder)
    manifest.forget(folder / "tokenizer", folder / "none")
    assert manifest.read().keys() == {"a.txt"}
    (folder / "tokenizer" / "one.model").unlink()
    manifest.check(folder)
    manifest.forget(folder / "a.txt")
    names = {path.name for path in folder.iterdir()}
    assert names == {"a.txt", "tokenizer", "tokenizer2"}


def test_a_damaged_manifest_is_begun_anew_by_whoever_writes(folder):
    manifest = Manifest(folder)
    manifest.path.write_text("{")
    left = folder / ".7.manifest.json"
    left.touch()
    with manifest.rewriting(folder / "a.txt"):
        (folder / "a.txt").write_text("new")
    assert manifest.read() == {"a.txt": hashlib.sha256(b"new").hexdigest()}
    assert not left.exists()


def test_a_file_that_is_replaced_meanwhile_is_not_damaged(folder, monkeypatch):
    """The reader has the old list, and finds the new file."""
    read, calls = Manifest.read, []

    def reading(self):
        calls.append(None)
        found = read(self)
        if len(calls) == 1:
            with self.rewriting(folder / "a.txt"):
                (folder / "a.txt").write_text("new")
        return found

    monkeypatch.setattr(Manifest, "read", reading)
    Manifest(folder).check(folder / "a.txt")


def test_several_writers_wait_for_each_other(folder):
    def write(name):
        for count in range(4):
            with Manifest(folder).rewriting(folder / name):
                (folder / name).write_text(f"{name} {count}")

    names = [f"{number}.txt" for number in range(6)]
    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Manifest(folder).read().keys() > set(names)
    Manifest(folder).check(folder)
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("name", ["../other.txt", "/etc/hostname", "a/../../b"])
def test_a_manifest_that_leads_out_of_its_folder_is_refused(folder, name):
    """Whoever wrote it may want a file to be read that never ends."""
    files = {name: 64 * "0"}
    content = {"files": files, "digest": _digest_of_list(files)}
    Manifest(folder).path.write_text(json.dumps(content))
    with pytest.raises(DamagedFileError, match=rf"lists a file outside of its folder, '{name}'"):
        Manifest(folder).check(folder)


def test_a_file_with_many_names_is_read_once(folder, monkeypatch):
    """A list of 1 MB can name a file of gigabytes ten thousand times."""
    (folder / "tokenizer" / "link").symlink_to(folder / "tokenizer")
    whole = Manifest(folder).read()
    files = {
        f"tokenizer/{step * times}one.model": whole["tokenizer/one.model"]
        for step in ("./", "/", "link/")
        for times in range(1, 11)
    }
    content = {"files": files, "digest": _digest_of_list(files)}
    Manifest(folder).path.write_text(json.dumps(content))
    looked_at = []
    monkeypatch.setattr(integrity, "sha256", lambda path: looked_at.append(path) or sha256(path))
    Manifest(folder).check(folder / "tokenizer")
    assert looked_at == [os.path.realpath(folder / "tokenizer" / "one.model")]
    files |= {"tokenizer/\0": 64 * "0"}
    Manifest(folder).path.write_text(json.dumps({"files": files, "digest": _digest_of_list(files)}))
    with pytest.raises(DamagedFileError, match="is missing"):
        Manifest(folder).check(folder / "tokenizer")


@pytest.mark.parametrize("files", [{"a.txt": 5}, {"a.txt": None}, ["a.txt"], "a.txt", None, 3])
def test_a_manifest_that_is_no_list_of_digests_is_named(folder, files):
    content = {"files": files, "digest": _digest_of_list(files)}
    Manifest(folder).path.write_text(json.dumps(content))
    with pytest.raises(DamagedFileError, match=r"^The list of digests '.* is damaged"):
        Manifest(folder).check(folder)


def test_what_is_no_file_is_missing(folder):
    (folder / "a.txt").unlink()
    os.mkfifo(folder / "a.txt")
    with pytest.raises(DamagedFileError, match=r"a.txt' is missing"):
        Manifest(folder).check(folder)
    assert sha256("/dev/zero") is None and sha256(folder) is None


def test_a_folder_that_is_made_is_listed_at_once(tmp_path):
    (tmp_path / "extra").mkdir()
    (tmp_path / "graph.pb").write_text("graph")
    for name in (".hidden", "README.md", "extra/README.md"):
        (tmp_path / name).write_text("no reader needs this")
    manifest = Manifest(tmp_path, "extra/list.json")
    manifest.write({"README.md"})
    assert sorted(path.name for path in (tmp_path / "extra").iterdir()) == [
        "README.md",
        "list.json",
    ]
    assert manifest.read().keys() == {"graph.pb"}
    flip(tmp_path / "graph.pb")
    with pytest.raises(DamagedFileError, match=r"graph.pb' is damaged"):
        manifest.check(tmp_path)


def _larger_than_the_file(file):
    file.create_dataset("a", (10**6, 10**6), "float32")


def _packed(file):
    file.create_dataset("a", (10**4, 10**4), "float32", compression="gzip")


def _elsewhere(file):
    file.create_dataset("a", (5,), "uint8", external=[("/etc/hostname", 0, 5)])


def _linked(file):
    file["a"] = h5py.ExternalLink("/etc/hostname", "b")


def _soft(file):
    file["b"] = np.ones(3)
    file["a"] = h5py.SoftLink("/b")


def _itself(file):
    file["b/c"] = file["/"]


def _twice(file):
    file["a"] = np.ones(300)
    file["d"] = file["a"]


def _deep(file):
    file.create_group("/".join("a" * 102))


def _deep_by_another_way(file):
    """From the outermost group all are near, and HDF5 goes from one to the next."""
    for number in range(200):
        file.create_group(f"{number:03}")
    for number in range(199):
        file[f"{number:03}/next"] = file[f"{number + 1:03}"]


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (_larger_than_the_file, "its arrays would have 4,000,000,000,000 bytes, and it has "),
        (_packed, "its arrays would have 400,000,000 bytes"),
        (_elsewhere, "the numbers of 'a' in it lie in another file"),
        (_linked, "'a' in it is a link"),
        (_soft, "'a' in it is a link"),
        (_itself, "'c' in it has another name, too"),
        (_twice, "'d' in it has another name, too"),
        (_deep, "groups within one another, more than 100"),
        (_deep_by_another_way, "in it has another name, too"),
    ],
)
def test_a_weight_file_has_its_own_numbers(tmp_path, write, said):
    path = tmp_path / "a.weights.h5"
    with h5py.File(path, "w") as file:
        write(file)
    with pytest.raises(DamagedFileError, match=said), open_weights(path):
        pass
