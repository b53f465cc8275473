"""Data diversification: the three parts of the corpus are what they are called."""

import pytest

from keras_addnorm.data import load_translation
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.runs import RunConfig, RunDirectory


@pytest.fixture
def example(load_example):
    with load_example("diversify_data") as module:
        yield module


def upper(texts):
    return [text.upper() for text in texts]


def lower(texts):
    return [text.lower() for text in texts]


def run_of(path, data, source, target):
    directory = RunDirectory(path)
    config = {"data": str(data), "source": source, "target": target}
    directory.write_config(RunConfig.from_dict(config))
    return directory


def test_a_side_of_each_pair_is_always_a_human_s(example):
    pairs = [("A", "b"), ("C d", "E f")]
    assert example.diversified(pairs, upper, lower) == [
        ("A", "b"),
        ("C d", "E f"),
        ("A", "A"),
        ("C d", "C D"),
        ("b", "b"),
        ("e f", "E f"),
    ]


def test_a_pair_comes_once_and_an_empty_translation_never(example):
    def back(texts):
        return ["a" if text == "b" else "" for text in texts]

    assert example.diversified([("a", "b"), ("c", "d")], lower, back) == [
        ("a", "b"),
        ("c", "d"),
        ("a", "a"),
        ("c", "c"),
    ]


def test_the_folder_has_every_split_and_only_training_changes(example, tmp_path, monkeypatch):
    splits = {"train": [("One\u2028two", "x")], "val": [("v", "w")], "test": [("t", "u")]}
    example.write(splits, ("en", "de"), tmp_path / "before")
    monkeypatch.setattr(example, "with_run", lambda run: upper if run is forward else lower)
    forward = run_of(tmp_path / "forward", tmp_path / "before", "en", "de")
    backward = run_of(tmp_path / "backward", "elsewhere", "de", "en")
    example.diversify(forward, backward, tmp_path / "after")
    found = {
        name: list(string_pairs(pairs))
        for name, pairs in load_translation(
            tmp_path / "after", source="en", target="de", data_dir=tmp_path / "data"
        ).items()
    }
    assert found == {
        "train": [("One two", "x"), ("One two", "ONE TWO"), ("x", "x")],
        "validation": [("v", "w")],
        "test": [("t", "u")],
    }


def test_a_second_round_translates_the_first_text_and_keeps_what_was_found(
    example, tmp_path, monkeypatch
):
    example.write({"train": [("a", "B")], "val": [("v", "w")]}, ("en", "de"), tmp_path / "before")
    monkeypatch.setattr(example, "with_run", lambda run: upper if run is forward else lower)
    forward = run_of(tmp_path / "forward", "elsewhere", "en", "de")
    backward = run_of(tmp_path / "backward", "elsewhere", "de", "en")
    earlier = [("a", "B"), ("a", "x")]
    pairs = example.diversify(
        forward, backward, tmp_path / "after", str(tmp_path / "before"), earlier
    )
    assert pairs == [("a", "B"), ("a", "A"), ("b", "B"), ("a", "x")]


def test_what_cannot_be_is_said_before_anything_is_translated(example, tmp_path):
    there, same = (run_of(tmp_path / name, "demo", "en", "de") for name in ("there", "same"))
    back = run_of(tmp_path / "back", "demo", "de", "en")
    with pytest.raises(ValueError, match=r"from de to en\. Received: .*same, en to de"):
        example.diversify(there, same, tmp_path / "new")
    with pytest.raises(FileExistsError, match="give --to another name"):
        example.diversify(there, back, tmp_path / "same")
    assert not (tmp_path / "new").exists()


@pytest.mark.release
def test_it_runs(example, capsys):
    pairs = example.main(example.parser().parse_args(["--smoke"]))
    assert 40 <= len(pairs) <= 120 and len(set(pairs)) == len(pairs)
    assert f"40 training pairs have become {len(pairs)}." in capsys.readouterr().out
