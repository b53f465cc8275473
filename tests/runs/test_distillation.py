"""What a teacher said becomes a student's training text: choice, filter, noise, stages."""

import dataclasses
import json

import numpy as np
import pytest

from keras_addnorm import cli
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.translation import Translation
from keras_addnorm.data import TokenizerPair
from keras_addnorm.data.text_noise import TextNoise
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs import portion_progress as progress
from keras_addnorm.runs.directory import write_text
from keras_addnorm.runs.distillation import distill as module
from keras_addnorm.runs.distillation.backward import kept
from keras_addnorm.runs.distillation.distill import distill
from keras_addnorm.runs.distillation.settings import DistillationConfig, student_config
from keras_addnorm.runs.distillation.stages import Stages
from keras_addnorm.runs.distillation.teacher import (
    RunTeacher,
    TranslatedText,
    open_teacher,
)
from keras_addnorm.runs.nearest import nearest
from keras_addnorm.runs.rows import Rows, write_rows
from keras_addnorm.runs.setting_flags import flags_by_name
from keras_addnorm.runs.text_data import save_tokenizers
from keras_addnorm.runs.toml_files import to_toml
from keras_addnorm.training import sentence_scorer


def pairs_of(corpus):
    sides = [(corpus / f"train.{code}").read_text("utf-8").splitlines() for code in ("en", "de")]
    return list(zip(*sides, strict=True))


@pytest.fixture
def known(corpus):
    """The pairs of the corpus that the teacher elsewhere was given: four fifths of the sources."""
    pairs = pairs_of(corpus)
    sources = [source for source, _ in pairs]
    return [pair for number, pair in enumerate(pairs) if number % 5 and sources.count(pair[0]) == 1]


@pytest.fixture
def translated(tmp_path, known):
    """Translations made elsewhere: two of each known source, and of a source of their own."""
    folder = tmp_path / "translated"
    folder.mkdir()
    pairs = [("a yellow house", "ein gelbes Haus"), ("a yellow house", "die zweite Wahl")]
    for source, reference in known:
        pairs += [(source, "ganz etwas anderes"), (source, reference[:-1])]
    for side, language in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"train.{language}").write_text(text, encoding="utf-8")
    return folder


def make_corpus(config, settings, directory, said=None):
    """The student's text, without a training."""
    said = [] if said is None else said
    teacher = open_teacher(config, settings, verify=True)
    stages = Stages(directory, said.append)
    return module._make_corpus(config, settings, teacher, directory, stages, said.append)


def lines_of(folder, name):
    return (folder / "text" / name).read_text(encoding="utf-8").splitlines()


def test_translations_made_elsewhere_become_the_students_text(tmp_path, corpus, known, translated):
    config = student_config({"data": str(corpus)})
    settings, said = DistillationConfig(str(translated), noise=0.0), []
    found = make_corpus(config, settings, RunDirectory(tmp_path / "student"), said)
    written = list(zip(lines_of(found, "train.en"), lines_of(found, "train.de"), strict=True))
    # Of each source what is near its reference, and of the one without a reference the first.
    expected = [(source, reference[:-1]) for source, reference in known]
    assert written == [*expected, ("a yellow house", "ein gelbes Haus")]
    for split, name in (("val", "validation"), ("test", "test")):
        for language in ("en", "de"):
            before = (corpus / f"{split}.{language}").read_text(encoding="utf-8").splitlines()
            assert lines_of(found, f"{name}.{language}") == before
    report = json.loads((found / "report.json").read_text())
    count = len(known) + 1
    task = f"Of the translations in {translated} one is taken for each of {count} sentences."
    assert said == [task]
    assert report == {"pairs": count, "written": count, "unusable": 0, "improbable": 0}


