"""What a distillation refuses and remembers, and which run of eight bits it keeps."""

import errno

import pytest

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.distillation import distill as module
from keras_addnorm.runs.distillation.distill import distill
from keras_addnorm.runs.distillation.settings import DistillationConfig, student_config
from keras_addnorm.runs.toml_files import read_toml


class Trainings:
    """In the place of `train`: weights are a text that says what they were made of."""

    def __init__(self):
        self.made = []
        self.refusal = None

    def __call__(self, config, directory, **_):
        if self.refusal is not None:
            raise UserError(self.refusal)
        start = config.training.start_from
        before = RunDirectory(start).best_weights.read_text() if start else "nothing"
        weights = f"{config.training.epochs} epochs from {before}"
        directory.checkpoints.mkdir(parents=True, exist_ok=True)
        directory.write_config(config)
        directory.model.write_text("{}")
        if not start or not directory.best_weights.exists():
            directory.best_weights.write_text(weights)
            self.made.append(weights)


@pytest.fixture
def trainings(monkeypatch):
    found = Trainings()
    monkeypatch.setattr(module, "train", found)
    monkeypatch.setattr(module, "_compare", lambda *_: {"student": None})
    monkeypatch.setattr(module.card, "text", lambda *_: "")
    return found


@pytest.fixture
def student(tmp_path):
    return RunDirectory(tmp_path / "student")


@pytest.fixture
def start(corpus, student, trainings):
    """Distils with the corpus as its own translations; returns what was said."""

    def run(changes=(), **settings):
        said = []
        config = student_config({"data": str(corpus), "training.epochs": 2, **dict(changes)})
        distill(
            config,
            DistillationConfig(**{"teacher": str(corpus), **settings}),
            student,
            say=said.append,
            verbose=0,
        )
        return said

    return run


def remembered(student):
    return read_toml(student.distillation / "settings.toml")


def test_eight_bits_of_another_student_are_made_anew(start, student, trainings):
    start(eight_bits_epochs=1)
    start(eight_bits_epochs=1)
    small = "1 epochs from 2 epochs from nothing"
    assert [one for one in trainings.made if one.startswith("1")] == [small]
    said = start({"training.epochs": 3}, eight_bits_epochs=1)
    assert "Made anew: eight_bits, as there was a change of student." in said
    assert trainings.made[-1] == "1 epochs from 3 epochs from nothing"
    assert (student.path / "eight_bits" / "best.weights.h5").read_text() == trainings.made[-1]


def test_a_card_goes_before_the_eight_bits_that_it_is_about(start, student, monkeypatch):
    start(eight_bits_epochs=1)
    assert student.card.exists()
    small = RunDirectory(student.path / "eight_bits")
    small.write_log([{"epoch": 1}])
    said = []

    def stopped(config, directory, **_):
        said.append((directory.path.name, student.card.exists()))
        if directory.path.name == "eight_bits":
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "train", stopped)
    for epochs in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            start(eight_bits_epochs=epochs)
    # The first call has nothing to do there.
    assert said == [
        *(("student", True), ("eight_bits", True)),
        *(("student", True), ("eight_bits", False)),
    ]


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({"model.preset": "student-tiny"}, {}, "another 'model'. Expected model.preset = "),
        ({"training.alignments": "missing"}, {}, "other word alignments. Expected no"),
        ({}, {"noise": 2.0}, "trained on text that was made otherwise"),
        ({}, {"monolingual": ("missing",)}, r"cannot be read: No such file.*on.monolingual, a s"),
        ({"training.temperature": 2.0}, {}, "Expected token_level=True with training.temperature"),
    ],
)
def test_a_trained_student_does_not_remember_what_it_refuses(
    start, student, changes, settings, message
):
    start()
    student.alignments.write_text("0-0\n")
    before = remembered(student)
    with pytest.raises(UserError, match=message):
        start(changes, **settings)
    assert remembered(student) == before
    start({"training.epochs": 5})
    assert remembered(student)["training"]["epochs"] == 5


def test_what_the_training_refuses_is_not_remembered_either(start, student, trainings):
    trainings.refusal = "The vocabulary is too large."
    with pytest.raises(UserError, match="too large"):
        start()
    assert (student.distillation / "translations").is_dir()
    assert not (student.distillation / "settings.toml").exists()
    trainings.refusal = None
    start()
    trainings.refusal = "No."
    with pytest.raises(UserError, match=r"No\."):
        start({"training.epochs": 7})
    assert remembered(student)["training"]["epochs"] == 2


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_training_that_has_begun_has_accepted_its_settings_and_so_does_a_full_disk(
    start, student, trainings, monkeypatch, has_begun
):
    def full(config, directory, **_):
        if has_begun:
            trainings(config, directory)
            raise UserError("The best epoch is damaged.")
        raise UserError("The disk is full.") from OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(module, "train", full)
    with pytest.raises(UserError, match="The "):
        start({"training.epochs": 7})
    assert remembered(student)["training"]["epochs"] == 7


@pytest.mark.parametrize("links", [None, "0-0\nnone\n"])
def test_alignments_are_looked_at_first(start, student, tmp_path, links):
    path = tmp_path / "links"
    message = r"cannot be read: No such.*'\S*links'"
    if links is not None:
        path.write_text(links)
        message = "Line 2 of .*links' is not in Pharaoh's format"
    with pytest.raises(UserError, match=message):
        start({"training.alignments": str(path)})
    assert not student.path.exists()


def test_a_tokenizer_that_scores_is_looked_for_first(start, student, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"'ko-mecab' needs a package that is not installed"):
        start({"evaluation.bleu_tokenizer": "ko-mecab"})
    assert not student.path.exists()


@pytest.mark.parametrize("role", ["teacher", "backward"])
def test_a_student_is_no_model_of_its_distillation(start, student, corpus, role):
    student.path.mkdir()
    same = str(student.path / ".." / student.path.name)
    with pytest.raises(UserError, match=f"is {role}, and is to hold the student as well"):
        start(**{"teacher": str(corpus), role: same})
    assert not [*student.path.iterdir()]


def test_a_run_that_is_there_is_not_taken_over(start, student, corpus):
    student.path.mkdir()
    student.write_config(student_config({"data": str(corpus)}))
    before = [*student.path.iterdir()]
    with pytest.raises(UserError, match="holds a run that no distillation has made"):
        start()
    assert [*student.path.iterdir()] == before
