"""Folders of every family with random changes of their bytes: read, or refused in a sentence."""

import json
import random
import shutil
import sys
from pathlib import Path

import pytest
from hostile_loading import LONGEST_SENTENCE, make_no_model, require_sentence

from keras_addnorm.basics.printing import printable_lines
from keras_addnorm.interop import load_pretrained

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import attacked_files
import hostile_folders

sys.path.pop(0)

# Of those who make the folders, such as a name that stands twice in a zip.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A folder of each family, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("originals")

    def original(family):
        if not (folder / family).exists():
            hostile_folders.write_ordinary(family, folder / family)
        return folder / family

    return original


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    make_no_model(monkeypatch)


def require_answer(original, family, folder, seed):
    copy = shutil.copytree(original, folder / family)
    changed = attacked_files.change_one_file(copy, random.Random(f"{family} {seed}"))
    require_sentence(
        hostile_folders.opened(folder, family),
        family,
        family=hostile_folders.NAMED.get(family),
        # A change may repeat a line a thousand times.
        more_bytes=5 * changed.stat().st_size,
        what=changed.name,
    )
    shutil.rmtree(copy)


@pytest.mark.parametrize("family", ["student", "bergamot"])
def test_changed_students_are_read_or_refused(originals, tmp_path, family):
    original = originals(family)
    for seed in range(15):
        require_answer(original, family, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", hostile_folders.FAMILIES)
def test_changed_folders_of_any_family_are_read_or_refused(originals, tmp_path, family):
    original = originals(family)
    for seed in range(40):
        require_answer(original, family, tmp_path, seed)


def test_what_names_no_file_is_named(originals, tmp_path):
    """Three that random changes have found."""
    folder = shutil.copytree(originals("student"), tmp_path / "student")
    settings = (folder / "decoder.yml").read_text()
    for vocabulary, said in (
        (f"[{'x' * 5000}]", "names that are too long"),
        ("[{a: b}]", "decoder"),
    ):
        text = settings.replace("[vocab.spm, vocab.spm]", vocabulary)
        (folder / "decoder.yml").write_text(text)
        with pytest.raises(ValueError, match=said):
            load_pretrained(folder)
    (folder / "decoder.yml").write_text(settings)
    (folder / "vocab.spm").write_bytes(b"\xff" * 100)
    with pytest.raises(ValueError, match=r"vocab\.spm"):
        load_pretrained(folder)


def test_a_list_of_checkpoints_that_is_no_text_is_named(originals, tmp_path):
    folder = shutil.copytree(originals("opennmt_tf"), tmp_path / "opennmt_tf")
    (folder / "checkpoint").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"opennmt_tf/checkpoint' is damaged"):
        load_pretrained(folder, hostile_folders.NAMED["opennmt_tf"])


def test_names_of_missing_files_are_shown_escaped_and_not_at_any_length(tmp_path):
    hostile_folders.write_ordinary("marian", tmp_path / "marian")
    (tmp_path / "marian" / "model.safetensors").unlink()
    names = {str(number): f"\x1b[2J{number}" for number in range(10_000)}
    index = tmp_path / "marian" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    with pytest.raises(FileNotFoundError, match=r"index\.json' names are missing") as error:
        load_pretrained(tmp_path / "marian")
    said = str(error.value)
    assert len(said) <= LONGEST_SENTENCE and printable_lines(said) == said