def test_more_sentences_and_noise(tmp_path, corpus, translated):
    more = tmp_path / "more.en"
    more.write_text("a yellow house\n\n  unknown to the teacher \n", encoding="utf-8")
    config = student_config({"data": str(corpus), "training.seed": 7})
    settings = DistillationConfig(str(translated), monolingual=(str(more),), noise=2.0)
    found = make_corpus(config, settings, RunDirectory(tmp_path / "student"))
    quiet = DistillationConfig(str(translated), monolingual=(str(more),), noise=0.0)
    plain = make_corpus(config, quiet, RunDirectory(tmp_path / "quiet"))
    sides = [
        list(zip(lines_of(folder, "train.en"), lines_of(folder, "train.de"), strict=True))
        for folder in (plain, found)
    ]
    noise = TextNoise(seed=7).scaled(2.0)
    expected = [new for number, pair in enumerate(sides[0]) for new in noise(number, *pair)]
    assert sides[1] == expected != sides[0]


def test_a_second_start_keeps_what_is_there_and_makes_anew_what_changed(
    tmp_path, corpus, translated
):
    config, directory = student_config({"data": str(corpus)}), RunDirectory(tmp_path / "student")
    settings = DistillationConfig(str(translated))
    found = make_corpus(config, settings, directory)
    text = lines_of(found, "train.en")
    (found / "text" / "train.en").write_text("touched\n", encoding="utf-8")
    said = []
    make_corpus(config, settings, directory, said)
    assert lines_of(found, "train.en") == ["touched"] and not said
    make_corpus(config, DistillationConfig(str(translated), noise=0.5), directory, said)
    assert said == ["Made anew: corpus, as there was a change of noise."]
    assert lines_of(found, "train.en") != text
    make_corpus(config, settings, directory, said)
    assert lines_of(found, "train.en") == text
    # With a student that has learned from it, the text stays.
    directory.model.write_text("{}")
    with pytest.raises(UserError, match=r"Expected distillation.noise=1.0. Received: dist.*=0.5"):
        make_corpus(config, DistillationConfig(str(translated), noise=0.5), directory)
    with pytest.raises(UserError, match=r"is trained on text that was made otherwise.*n_best"):
        make_corpus(config, DistillationConfig(str(translated), n_best=1), directory)
    assert lines_of(found, "train.en") == text


def test_the_nearest_hypothesis_is_taken_and_of_equal_ones_the_first():
    hypotheses = [Translation(text, score) for score, text in enumerate(("ab", "cd", "cd e", "cd"))]
    nearness = sentence_scorer("chrf")
    assert nearest(hypotheses, "cd", nearness) == ("cd", 1, 100.0)
    assert nearest(hypotheses, None, nearness) == ("ab", 0, None)


def test_bleu_of_a_sentence_against_the_formula():
    # Of "the cat sat on it" 4 of 5 words, 2 of 4 bigrams, 1 of 3 trigrams and 0 of 2 are there.
    bleu = sentence_scorer("bleu")("the cat sat on it", "the cat sat up on")
    orders = np.array([4 / 5, (2 + 1) / (4 + 1), (1 + 1) / (3 + 1), (0 + 1) / (2 + 1)])
    np.testing.assert_allclose(bleu, 100 * np.exp(np.log(orders).mean()), rtol=1e-6)
    with pytest.raises(ValueError, match="one of chrf, bleu"):
        sentence_scorer("ter")


def test_the_worst_share_is_left_out_and_what_has_no_score():
    scores = [-3.0, -1.0, None, -2.0, -3.0, -0.5, -9.0]
    # Three of seven: the one without a score, -9, and of the two equal ones the later.
    assert kept(scores, 0.43).tolist() == [True, True, False, True, False, True, False]
    assert kept(scores, 0.0).tolist() == [True, True, False, True, True, True, True]
    assert kept([], 0.5).tolist() == []


def test_rows_are_read_from_any_place(tmp_path):
    rows = [[number, "ü\n" * (number % 3)] for number in range(2051)]
    digest = write_rows(tmp_path / "rows.jsonl", iter(rows))
    assert digest != write_rows(tmp_path / "other.jsonl", iter(rows[:-1]))
    found = Rows(tmp_path / "rows.jsonl")
    assert len(found) == 2051 and list(found) == rows
    for start, end in ((0, 3), (1023, 1026), (1024, 2048), (2048, 2051), (1500, 1502)):
        assert found.read(range(start, end)) == rows[start:end]


