"""`keras-addnorm data`: the report, the clean copy, and what is refused."""

import io
import sys

import pytest

from keras_addnorm import cli
from keras_addnorm.data import load_translation
from keras_addnorm.data.demo import SPLITS, demo_splits
from keras_addnorm.data.pair_faults import FAULTS

WORDS = ["red", "green", "small", "old", "big", "new", "long"]
PAIRS = [
    (f"A {a} house and a {b} tree", f"Una casa {a} y un árbol {b}") for a in WORDS for b in WORDS
]
FAULTY = [("OK", "OK"), PAIRS[0], ("Да", "Sí"), ("", "vacío")]


@pytest.fixture
def spa(tmp_path):
    path = tmp_path / "spa.txt"
    path.write_text("".join(f"{a}\t{b}\ttatoeba.org\n" for a, b in [*PAIRS, *FAULTY]))
    return path


def run(capsys, *arguments):
    status = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


LANGUAGES = ("--source", "en", "--target", "es")


def test_a_report_of_a_file(capsys, spa):
    status, out, _ = run(capsys, "data", spa, *LANGUAGES)
    assert status == 0
    assert "train: 52 of 53 pairs kept; left out: 1 empty (lines spa.txt:53)" in out
    assert "en    26 characters and 6.8 words a text" in out
    assert "es has 1.04 characters to one of en" in out
    for name, place in (("copies", 50), ("duplicates", 51), ("wrong_script", 52)):
        assert f"        1   1.9%  {name:<15} {FAULTS[name].says}\n" in out
        assert f"first: spa.txt:{place}  " in out
    assert "Latin 98.1%, Cyrillic 1.9%" in out
    assert len(out.splitlines()) < 24


def test_a_clean_copy_is_a_corpus(capsys, spa, tmp_path):
    test = tmp_path / "newstest.tsv"
    test.write_text("A red house and a red tree\tx\n\nWords that nobody has\tPalabras\n")
    out_dir = tmp_path / "clean"
    status, out, _ = run(capsys, "data", spa, "--test", test, *LANGUAGES, "--out", out_dir)
    assert status == 0
    assert "near_held_out" in out
    assert sorted(path.name for path in out_dir.iterdir()) == [
        *("newstest.en", "newstest.es", "train.en", "train.es"),
    ]
    # Every line of the test set, also the empty one.
    assert (out_dir / "newstest.es").read_text() == "x\n\nPalabras\n"
    kept = list(zip(*[(out_dir / f"train.{l}").read_text().splitlines() for l in ("en", "es")]))  # noqa: B905, E741
    # One word away from the test sentence: 1 + 6 + 6 of 49.
    assert len(kept) == 49 - 13
    assert f"train: {len(kept)} of 52 pairs" in out

    status, out, _ = run(capsys, "data", out_dir, *LANGUAGES)
    train, test_report = out.split("newstest: ")
    assert "train: all 36 pairs kept" in train and "no pair has a fault" in train
    assert "2 of 3 pairs kept" in test_report


