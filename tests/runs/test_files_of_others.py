"""Files that somebody else has put where ours are: looked at before they are used, and kept."""

import json
import os

import pytest
from test_translation_portions import Turned

from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import IN_EXPORTS, DamagedFileError
from keras_addnorm.cli import main
from keras_addnorm.diagnostics import ResidualLog, ResidualRow
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.distillation.comparison import _figures
from keras_addnorm.runs.distillation.corpus import read_report
from keras_addnorm.runs.evaluate import _further_references, evaluate_in_portions
from keras_addnorm.runs.outputs import require_new_folder, require_writable
from keras_addnorm.runs.portions import (
    Portions,
    _digest,
    are_translations,
    is_score,
    is_translation,
)
from keras_addnorm.runs.resuming import early_config
from keras_addnorm.runs.training_ids import remove_preparation
from keras_addnorm.runs.translation_portions import in_portions

TEXTS = ["ab", "abc"]


def _put(path, text="theirs"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _place(folder):
    """The folder of the portions of `TEXTS`, as a killed command leaves it."""
    with pytest.raises(KeyError), in_portions(folder, TEXTS, Turned(), say=print) as portions:
        raise KeyError
    return portions.folder


@pytest.mark.parametrize(
    "prepare",
    [
        lambda path: path.unlink(),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
        lambda path: path.write_text('"other"\n"texts"\n"and more"\n'),
        lambda path: path.write_text("5\n{\n"),
    ],
    ids=["none", "pipe", "no end", "other", "damaged"],
)
def test_what_is_translated_are_the_texts_that_were_given(tmp_path, prepare):
    place = _place(tmp_path / "out.portions")
    (place / "0000000.jsonl").unlink()
    prepare(place / "texts.jsonl")
    with in_portions(tmp_path / "out.portions", TEXTS, Turned(), say=print) as portions:
        assert [best[0] for best, *_ in portions] == ["ba", "cba"]


_NO_TRANSLATIONS = (
    *(None, 5, [], "ab", {"a": 1}, [[]], [["a"]], [["a", None]], [["a", True]], [[5, 1.0]]),
    *([["\ud800", 1.0]], [["a", 1.0, "b"]], [["a", 1.0, None, 2]]),
)


@pytest.mark.parametrize("result", _NO_TRANSLATIONS)
def test_what_is_no_translation_is_refused_or_made_again(tmp_path, result):
    assert not are_translations(result)
    place = _place(tmp_path / "out.portions")
    finished, lines = place / "0000000.jsonl", [json.dumps(result).encode()] * 2
    finished.write_bytes(b"\n".join([*lines, json.dumps(_digest(lines)).encode()]))
    with (
        in_portions(tmp_path / "out.portions", TEXTS, Turned(), say=print) as portions,
        pytest.raises(DamagedFileError, match=r"0000000.jsonl' .*something else than results"),
    ):
        list(portions)
    half = Portions(tmp_path / "half", 2, is_result=are_translations)
    _put(tmp_path / "half" / "0000000.part", json.dumps([1, result]) + "\n")
    half.fill(lambda batch: [[[text, 1.0]] for text in batch], lambda _: TEXTS, len, batch_size=2)
    assert list(half) == [[["ab", 1.0]], [["abc", 1.0]]]


def test_results_of_each_kind_are_known():
    assert are_translations([["a", -1.5], ["", 0]]) and is_translation(["a", -1.0, None])
    assert is_translation(["a", -1.0, 30]) and not is_translation([["a", 1.0]])
    assert [is_score(one) for one in (None, 1.5, 0, True, "1")] == [True, True, True, False, False]


def test_results_are_not_added_to_another_file(tmp_path):
    victim = _put(tmp_path / "victim", '[0, "b"]\n[1, "c"]')
    os.link(victim, tmp_path / "0000000.part")
    with pytest.raises(UserError, match="is a link"):
        Portions(tmp_path, 1).fill(list, lambda those: ["a"], len, batch_size=1)
    assert victim.read_text() == '[0, "b"]\n[1, "c"]'


def test_a_log_begins_where_it_is_named_and_not_behind_a_link(tmp_path):
    log = ResidualLog(tmp_path / "residuals.csv")
    log.path.symlink_to("new")
    row = ResidualRow(1, "encoder/0/self_attention", *([1.0] * 9))
    log.append([row])
    log.append([row])
    assert log.read() == [row, row]
    assert [path.name for path in tmp_path.iterdir()] == ["residuals.csv"]


def test_no_output_takes_the_place_of_a_file_of_a_model(tmp_path):
    run, exported = RunDirectory(tmp_path / "run"), tmp_path / "models" / "1"
    run.write_config(RunConfig())
    _put(exported / IN_EXPORTS, "{}")
    (tmp_path / "link").symlink_to("run")
    for path in (
        *(run.config, run.best_weights, run.manifest.path, run.tokenizer / "a"),
        *(tmp_path / "link" / "model.json", exported / "saved_model.pb", exported / "a" / "b"),
    ):
        with pytest.raises(UserError, match="is kept for a file of the model in"):
            require_writable(path)
    (run.path / "page.html").symlink_to("config.toml")
    for path in (run.path / "page.html", tmp_path / "model.json", tmp_path / "models" / "a"):
        require_writable(path)


def test_no_export_is_made_inside_of_a_run(tmp_path, capsys):
    run = RunDirectory(tmp_path / "run")
    run.write_config(RunConfig())
    assert main(["export", str(run.path), str(run.tokenizer)]) == 2
    assert "is kept for a file of the model in" in capsys.readouterr().err


def test_a_new_folder_is_not_made_behind_a_link(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(UserError, match=r"link' exists. Expected the name of a new folder"):
        require_new_folder(tmp_path / "link")


@pytest.mark.parametrize("name", ["curves.png", "best.weights.h5", "scores.json"])
def test_a_folder_in_the_place_of_a_file_is_named_before_a_training(tmp_path, name):
    run = RunDirectory(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=rf"{name}' is a folder"), run.locked():
        pass
    (tmp_path / name).rmdir()
    run.checkpoints.mkdir()
    with run.locked():
        pass


@pytest.mark.parametrize("name", ["tokenizer/thesis.txt", "token_ids/thesis.txt"])
def test_what_others_have_in_folders_of_a_refused_run_stays(tmp_path, name):
    run = RunDirectory(tmp_path)
    theirs = _put(tmp_path / name)
    with pytest.raises(UserError, match="refused"), early_config(RunConfig(), run):
        ours = [_put(run.tokenizer / "tokenizer.model"), _put(run.token_ids / "contents.json")]
        raise UserError("refused")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [theirs]
    assert not any(path.exists() for path in ours)
    remove_preparation(RunDirectory(tmp_path / "none"))


@pytest.mark.parametrize(
    "text", ['{"\\ud800": {"cased": {}}}', '{"a": {"cased": {"b": "\\ud800"}}}']
)
def test_scores_that_could_not_be_written_again_are_named(tmp_path, text):
    _put(tmp_path / "scores.json", text)
    with pytest.raises(UserError, match=r"scores.json' are damaged.*surrogates"):
        RunDirectory(tmp_path).read_scores()


def test_weights_behind_a_link_to_nowhere_are_not_replaced_by_others(tmp_path):
    run = RunDirectory(tmp_path)
    _put(run.best_weights)
    run.averaged_weights.symlink_to("another_disk")
    assert run.weights() == run.averaged_weights


def test_numbers_of_a_log_are_no_larger_than_what_is_computed_with_them(tmp_path):
    _put(tmp_path / "log.csv", f"epoch,steps,loss\n0,{2**59},{'9' * 400}\n")
    assert RunDirectory(tmp_path).read_log() == [{"epoch": 0, "steps": 2**59, "loss": float("inf")}]


@pytest.mark.parametrize("count", ['"x"', "[1]", "1.5", "-1", "true", "NaN"])
def test_a_report_of_a_distillation_has_numbers(tmp_path, count):
    text = f'{{"pairs": 3, "written": {count}, "unusable": 1, "improbable": 1}}'
    _put(tmp_path / "report.json", text)
    with pytest.raises(UserError, match=r"report.json' is damaged"):
        read_report(tmp_path)
    _put(tmp_path / "report.json", text.replace(count, "2"))
    assert "2 pairs to learn from, of 3" in str(read_report(tmp_path))


def test_figures_of_a_distillation_are_figures():
    numbers = {name: 1.5 for name in ("bleu", "chrf", "sentences_per_second", "megabytes")}
    whole = {**numbers, "weights": 7, "signatures": ["a", "b"]}
    assert _figures(whole).signatures == ("a", "b")
    for wrong in (
        *({"bleu": "x"}, {"chrf": float("nan")}, {"weights": 1.5}, {"megabytes": True}),
        *({"signatures": ["a"]}, {"signatures": 5}, {"signatures": [5, "a"]}),
    ):
        with pytest.raises((ValueError, TypeError)):
            _figures({**whole, **wrong})


def test_a_report_and_its_page_are_not_one_file(tmp_path, capsys):
    RunDirectory(tmp_path / "run").write_config(RunConfig())
    page = str(tmp_path / "page")
    assert main(["inspect", str(tmp_path / "run"), "--html", page, "--json", page]) == 2
    assert "one would replace the other. Expected two names" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_further_references_are_a_file(tmp_path, kind):
    make = {"folder": os.mkdir, "pipe": os.mkfifo, "link": lambda path: os.symlink("no", path)}
    make[kind](tmp_path / "references")
    with pytest.raises(UserError, match=r"references' is no file. Expected a text file"):
        _further_references(RunConfig(), "test", str(tmp_path / "references"), ["a"])


def test_a_place_that_no_path_can_reach_is_a_sentence(tmp_path, capsys):
    """Already the parser looks at the run directory."""
    assert main(["train", str(tmp_path / ("n" * 300)), "--data", "corpus"]) == 2
    assert "A name is too long for the disk" in capsys.readouterr().err


def test_a_refused_evaluation_leaves_no_folder(tmp_path):
    run = RunDirectory(tmp_path)
    pairs = _put(tmp_path / "pairs.tsv", "a\tb\n")
    settings = {"data": str(pairs), "source": "en", "target": "de"}
    run.write_config(RunConfig().replace(settings))
    _put(run.best_weights)
    with pytest.raises(UserError, match="There are no tokenizers"):
        evaluate_in_portions(run, run.read_config(), str(pairs), say=print)
    assert not run.evaluation.exists()