def test_of_a_file_the_languages_and_several_translations_are_known(tmp_path):
    path = tmp_path / "said.tsv"
    path.write_text("en\tde\none\teins\ntwo\tzwei\none\tein\n", encoding="utf-8")
    found = TranslatedText.read(str(path), "en", "de")
    assert found.translations == {"one": ["eins", "ein"], "two": ["zwei"]}
    assert list(found.pairs([("two", "Zwei!"), ("three", "drei")])) == [
        ("two", "Zwei!"),
        ("one", None),
    ]


def test_what_cannot_teach_is_refused(tmp_path, corpus):
    config = student_config({"data": str(corpus)})

    def refusal(path):
        with pytest.raises(UserError) as caught:
            open_teacher(config, DistillationConfig(str(path)), verify=True)
        return str(caught.value)

    assert "keras-addnorm import some/model runs/teacher" in refusal("some/model")
    for name in ("runs/none", "./none", str(tmp_path / "none")):
        assert refusal(name).endswith("or a folder or file of translations.")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    assert "holds a model that is no run yet" in refusal(checkpoint)
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.write_config(student_config({"data": str(corpus)}))
    assert "no trained weights" in refusal(run.path)
    run.best_weights.write_bytes(b"")
    run.write_config(student_config({"data": str(corpus), "source": "de", "target": "en"}))
    assert "translates from 'de' to 'en'. Expected a run from 'en' to 'de'" in refusal(run.path)


def test_a_lost_list_of_stages_is_no_other_student(tmp_path, corpus, translated):
    config, directory = student_config({"data": str(corpus)}), RunDirectory(tmp_path / "student")
    settings = DistillationConfig(str(translated))
    make_corpus(config, settings, directory)
    (directory.distillation / "stages.json").unlink()
    with pytest.raises(UserError, match=r"stages.json' is missing"):
        make_corpus(config, settings, directory)
    (directory.distillation / "manifest.json").unlink()
    directory.model.write_text("{}")
    with pytest.raises(UserError, match=r"Expected the pairs of before, the teacher of before"):
        make_corpus(config, settings, directory)


def test_the_first_batch_says_how_much_time_is_left(monkeypatch):
    class Translated:
        total, is_full, done = 300, False, 7

        def count_done(self):
            return self.done

    clock, said, portions = [0.0], [], Translated()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.filling(portions, said.append) as done:
        # A call a second, as while other processes work: the first batch compiles.
        for second in range(1, 200):
            clock[0] += 1
            if second >= 50:
                portions.done = 7 + 20 + (second - 50) * 2
            done()
    bar = "Translating: [=                   ] 27 of 300 texts, 0.4 texts/s, 11 min 22 s left"
    assert said[:2] == ["7 of 300 texts are there already.", f"{bar}, compiling included"]
    # Later the time of the first batch is left out: (300 - 147) / 2 seconds.
    assert said[2].endswith("147 of 300 texts, 2.0 texts/s, 1 min 16 s left")
    assert len(said) == 4


def parsed(*arguments):
    options = cli.build_parser().parse_args(["distill", *map(str, arguments)])
    return options.command.check(options)


def test_a_command_has_a_students_defaults_and_later_what_it_began_with(
    tmp_path, corpus, translated
):
    run = tmp_path / "student"
    begin = (run, "--teacher", translated, "--data", corpus, "--n-best", 3, "--epochs", 2)
    student, settings = parsed(*begin)
    assert student.training.label_smoothing == student.model.overrides["dropout"] == 0.0
    assert (student.model.preset, student.training.guided_alignment, student.training.epochs) == (
        "student-base-memory",
        0.1,
        2,
    )
    assert settings == DistillationConfig(str(translated), n_best=3)
    write_text(
        run / "distillation" / "settings.toml",
        to_toml({**student.to_dict(), "distillation": dataclasses.asdict(settings)}),
    )
    assert parsed(run) == (student, settings)
    again, others = parsed(run, "--processes", 5, "--dropout", 0.3)
    assert again == student.replace({"model.dropout": 0.3})
    assert others == dataclasses.replace(settings, processes=5)


