"""A whole run on a small folder of text: trained, stopped, gone on with, evaluated, exported."""

import dataclasses
import json
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from weight_files import tensors

from keras_addnorm.data.readers.input_file import LONGEST_TEXT
from keras_addnorm.decoding import Lexicon
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs.compare import compare_in_portions, comparison_table
from keras_addnorm.runs.evaluate import Texts, evaluate, exact_match, summary, table
from keras_addnorm.runs.export import export
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.serving import load_translator
from keras_addnorm.training import compare_translations

WORDS = {"red": "rot", "green": "grün", "blue": "blau", "big": "groß", "small": "klein"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    pairs = [
        (f"{a} {b} {c}", f"{WORDS[c]} {WORDS[b]} {WORDS[a]}")
        for a in WORDS
        for b in WORDS
        for c in WORDS
    ]
    for split, some in {"train": pairs[::2], "val": pairs[1::4], "test": pairs[3::4]}.items():
        for index, language in enumerate(("en", "de")):
            text = "".join(f"{pair[index]}\n" for pair in some)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


def _config(corpus, **training):
    return RunConfig.from_dict(
        {
            "data": str(corpus),
            "source": "en",
            "target": "de",
            "tokenizer": {"vocabulary_size": 43},
            "model": {
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "hidden_dim": 10,
                "intermediate_dim": 14,
                "num_heads": 2,
                "dropout": 0.3,
                "max_length": 13,
                "scheme": "pre_ln",
            },
            "training": {
                "epochs": 2,
                "tokens_per_batch": 13 * 16,
                "bucket_lengths": [13],
                "warmup_steps": 3,
                "average_last": 2,
                "jit_compile": False,
                **training,
            },
            "evaluation": {"num_beams": 2, "samples": 2},
        }
    )


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    directory = RunDirectory(tmp_path_factory.mktemp("runs") / "new" / "run")
    return train(_config(corpus, score_every=2), directory, say=lambda line: None, verbose=0)


def test_the_directory_holds_what_it_says(run):
    names = {path.name for path in run.directory.path.iterdir()}
    assert names == {
        "averaged.weights.h5",
        "best.weights.h5",
        "checkpoints",
        "config.toml",
        "curves.png",
        "log.csv",
        "manifest.json",
        "model.json",
        "tensorboard",
        "token_ids",
        "tokenizer",
    }
    assert [path.name for path in sorted(run.directory.checkpoints.iterdir())] == [
        "epoch-0001.weights.h5",
        "epoch-0002.weights.h5",
    ]
    assert not any("optimizer" in name for name in tensors(run.directory.best_weights))
    rows = run.directory.read_log()
    assert [row["epoch"] for row in rows] == [0, 1]
    for row in rows:
        assert {"loss", "val_loss", "val_bleu", "seconds", "tokens_per_second"} <= row.keys()
        assert row["peak_memory_mib"] > 100


def test_the_model_has_the_averaged_weights(run):
    files = sorted(run.directory.checkpoints.iterdir())
    first, second = (tensors(path) for path in files)
    averaged = tensors(run.directory.averaged_weights)
    floating = [name for name in averaged if averaged[name].dtype == np.float32]
    assert len(floating) > 20
    for name in floating:
        np.testing.assert_allclose(averaged[name], (first[name] + second[name]) / 2, atol=1e-7)
    again = load_run(run.directory)
    for weight, other in zip(run.model.get_weights(), again.model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)


def test_a_joint_vocabulary_has_one_table(run):
    assert run.tokenizers.is_joint
    assert run.model.config.share_embeddings
    assert run.model.config.source_vocabulary_size == 43


@pytest.mark.release
def test_stopping_changes_nothing(corpus, run, tmp_path):
    """One epoch, then a second command for the second: the weights are those of one go."""
    directory = RunDirectory(tmp_path / "stopped")
    train(_config(corpus, epochs=1), directory, say=lambda line: None, verbose=0)
    (directory.path / "averaged.weights.h5").unlink(missing_ok=True)
    # A crash can leave a row of an epoch that has no checkpoint: it must not stay.
    rows = directory.read_log()
    directory.write_log([*rows, {**rows[0], "epoch": 1, "val_perplexity": 0.0}])
    said = []
    train(_config(corpus, epochs=2), directory, say=said.append, verbose=0)
    assert said[0] == "Going on after epoch 1 of 2."
    one_go = tensors(run.directory.checkpoints / "epoch-0002.weights.h5")
    resumed = tensors(directory.checkpoints / "epoch-0002.weights.h5")
    assert one_go.keys() == resumed.keys()
    assert any("optimizer" in name for name in resumed)
    for name in one_go:
        np.testing.assert_array_equal(one_go[name], resumed[name], err_msg=name)
    losses = [[row["val_loss"] for row in d.read_log()] for d in (run.directory, directory)]
    assert losses[0] == losses[1]
    assert directory.read_config().training.epochs == 2


def test_a_finished_run_is_not_trained_again(corpus, run):
    before = run.directory.log.read_bytes()
    train(_config(corpus, score_every=2), run.directory, say=lambda line: None, verbose=0)
    assert run.directory.log.read_bytes() == before


@pytest.mark.slow
def test_a_run_that_was_killed_before_averaging_is_averaged(corpus, run, tmp_path):
    directory = RunDirectory(shutil.copytree(run.directory.path, tmp_path / "run"))
    expected = tensors(directory.averaged_weights)
    directory.averaged_weights.unlink()
    train(_config(corpus, score_every=2), directory, say=lambda line: None, verbose=0)
    averaged = tensors(directory.averaged_weights)
    assert averaged.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(averaged[name], value, err_msg=name)
    train(_config(corpus, average_last=1), directory, say=lambda line: None, verbose=0)
    assert directory.weights() == directory.best_weights


@pytest.mark.slow
def test_another_rate_and_another_order_inside_of_an_epoch(corpus, tmp_path, monkeypatch):
    directory = RunDirectory(tmp_path / "run")
    settings = {"schedule": "constant", "checkpoint_batches": 2, "average_last": 1}
    train(_config(corpus, epochs=1, **settings), directory, say=lambda line: None, verbose=0)
    (directory.checkpoints / "epoch-0001.weights.h5").unlink()
    seen = {}

    def fit(model, dataset, callbacks, **_):
        seen.update(rate=float(model.optimizer.learning_rate), state=callbacks[0]._state)
        seen.update(steps=int(model.optimizer.iterations))
        raise Seen

    monkeypatch.setattr(Seq2SeqTransformer, "fit", fit)
    for seed, rate in ((42, 0.5), (7, 0.25)):
        said = []
        config = _config(corpus, seed=seed, peak_learning_rate=rate, **settings)
        with pytest.raises(Seen):
            train(config, directory, say=said.append, verbose=0)
        assert seen["rate"] == rate
        assert seen["steps"] == 2
        assert (seen["state"].epoch, seen["state"].batch) == (0, 2 if seed == 42 else 0)
        assert any("starts anew" in line for line in said) == (seed == 7)


class Seen(Exception):  # noqa: N818 - it says that all is seen, and ends the run.
    pass


@pytest.mark.slow
def test_numbers_that_explode_end_a_run_and_leave_its_last_good_checkpoint(corpus, tmp_path):
    directory = RunDirectory(tmp_path / "run")
    exploding = _config(
        corpus, schedule="cosine", peak_learning_rate=1e38, warmup_steps=2, checkpoint_batches=1
    )
    with pytest.raises(UserError, match="The training ends") as caught:
        train(exploding, directory, say=lambda line: None, verbose=0)
    left = sorted(path.name for path in directory.checkpoints.iterdir())
    assert left
    assert f"the last good checkpoint: {directory.checkpoints / left[-1]}" in str(caught.value)
    for name, value in tensors(directory.checkpoints / left[-1]).items():
        assert np.isfinite(value).all(), name
    (batch,) = directory.path.glob("nonfinite-step-*.npz")
    with np.load(batch) as saved:
        assert saved["source"].shape == saved["target"].shape == saved["labels"].shape
        assert saved["labels"].any()


@pytest.mark.parametrize(
    ("change", "key"), [({"model.hidden_dim": 12}, "model"), ({"source": "de", "target": "en"}, "")]
)
def test_another_model_needs_another_directory(corpus, run, change, key):
    config = _config(corpus).replace(change)
    with pytest.raises(UserError, match=f"holds a run with another '{key}"):
        train(config, run.directory, verbose=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.hiden_dim": 12}, "Unknown setting 'model.hiden_dim'. Did you mean 'model.hidden"),
        ({"model.preset": "tinny"}, "Unknown model.preset 'tinny'. Did you mean 'tiny'"),
        ({"model.num_heads": 3}, "10"),
        ({"model.scheme": "post_norm"}, "post_norm"),
        (
            {"tokenizer.vocabulary_size": 9999, "training.strict": True},
            "vocabulary_size=9999 is too large",
        ),
        ({"training.bucket_lengths": [2]}, "No sentence pair is left"),
        ({"target": "fr"}, "has no language 'fr'"),
        ({"data": "./nowhere"}, "nowhere"),
    ],
)
def test_what_the_user_can_mend_is_a_user_error(corpus, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        train(_config(corpus).replace(change), RunDirectory(tmp_path / "run"), verbose=0)


def test_evaluation_scores_what_it_writes(run):
    found = evaluate(run, "test")
    assert len(found.sources) == 31
    assert found.sources[0] == "red red big"
    assert run.directory.translations.read_text(encoding="utf-8").splitlines() == list(
        found.translations
    )
    assert found.exact_match == exact_match(found.translations, found.references)
    scores = json.loads(run.directory.scores.read_text(encoding="utf-8"))
    assert scores["test"]["cased"]["bleu"] == found.cased.bleu
    assert "case:lc" in scores["test"]["lowercase"]["bleu_signature"]
    assert (scores["test"]["num_beams"], scores["test"]["weights"]) == (2, "averaged.weights.h5")

    evaluate(run, "validation[:3]")
    assert run.directory.read_scores().keys() == {"test", "validation[:3]"}
    assert "nrefs:1|case:mixed" in summary(found)
    assert table(found, 2).count("source") == 2


def test_a_tokenizer_that_is_missing_is_named_before_the_translation(run, monkeypatch):
    config = run.config.replace({"evaluation.bleu_tokenizer": "ja-mecab"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"'ja-mecab' needs a package that is not installed"):
        Texts.read(run.directory, config, "test", ())


def test_evaluation_with_several_references(run, corpus, tmp_path):
    """Further ones from a text file with a line for each pair, and from a column of a table."""
    found = evaluate(run, "validation[:3]")
    other = tmp_path / "other.txt"
    other.write_text("".join(f"{text}\n" for text in found.translations))
    more = evaluate(run, "validation[:3]", references=[str(other)])
    assert more.references == found.references and more.more_references == [
        list(found.translations)
    ]
    assert more.exact_match == 100 and more.cased.bleu_signature.startswith("nrefs:2|")
    table = tmp_path / "dev.tsv"
    rows = zip(found.sources, found.references, found.translations, strict=True)
    config = run.config
    head = f"{config.source}\t{config.target}\tsecond\n"
    table.write_text(head + "".join("\t".join(row) + "\n" for row in rows))
    by_column = evaluate(run, str(table), references=["second"])
    assert by_column.cased == more.cased and by_column.more_references == more.more_references
    for name, message in (
        (str(corpus / "train.xx"), "columns|references"),
        (config.target, "has already"),
    ):
        with pytest.raises(UserError, match=message):
            evaluate(run, str(table), references=[name])
    other.write_text("one line\n")
    with pytest.raises(UserError, match="has 1 references for the 3 pairs"):
        evaluate(run, "validation[:3]", references=[str(other)])
    for content, message in (
        (b"one\n\xff\nthree\n", r"^Line 2 of '.*other.txt' is no text in UTF-8: .* 0xff"),
        (b"one\n" + b"x" * (LONGEST_TEXT + 1), r"^Line 2 of '.*other.txt' has more than 4,194,304"),
        (b"one\n" + b"x" * 100_001 + b"\nc\n", r"^Reference 2 of '.*other.txt' has 100,001 char"),
    ):
        other.write_bytes(content)
        with pytest.raises(UserError, match=message):
            evaluate(run, "validation[:3]", references=[str(other)])


def test_runs_are_compared_on_one_split(run, corpus, tmp_path):
    """Each is evaluated as alone; the baseline's scores have what sacreBLEU's tests say."""
    other = RunDirectory(tmp_path / "other")
    shutil.copytree(run.directory.path, other.path)
    shutil.copy(run.directory.checkpoints / "epoch-0001.weights.h5", other.averaged_weights)
    other.manifest.path.unlink()  # Or the run would be damaged.
    runs = [(run.directory, run.config), (other, run.config)]
    said = []
    evaluations, found = compare_in_portions(runs, "test", say=said.append)
    alone = evaluate(run, "test"), evaluate(load_run(other), "test")
    assert [one.translations for one in evaluations] == [list(one.translations) for one in alone]
    assert alone[0].translations != alone[1].translations
    systems = dict(zip(found.systems, (one.translations for one in alone), strict=True))
    assert found == compare_translations(systems, alone[0].references)
    assert [one.score for one in found.bleu] == [one.cased.bleu for one in evaluations]
    assert comparison_table(found).count(f"\n{other.path} ") == 1
    assert not run.directory.evaluation.exists() and not other.evaluation.exists()

    compare_in_portions(runs, "test", say=said.append)
    scores = run.directory.read_scores()["test"]
    assert scores["compared"] == found.to_dict()
    assert "compared" not in other.read_scores()["test"]

    shutil.copytree(corpus, changed := tmp_path / "changed")
    lines = (changed / "test.de").read_text(encoding="utf-8").splitlines()
    elsewhere = run.config.replace({"data": str(changed)})
    for text, setting, message in (
        ("".join(f"{line}\n" for line in [*lines[:4], "blau", *lines[5:]]), {}, "of pair 5 is the"),
        (None, {"evaluation.bleu_tokenizer": "char"}, "`evaluation.bleu_tokenizer` in all"),
    ):
        if text:
            (changed / "test.de").write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            compare_in_portions(
                [runs[0], (other, elsewhere.replace(setting))], "test", say=said.append
            )
    with pytest.raises(UserError, match="compared with itself"):
        compare_in_portions([runs[0], runs[0]], "test", say=said.append)


def test_order_and_number_of_texts_do_not_matter(run, capsys):
    """Many texts of unlike length, more than fit into one go, come back each in its place."""
    some = ["big", "red red green", "", "blue small", "green"]
    few = run.config.replace({"evaluation.batch_size": 2, "evaluation.num_beams": 1})
    each = dataclasses.replace(run, config=few)
    expected = dict(zip(some, translate_texts(each, some), strict=True))
    many = [some[index] for index in (3, 1, 0, 2, 4, 4, 1, 3, 3, 0, 1)]
    found = translate_texts(each, many, verbose=1)
    assert [text for text, _ in found] == [expected[text][0] for text in many]
    np.testing.assert_allclose(
        [score for _, score in found], [expected[text][1] for text in many], atol=1e-5
    )
    assert "11/11" in capsys.readouterr().out


def _with_shortlist(run, folder, size, **changes):
    """The same run in a folder of its own, to which a lexicon is added when it is needed."""
    shutil.copytree(run.directory.path, folder, dirs_exist_ok=True)
    config = run.config.replace({"evaluation.shortlist": size, **changes})
    return dataclasses.replace(run, directory=RunDirectory(folder), config=config)


@pytest.mark.slow
def test_a_shortlist_comes_from_the_training_pairs_and_stays(run, tmp_path):
    size = 12
    listed = _with_shortlist(run, tmp_path, size)
    lexicon = listed.shortlist.lexicon
    sides = run.tokenizers.source, run.tokenizers.target
    for word, meaning in WORDS.items():
        # Each piece of a word is translated with one of its meaning's pieces.
        source, target = sides[0].encode(word), sides[1].encode(meaning)
        assert set(lexicon.candidates[source, 0]) <= set(target)
    found = evaluate(listed, "test")
    assert listed.directory.read_scores()["test"]["shortlist"] == size
    alone = [translate_texts(listed, [source])[0][0] for source in found.sources[:3]]
    for source, text in zip(found.sources, alone, strict=False):
        ids = np.array([[*sides[0].encode(source), 2]])
        allowed = set(np.asarray(listed.shortlist.tokens(ids, SpecialIds(0, 1, 2))).tolist())
        assert len(allowed) == size
        assert set(sides[1].encode(text)) <= allowed

    # The training pairs are read once: later the folder with them may be gone.
    elsewhere = _with_shortlist(run, tmp_path, size, data="./nowhere")
    np.testing.assert_array_equal(elsewhere.shortlist.lexicon.candidates, lexicon.candidates)
    assert (
        translate_texts(elsewhere, found.sources[:3])[0][0]
        == translate_texts(listed, found.sources[:3])[0][0]
    )


@pytest.mark.release
def test_the_export_has_the_runs_shortlist(run, tmp_path):
    listed = _with_shortlist(run, tmp_path / "run", 20)
    translator = load_translator(export(listed, tmp_path / "model"))
    assert translator.card["decoding"]["shortlist"] == 20
    texts = ["red green blue", "", "small big"]
    ours, theirs = translate_texts(listed, texts), translator(texts)
    assert [text for text, _ in ours] == [text for text, _ in theirs]
    np.testing.assert_allclose([s for _, s in ours], [s for _, s in theirs], atol=1e-4)


@pytest.mark.parametrize(
    ("size", "changes", "message"),
    [
        (44, {}, "Expected a size from 4 to 43. Received: 44"),
        (20, {"data": "./nowhere"}, "nowhere"),
    ],
)
def test_a_shortlist_that_cannot_be_made(run, tmp_path, size, changes, message):
    listed = _with_shortlist(run, tmp_path, size, **changes)
    with pytest.raises(UserError, match=message):
        translate_texts(listed, ["red"])


def test_another_models_lexicon_is_refused(run, tmp_path):
    listed = _with_shortlist(run, tmp_path, 20)
    pairs = [([3, 2], [4, 2])]
    Lexicon.estimate(pairs, source_vocabulary_size=50, target_vocabulary_size=43).save(
        listed.directory.lexicon
    )
    with pytest.raises(UserError, match="does not belong to the model"):
        translate_texts(listed, ["red"])


def test_evaluation_of_a_split_that_is_not_there(run):
    with pytest.raises(UserError, match="has no split 'tset'"):
        evaluate(run, "tset")


@pytest.mark.slow
def test_the_export_translates_as_the_run_does(run, tmp_path):
    version = export(run, tmp_path / "model", licence="CC-BY-4.0")
    assert version == tmp_path / "model" / "1"
    texts = ["red green blue", "", "small big"]
    ours = translate_texts(run, texts)
    translator = load_translator(tmp_path / "model")
    theirs = translator(texts)
    assert [text for text, _ in ours] == [text for text, _ in theirs]
    np.testing.assert_allclose([s for _, s in ours], [s for _, s in theirs], atol=1e-4)
    assert ours[1] == ("", 0.0)
    assert translator.card["training_data"] == {
        "name": Path(run.config.data).name,
        "source": run.config.source,
        "target": run.config.target,
    }
    assert translator.card["scores"] == run.directory.read_scores()
    assert translator.card["licence"] == "CC-BY-4.0"
    with pytest.raises(UserError, match="exists"):
        export(run, tmp_path / "model", 1)


@pytest.mark.release
def test_the_benchmark_of_shortlists_compares_translations(run, tmp_path, capsys, monkeypatch):
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    shutil.copytree(run.directory.path, tmp_path / "run")
    compare = runpy.run_path(str(folder / "shortlist.py"))["print_translations"]
    compare(tmp_path / "run", "test", sizes=[12, 43], batch_sizes=[8], rounds=1)
    said = capsys.readouterr().out
    rows = re.findall(r"\| 8 \| (\w+) \| ([\d.]+) \| ([\d.]+%) \| [\d.]+ \| [\d.]+ × \|", said)
    assert [name for name, *_ in rows] == ["all", "12", "43"]
    assert rows[2][1:] == rows[0][1:] == (rows[0][1], "100.0%")  # A list of all tokens.


@pytest.mark.release
def test_the_benchmark_of_storage_compares_three_exports(run, capsys):
    script = Path(__file__).parents[2] / "benchmarks" / "storage.py"
    runpy.run_path(str(script))["main"](run.directory.path, "test")
    said = capsys.readouterr().out
    rows = re.findall(r"\| (\w+) \| [\d,]+ \| \d+\.\d+ \| [+-]\d+\.\d+ \| [\d.]+% \|", said)
    assert rows == ["float32", "float16", "int8"]
    assert "31 sentences of 'test'" in said


@pytest.mark.release
def test_the_benchmark_of_quantisation_compares_each_way(run, capsys, monkeypatch):
    script = Path(__file__).parents[2] / "benchmarks" / "quantized.py"
    main = runpy.run_path(str(script))["main"]
    main(run.directory.path, "test", sentences=7, updates=5)
    said = capsys.readouterr().out
    rows = re.findall(r"\| (\w+) \| \d+\.\d\d \| (\d+) \| \d+\.\d{5} \|", said)
    assert [name for name, _ in rows] == ["float32", "int8", "int4", "GPTQ", "AWQ"]
    assert "7 sentences of 'test'" in said
    losses = re.findall(r"\| (\d) \| (\d+\.\d{3}) \| (\d+\.\d{3}) \|", said)
    assert [updates for updates, *_ in losses] == ["1", "2", "3", "4", "5"]
    assert all(abs(float(one) - float(other)) < 0.1 for _, one, other in losses)


@pytest.mark.release
def test_the_benchmark_of_students_compares_them_with_their_teacher(
    run, tmp_path, capsys, monkeypatch
):
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    student = RunDirectory(tmp_path / "student")
    shutil.copytree(run.directory.path, student.path)
    # Words of these two languages are split otherwise than their usual way.
    student.write_config(run.config.replace({"evaluation.bleu_tokenizer": "char"}))
    given = [run.directory.path, student.path, "--shortlist", "12", "--sentences", "5"]
    given += ["--rounds", "1", "--no-xla", "--json", tmp_path / "figures.json"]
    monkeypatch.setattr("sys.argv", ["students.py", *map(str, given)])
    runpy.run_path(str(folder / "students.py"))["main"]()
    said = capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    names = [f"{run.directory.path}, {search}" for search in ("beam 5", "greedy")]
    searches = ("greedy", "greedy, shortlist 12", "beam 2")
    names += [f"{student.path}, {search}" for search in searches]
    assert list(figures) == names
    beam, greedy, same, short, _ = figures.values()
    whole = ("bleu", "chrf", "megabytes")
    assert [greedy[key] for key in whole] == [same[key] for key in whole]
    assert beam["ratio"] == 1.0 and short["sentences_per_second"] > 0
    weights = sum(np.prod(weight.shape) for weight in run.model.weights)
    assert beam["megabytes"] == pytest.approx(4 * weights / 1e6)
    assert f"| {student.path} | greedy | {same['bleu']:.2f} | {same['chrf']:.2f} |" in said
    assert "|tok:char|" in said


@pytest.mark.release
def test_the_benchmark_of_stopping_rules_says_which_lose(run, tmp_path, capsys, monkeypatch):
    """It compares the scores of the compiled searches with those of its own, in plain NumPy."""
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    given = ["--run-dir", run.directory.path, "--split", "test", "--sentences", "8"]
    given += ["--num-beams", "2", "--max-length", "9", "--penalties", "0.6"]
    given += ["--rounds", "1", "--json", tmp_path / "figures.json"]
    monkeypatch.setattr("sys.argv", ["beam_stopping.py", *map(str, given)])
    runpy.run_path(str(folder / "beam_stopping.py"))["main"]()
    assert "8 sentences of 'test', room for 9 tokens" in capsys.readouterr().out
    rows = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [row["rule"] for row in rows] == [True, "current_length", False]
    assert rows[-1]["worse than the best seen"] == 0
    assert rows[-1]["worse than greedy"] == rows[-1]["of these dropped"]
    for name in ("steps, N = 1", "steps, N = K"):
        assert rows[0][name] <= rows[1][name] <= rows[2][name] <= 9
    assert rows[0]["time, N = 1"] == 1.0 and rows[2]["time, N = 2"] > 0


@pytest.mark.release
def test_the_benchmark_of_translation_compares_with_ctranslate2(run, tmp_path, capsys, monkeypatch):
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    given = ["--run-dir", run.directory.path, "--split", "test", "--sentences", "8"]
    given += ["--batch-sizes", "4", "--num-beams", "2", "--rounds", "1"]
    given += ["--json", tmp_path / "figures.json"]
    monkeypatch.setattr("sys.argv", ["translation.py", *map(str, given)])
    runpy.run_path(str(folder / "translation.py"))["main"]()
    said = capsys.readouterr().out
    kinds = ["keras-addnorm, XLA", "keras-addnorm, no XLA"]
    equal = re.findall(r"  (.+): ([\d.]+)% of the translations are CTranslate2's", said)
    assert equal == [(kind, "100.0") for kind in kinds]
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert list(figures["4 × beam_2"]) == [*kinds, "CTranslate2 float32"]
    assert re.search(r"\| 4 × beam_2 (\| [\d.,]+ ){5}\|", said)
    assert f"8 sentences of 'test', room for {run.model.config.max_length} tokens" in said
