"""Files that are whole or not there, after a kill and after a power cut."""

import os
from pathlib import Path

import pytest

from keras_addnorm.data import Tokenizer
from keras_addnorm.training.files import written_whole


@pytest.fixture
def events(monkeypatch):
    """What is flushed, by its name at that time, and what is renamed, in order."""
    seen = []
    flush, replace = os.fsync, os.replace

    def fsync(descriptor):
        seen.append(("flush", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        flush(descriptor)

    def rename(old, new):
        seen.append(("rename", Path(new).name))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    return seen


def test_content_is_on_the_disk_before_its_name_and_its_name_thereafter(events, tmp_path):
    path = tmp_path / "folder" / "config.toml"
    with written_whole(path) as temporary:
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
    with pytest.raises(KeyError), written_whole(path) as temporary:
        temporary.write_text("new")
        raise KeyError
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_a_tokenizer_is_flushed_before_it_has_its_name(events, tmp_path):
    words = ["red green blue", "big small old new"]
    Tokenizer.train(words * 4, vocabulary_size=20).save(tmp_path / "tokenizer.model")
    (kind, name), *rest = events
    assert kind == "flush" and name.startswith(".tokenizer.model.")
    assert rest[0] == ("rename", "tokenizer.model")