def test_without_a_teacher_there_has_to_be_something_to_go_on_with(tmp_path):
    for name, reason in (("nothing", "there is no such run"), ("", "it was not made by one")):
        with pytest.raises(UserError, match=f"to go on with: {reason}. Expected the run directory"):
            parsed(tmp_path / name, "--epochs", 2)


def test_the_hypotheses_are_as_many_as_the_beams_unless_it_is_said():
    assert DistillationConfig("runs/big", beams=3).num_hypotheses == 3
    assert DistillationConfig("runs/big", beams=3, n_best=2).num_hypotheses == 2
    with pytest.raises(UserError) as caught:
        parsed("student", "--teacher", "runs/big", "--n-best", 9)
    options = cli.build_parser().parse_args(["distill", "student", "--n-best", "9"])
    said = str(caught.value.renamed(flags_by_name(options)))
    assert said == "--n-best must be at most --teacher-beams, which is 8. Received: 9."


def test_what_a_distillation_sets_itself_is_no_flag_of_it():
    flags = cli.build_parser().commands["distill"].get_default("flags")
    assert flags["teacher"].key == "distillation.teacher"
    assert flags["eight-bits-epochs"].key == "distillation.eight_bits_epochs"
    defaults = {one.key: one.default for one in flags.values()}
    assert defaults["training.guided_alignment"] == 0.1
    # These are the preset's.
    assert defaults["model.scheme"] is defaults["model.self_attention"] is None
    assert not {"training.teacher", "training.eight_bits"} & set(defaults)


def test_text_has_no_distribution_over_tokens(tmp_path, corpus, translated):
    config = student_config({"data": str(corpus)})
    with pytest.raises(UserError, match=r"Text has no distribution over tokens. Expected a run"):
        distill(config, DistillationConfig(str(translated), token_level=True), tmp_path / "student")


def test_at_token_level_the_student_has_the_teachers_vocabulary_and_its_licence(tmp_path, corpus):
    own = {"tokenizer.vocabulary_size": 37, "tokenizer.kind": "unigram", "licence": "cc-by-4.0"}
    taught = student_config({"data": str(corpus), **own})
    run = RunDirectory(tmp_path / "teacher")
    teacher = RunTeacher.of(run, taught, DistillationConfig(str(run.path)))
    tokenizers = TokenizerPair.train(pairs_of(corpus), **dataclasses.asdict(taught.tokenizer))
    save_tokenizers(tokenizers, teacher.directory)
    config = student_config({"data": str(corpus), "split": "train[:9]", "target_column": "2"})
    settings = DistillationConfig(str(teacher.directory.path), token_level=True)
    directory = RunDirectory(tmp_path / "student")
    found = module._student(config, settings, teacher, directory, tmp_path / "text")
    assert not directory.path.exists()
    module._take_tokenizers(teacher, directory)
    assert TokenizerPair.load(directory.tokenizer) == tokenizers
    assert found == config.replace(
        {
            **own,
            "data": str(tmp_path / "text"),
            "split": "train",
            "target_column": "",
            "training.teacher": settings.teacher,
        }
    )


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"teacher": ""}, "distillation.teacher must be a run directory"),
        ({"n_best": 9}, "distillation.n_best must be at most beams, which is 8"),
        ({"drop_worst": 1.0}, "distillation.drop_worst must be at least 0 and below 1"),
        ({"processes": 0}, "distillation.processes must be at least 1"),
        ({"monolingual": "more.en"}, "distillation.monolingual must be a list of texts"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        DistillationConfig.from_dict({"teacher": "runs/big", **wrong})
