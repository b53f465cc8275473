"""Links in a run directory from somebody else, and beside files: nothing is written behind them."""

import os
from pathlib import Path

import pytest

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.locks import alone
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.portions import Portions
from keras_addnorm.runs.translation_portions import in_portions
from keras_addnorm.runs.zoo import find
from keras_addnorm.runs.zoo.make import make


class Same:
    """A translator that returns the texts."""

    def made_from(self):
        return {"model": "same"}

    def job(self):
        return self.fill, {}

    def fill(self, texts, folder, size, share, done):
        Path(folder, "0000000.jsonl").touch()


@pytest.fixture
def victim(tmp_path):
    """Somebody's folder, with a folder and a file in it."""
    folder = tmp_path / "victim"
    (folder / "photos").mkdir(parents=True)
    (folder / "photos" / "one").write_text("mine")
    return folder


def _is_as_it_was(victim):
    return [path.name for path in victim.rglob("*")] == ["photos", "one"]


@pytest.mark.parametrize("name", ["checkpoints", "best", "evaluation/test", "tensorboard/train"])
def test_a_folder_of_a_run_is_no_link(tmp_path, victim, name):
    run = RunDirectory(tmp_path / "run")
    (run.path / name).parent.mkdir(parents=True)
    (run.path / name).symlink_to(victim)
    with pytest.raises(UserError, match="is a link, and what this run"), run.locked():
        pass
    assert _is_as_it_was(victim)
    elsewhere = tmp_path / "link"
    (run.path / name).unlink()
    elsewhere.symlink_to(run.path)
    with RunDirectory(elsewhere).locked():
        pass


def _translate(folder):
    with in_portions(folder, ["a"], Same(), say=print) as portions:
        assert portions is not None


def test_a_folder_of_portions_is_no_link(tmp_path, victim):
    (tmp_path / "out.portions").symlink_to(victim)
    with pytest.raises(UserError, match=r"out.portions' is a link"):
        _translate(tmp_path / "out.portions")
    assert _is_as_it_was(victim)


def test_what_others_have_put_among_portions_stays(tmp_path, victim):
    (victim / ("0" * 32)).mkdir()  # portions of other texts
    _translate(victim)
    assert _is_as_it_was(victim)


def test_results_are_not_added_behind_a_link(tmp_path, victim):
    (tmp_path / "0000000.part").symlink_to(victim / "photos" / "one")
    with pytest.raises(UserError, match="is a link"):
        Portions(tmp_path, 1).fill(list, lambda those: ["a"], len, batch_size=1)
    assert (victim / "photos" / "one").read_text() == "mine"


def test_a_lock_is_no_link(tmp_path, victim):
    (tmp_path / ".scores.json.lock").symlink_to(victim / "new")
    with pytest.raises(ValueError, match=r"scores.json.lock' is a link"):
        RunDirectory(tmp_path).add_scores("test", {})
    assert _is_as_it_was(victim)


def test_what_is_half_written_is_no_link(tmp_path, victim):
    """Of the process that writes, the number can be guessed, and all can be there."""
    (tmp_path / f".{os.getpid()}.a").symlink_to(victim / "photos" / "one")
    with atomic_file(tmp_path / "a") as temporary:
        temporary.write_text("ours")
    assert (tmp_path / "a").read_text() == "ours" and not (tmp_path / "a").is_symlink()
    assert (victim / "photos" / "one").read_text() == "mine"


def test_two_do_not_make_one_model(tmp_path):
    work = tmp_path / "making" / "demo-en-de"
    work.parent.mkdir()
    with alone(work), pytest.raises(UserError, match="Another process is making 'demo-en-de' in"):
        make(find("demo-en-de"), tmp_path)
    (tmp_path / "demo-en-de").mkdir()
    with pytest.raises(UserError, match="exists already"):
        make(find("demo-en-de"), tmp_path)
    assert os.listdir(tmp_path) == ["demo-en-de"]
