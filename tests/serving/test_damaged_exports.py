"""A version whose files are not what was written is refused by the name of the file."""

import json
import shutil
from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_addnorm import cli
from keras_addnorm.basics.integrity import DamagedFileError, Manifest
from keras_addnorm.serving import load_translator
from keras_addnorm.serving.server import served_versions
from keras_addnorm.serving.server.served_versions import Versions
from keras_addnorm.serving.server.settings import Settings
from keras_addnorm.serving.versions import MANIFEST, choose_version, require_intact

LISTED = {
    "saved_model.pb",
    "variables/variables.data-00000-of-00001",
    "variables/variables.index",
    "assets.extra/model.json",
    "assets.extra/tf_serving_warmup_requests",
}


@pytest.fixture
def version(toy, tmp_path):
    return shutil.copytree(toy.path, tmp_path / "models" / "1")


@pytest.fixture
def never_loaded(monkeypatch):
    """TensorFlow, which no damaged version is given to."""
    monkeypatch.setattr(tf.saved_model, "load", lambda *_: pytest.fail("loaded"))
    monkeypatch.setattr(served_versions, "LoadedVersion", lambda *_: pytest.fail("loaded"))


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_every_file_that_a_reader_needs_is_listed(version):
    assert Manifest(version, MANIFEST).read().keys() >= LISTED
    others = Manifest(version, MANIFEST).read().keys() - LISTED
    assert all(name.startswith("assets/") for name in others)
    require_intact(version)


@pytest.mark.usefixtures("never_loaded")
@pytest.mark.parametrize("name", [*sorted(LISTED), MANIFEST])
def test_a_damaged_file_is_named_before_tensorflow_reads_it(version, name, capsys):
    flip(version / name)
    with pytest.raises(DamagedFileError, match=rf"{name}' is damaged"):
        load_translator(version.parent)
    assert cli.main(["translate", "--model", str(version), "A dog."]) == 2
    assert f"{name}' is damaged" in capsys.readouterr().err
    versions = Versions(Settings(version.parent, "mine"))
    versions.refresh()
    (state,) = versions.states("mine")
    assert state.state == "END" and f"mine/1/{name}' is damaged" in state.error_message
    if name != MANIFEST:
        (version / name).unlink()
        with pytest.raises(DamagedFileError, match=rf"{name}' is missing.*export it again"):
            load_translator(version)


def test_the_server_goes_on_with_what_it_serves(version, monkeypatch):
    loaded = lambda path, *_: SimpleNamespace(number=int(path.name), session=None)  # noqa: E731
    monkeypatch.setattr(served_versions, "LoadedVersion", loaded)
    versions = Versions(Settings(version.parent, "mine", warm_up=False))
    versions.refresh()
    flip(shutil.copytree(version, version.parent / "2") / "saved_model.pb")
    versions.refresh()
    assert versions.current.number == 1
    assert [state.state for state in versions.states("mine")] == ["END", "AVAILABLE"]
    unchecked = Versions(Settings(version.parent, "mine", warm_up=False, verify=False))
    unchecked.refresh()
    assert unchecked.current.number == 2


@pytest.mark.parametrize("name", ["README.md", "models.config", "batching.config"])
def test_texts_and_settings_of_other_servers_may_be_adapted(version, name):
    (version / "assets.extra" / name).write_text("mine")
    require_intact(version)


def test_a_version_of_an_earlier_export_has_no_manifest(version):
    (version / MANIFEST).unlink()
    flip(version / "saved_model.pb")
    require_intact(version)


@pytest.mark.parametrize(
    ("name", "content"), [("saved_model.pb", b"\x08"), ("assets.extra/model.json", b"{")]
)
def test_without_digests_what_cannot_be_read_is_a_sentence(version, name, content):
    (version / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"models/1' holds no translation model: .*Export it ag"):
        load_translator(version, verify=False)


def test_a_card_says_nothing_of_digests(version):
    """A copy of a version is whole wherever it lies."""
    moved = shutil.move(version, version.parent / "7")
    require_intact(moved)
    assert "files" not in json.loads((version.parent / "7/assets.extra/model.json").read_text())


@pytest.mark.parametrize("name", ["v[1]", "v*", "v?", "a\\b"])
def test_a_path_that_is_a_pattern_to_tensorflow_is_refused(tmp_path, name):
    """It would export there, and find nothing when the export is loaded or served."""
    path = tmp_path / name / "toy"
    for refused in (
        lambda: choose_version(path, None),
        lambda: load_translator(path),
        lambda: Versions(Settings(path)),
    ):
        with pytest.raises(ValueError, match="takes the path of a SavedModel for a pattern"):
            refused()


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\x1b(Bb"])
def test_a_name_that_settings_of_servers_cannot_have_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"names the model.*Received: '[\x20-\x7e]*'"):
        choose_version(tmp_path / name, None)
