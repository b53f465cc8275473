"""Full disks and running trainings: a sentence, nothing half-written, and the command goes on."""

import contextlib
import resource

import numpy as np
import pytest
from killed_training import config
from test_translation_portions import RESULTS, TEXTS, Turned, translated

from keras_addnorm import cli
from keras_addnorm.basics.errors import UserError
from keras_addnorm.interop import make_random_folder
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.distillation.teacher import RunTeacher
from keras_addnorm.runs.portions import Portions
from keras_addnorm.runs.pretrained_run import import_pretrained
from keras_addnorm.runs.rows import write_rows
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import digest_of_run, load_run_of
from keras_addnorm.runs.translation_portions import RunTranslator, in_portions
from keras_addnorm.training import sentence_scorer

FULL = r"would become larger than it may be .*ulimit -f"


@contextlib.contextmanager
def files_of_at_most(size):
    """Refuses larger files to this process, as a disk does that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_clean_copy_that_finds_no_room(tmp_path, corpus, capsys):
    for language in ("en", "de"):
        lines = "".join(f"{language} {number} {'a' * 50}\n" for number in range(999))
        (tmp_path / f"train.{language}").write_text(lines)
    before = names(tmp_path)
    command = ["data", str(tmp_path), "--source", "en", "--target", "de", "--out"]
    with files_of_at_most(20_000):
        assert cli.main([*command, str(tmp_path / "clean")]) == 2
    assert "ulimit -f" in capsys.readouterr().err
    assert names(tmp_path) == before
    assert cli.main([*command, str(tmp_path / "clean")]) == 0


def test_an_import_that_finds_no_room(tmp_path):
    folder = make_random_folder("marian", tmp_path / "marian")
    before = names(tmp_path)
    with files_of_at_most(20_000), pytest.raises(UserError, match=FULL):
        import_pretrained(folder, tmp_path / "run")
    assert names(tmp_path) == before
    import_pretrained(folder, tmp_path / "run")


def test_translations_that_find_no_room(tmp_path):
    # The texts have room, and the first portions.
    with files_of_at_most(7_000), pytest.raises(UserError, match=FULL):
        translated(tmp_path / "out", Turned(), TEXTS[:300])
    again = Turned()
    assert translated(tmp_path / "out", again, TEXTS[:300]) == RESULTS[:300]
    assert 0 < len(again.seen) < 300
    with files_of_at_most(700), pytest.raises(UserError, match=FULL):
        translated(tmp_path / "out", Turned())
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_weights_that_change_are_not_mixed(tmp_path, corpus):
    directory = RunDirectory(tmp_path / "run")
    settings = config(corpus).replace({"training.epochs": 1})
    train(settings, directory, say=lambda line: None, verbose=0)
    translator = RunTranslator(directory, directory.read_config())
    translator.made_from()
    distilled = DistillationConfig(str(directory.path), choose_by="bleu")
    teacher = RunTeacher.of(directory, directory.read_config(), distilled)
    teacher.made_from(distilled)
    others = digest_of_run(directory, directory.read_config(), ())
    write_rows(tmp_path / "pairs", [["red", "rot"]])
    # A training that goes on beside the translation.
    train(
        settings.replace({"training.epochs": 2, "training.peak_learning_rate": 0.1}),
        directory,
        say=lambda line: None,
        verbose=0,
    )
    assert np.all(directory.read_log()[1]["val_loss"] > 0)
    changed = "other weights, or another lexicon, than a moment ago"
    with (
        pytest.raises(UserError, match=changed),
        in_portions(tmp_path / "out", ["red"], translator, say=print),
    ):
        pass
    assert not (tmp_path / "out").exists()
    portions = Portions(tmp_path / "stage", 1)
    with pytest.raises(UserError, match=changed):
        teacher.fill(portions, tmp_path / "pairs", distilled, lambda: None)
    # The model by which a distillation scores its text.
    with pytest.raises(UserError, match=changed):
        load_run_of(directory, others, digested=())
    assert portions.count_done() == 0
    # With the files of now it translates, and chooses.
    again = RunTeacher.of(directory, directory.read_config(), distilled)
    again.fill(portions, tmp_path / "pairs", distilled, lambda: None)
    ((text, _, nearness),) = portions
    assert nearness == sentence_scorer("bleu", language="de")(text, "rot")