def test_no_held_out_set_is_lost_in_a_clean_copy(capsys, tmp_path):
    """Two sets of one name are two sets, and each is read back as what it was."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("train", "newsdev2016", "test"):
        for language in ("en", "es"):
            (corpus / f"{name}.{language}").write_text(f"{name} in {language}\n")
    for name in ("test", "news-test", "train"):
        (tmp_path / f"{name}.tsv").write_text(f"another {name}\totro {name}\n")
    tests = [tmp_path / f"{name}.tsv" for name in ("test", "news-test", "train")]
    out_dir = tmp_path / "clean"
    status, _, _ = run(capsys, "data", corpus, "--test", *tests, *LANGUAGES, "--out", out_dir)
    assert status == 0
    assert {path.stem: path.read_text() for path in out_dir.glob("*.en")} == {
        "train": "train in en\n",
        "newsdev2016": "newsdev2016 in en\n",
        "test": "test in en\n",
        "test_2": "another test\n",
        "test_news_test": "another news-test\n",
        "test_train": "another train\n",
    }
    _, out, _ = run(capsys, "data", out_dir, *LANGUAGES)
    assert out.count("all 1 pairs kept") == 6


def test_faults_that_stay(capsys, spa, tmp_path):
    run(capsys, "data", spa, *LANGUAGES, "--out", tmp_path / "c", "--keep", *FAULTS)
    assert len((tmp_path / "c" / "train.en").read_text().splitlines()) == 52


def test_the_standard_input_and_a_name(capsys, spa, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(spa.read_bytes())))
    status, out, _ = run(capsys, "data", "-", *LANGUAGES)
    assert (status, out.count("first: stdin:")) == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep", "copys"], "Unknown fault 'copys'. Did you mean 'copies'"),
        (["--out", "."], "'.' exists. Expected the name of a new folder"),
        (["--data-format", "cvs"], "Unknown --data-format 'cvs'. Did you mean 'csv'"),
        (["--test", "nowhere.tsv"], "There is no file nowhere.tsv"),
        (["--max-chars", "0"], "--max-chars is a number of characters, 1 or more. Received: 0"),
        (["--target", "spanish"], "Received: --target 'spanish'. Did you mean 'es'?"),
        (["--target", "../x"], "A language is named by its code"),
    ],
)
def test_what_is_refused_before_anything_is_read(capsys, spa, arguments, message):
    status, out, err = run(capsys, "data", spa, *LANGUAGES, *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_a_file_that_names_no_languages_is_refused_in_words_of_a_command(capsys, spa):
    status, _, err = run(capsys, "data", spa, "--source", "en")
    assert status == 2
    assert (
        "Received: --source 'en', no --target. Say both, for example --source 'en', --targ" in err
    )


def test_columns_by_position_are_shown_and_a_swap_is_said(capsys, tmp_path):
    path = tmp_path / "two.tsv"
    path.write_text("I have it and you have not.\tYo no lo tengo y ella no está.\n" * 7)
    status, out, _ = run(capsys, "data", path, "--source", "es", "--target", "en")
    assert status == 0
    assert out.splitlines()[:3] == [
        f"{path} does not say which column is which: column 1 is taken for 'es', column 2 for "
        "'en'.",
        "  es: I have it and you have not. / en: Yo no lo tengo y ella no está.",
        "two.tsv: the side taken for 'es' looks like 'en', and the other way round: swap source "
        "and target?",
    ]


@pytest.mark.parametrize(
    ("language", "said"), [("spanish", "'spanish'. Did you mean 'es'?"), ("../x", "'../x'.")]
)
def test_a_new_run_has_codes_of_languages(capsys, spa, tmp_path, language, said):
    options = ("--data", spa, "--source", "en", "--target", language, "--run-dir", tmp_path / "r")
    status, _, err = run(capsys, "train", *options)
    assert (status, f"Received: --target {said}" in err) == (2, True)
    assert not (tmp_path / "r").exists()


def test_a_copy_without_a_pair_is_not_written(capsys, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("same\tsame\n")
    status, _, err = run(capsys, "data", path, *LANGUAGES, "--out", tmp_path / "clean")
    assert (status, "No training pair is left of 1" in err) == (2, True)
    assert not (tmp_path / "clean").exists()


@pytest.mark.slow
def test_m1_one_command_trains_on_a_single_file_and_others_go_on(capsys, spa, tmp_path):
    small = ("--hidden-dim", 8, "--num-heads", 2, "--vocabulary-size", 60, "--no-jit-compile")
    small += ("--num-encoder-layers", 1, "--num-decoder-layers", 1)
    run_dir = tmp_path / "run"
    status, out, _ = run(
        capsys, "train", "--data", spa, *LANGUAGES, "--run-dir", run_dir, "--epochs", 1,
        "--preset", "tiny", *small,
    )  # fmt: skip
    assert status == 0
    assert f"There is no validation set in '{spa}': 5 of 52 training pairs are held out" in out
    assert "Warning: train: 52 of 53 pairs kept; left out: 1 empty (lines 53)." in out
    assert "pairs: 1 empty, 1 duplicates; perhaps " in out
    assert "; perhaps 1 wrong script (a side is in an unusual script)." in out
    assert "Warm-up: 1 update, as there are few and no --warmup-steps is given." in out
    assert "Loss: at best 0." in out
    status, out, _ = run(capsys, "evaluate", "--run-dir", run_dir, "--split", "validation")
    assert (status, "over all 5 pairs of 'validation'" in out) == (0, True)
    test = tmp_path / "test.tsv"
    test.write_text("A red house\tUna casa roja\n\nA tree\tUn árbol\n")
    status, out, _ = run(capsys, "evaluate", "--run-dir", run_dir, "--split", test)
    assert (status, "over all 3 pairs" in out, "1 of them with an empty" in out) == (0, True, True)
    assert len((run_dir / "translations.txt").read_text().split("\n")) == 3 + 1


def test_an_example_is_a_corpus_as_ones_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"train_size": 7, "validation_size": 3, "test_size": 2}
    monkeypatch.setattr("keras_addnorm.runs.example_data._SIZES", sizes)
    arguments = ["data", "--example", "corpus", "--source", "es", "--target", "en"]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "keras-addnorm train runs/mine --data corpus --source es --target en" in said
    found = load_translation("corpus", source="es", target="en", split="train")
    assert len(list(found.as_numpy_iterator())) == 7
    spanish = (tmp_path / "corpus" / "train.es").read_text("utf-8").splitlines()
    assert [pair.target for pair in demo_splits("es", **sizes)["train"]] == spanish
    assert cli.main(arguments) == 2
    assert "'corpus' exists. Expected the name of a new folder" in capsys.readouterr().err


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_an_example_has_nothing_to_warn_of(capsys, tmp_path, language):
    folder, languages = tmp_path / "corpus", ["--source", "en", "--target", language]
    assert cli.main(["data", "--example", str(folder), *languages]) == 0
    assert [len((folder / f"{split}.en").read_text("utf-8").splitlines()) for split in SPLITS] == [
        5000, 200, 200
    ]  # fmt: skip
    capsys.readouterr()
    assert cli.main(["data", str(folder), *languages]) == 0
    assert capsys.readouterr().out.count("no pair has a fault") == len(SPLITS)


@pytest.mark.parametrize("languages", [("en", "it"), ("de", "fr"), ("en", "en")])
def test_an_example_has_the_languages_of_the_set(capsys, tmp_path, languages):
    source, target = languages
    flags = ["--source", source, "--target", target]
    assert cli.main(["data", "--example", str(tmp_path / "corpus"), *flags]) == 2
    assert "is in English and one of de, fr, es. Received" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["spa.txt", "--example", "corpus"]])
def test_a_file_or_an_example(capsys, arguments):
    with pytest.raises(SystemExit):
        cli.main(["data", *arguments])
    assert "expected an INPUT to look through, or --example DIR" in capsys.readouterr().err
