"""The training pairs as ids in a run directory: made once, found by each start, mended."""

import itertools
import zipfile

import numpy as np
import pytest

from keras_addnorm.data import TokenizerPair
from keras_addnorm.data.pair_faults import OtherPairs, SeenPairs
from keras_addnorm.data.strings import sample
from keras_addnorm.data.translation_set import Split
from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs.text_data import load_or_train_tokenizers, run_pairs
from keras_addnorm.runs.training_ids import training_ids

FILES = ["contents.json", "source.npy", "source_offsets.npy", "target.npy", "target_offsets.npy"]


@pytest.fixture
def run(tmp_path):
    """Starts a run's preparation: what it says and finds, and how often it reads the pairs."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split, count in (("train", 23), ("val", 3)):
        for language, word in (("en", "dog"), ("de", "Hund")):
            lines = [f"{word} {n}\n" for n in range(count)]
            (corpus / f"{split}.{language}").write_text("".join(lines))
    directory = RunDirectory(tmp_path / "run")

    def start(directory=directory, **changes):
        config = RunConfig.from_dict({"data": str(corpus), "source": "en", "target": "de"})
        config = config.replace({"tokenizer.vocabulary_size": 25, **changes})
        pairs, said, read = run_pairs(config), [], []
        tokenizers = load_or_train_tokenizers(config, directory, pairs.training)
        judged = Split._judged
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Split, "_judged", lambda s: read.append(s.name) or judged(s))
            ids = training_ids(config, directory, pairs, tokenizers, said.append)
        texts = zip(*pairs.training, strict=True)
        both = tokenizers.source, tokenizers.target
        expected = [one.encode_batch(side) for one, side in zip(both, texts, strict=True)]
        sides = ids.pairs.source, ids.pairs.target
        assert [side.part(0, len(side)) for side in sides] == expected
        return ids, said, read.count("train")

    start.corpus, start.directory = corpus, directory
    return start


def test_a_second_start_reads_no_training_text(run):
    first, said, reads = run()
    assert (said, reads, first.pairs.source.ids.dtype) == ([], 1, np.uint16)
    assert sorted(path.name for path in run.directory.token_ids.iterdir()) == FILES
    before = {path: path.stat().st_mtime_ns for path in run.directory.token_ids.iterdir()}
    second, said, reads = run()
    assert (said, reads) == ([], 0)
    assert (second.faults, second.lines) == (first.faults, first.lines)
    assert second.faults["copies"] == 0 and second.lines[0].kept == 23
    assert {path: path.stat().st_mtime_ns for path in run.directory.token_ids.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "line"), [("train.de", "Hund 5x"), ("train.en", "dog 5x"), ("val.de", "Hund 7x")]
)
def test_other_texts_are_tokenised_anew(run, name, line):
    run()
    path = run.corpus / name
    number = int(line.split()[1].rstrip("x")) % 3 if name == "val.de" else 5
    lines = path.read_text().splitlines()
    assert len(lines[number]) == len(line) - 1
    path.write_text("\n".join([*lines[:number], line[:-2] + "9", *lines[number + 1 :], ""]))
    _, said, reads = run()
    assert said == ["The training pairs or their tokenizers have changed: tokenised anew."]
    assert reads == 1 and run()[2] == 0


def test_other_splits_and_tokenizers_are_tokenised_anew(run):
    run()
    assert len(run(split="train[:11]")[0].pairs.source) == 11
    for path in run.directory.tokenizer.iterdir():
        path.unlink()
    _, said, _ = run(split="train[:11]", **{"tokenizer.vocabulary_size": 23})
    assert said == ["The training pairs or their tokenizers have changed: tokenised anew."]


def test_a_folder_that_has_moved_is_the_same_text(run, tmp_path):
    run()
    moved = run.corpus.rename(tmp_path / "moved")
    assert run(data=str(moved))[1:] == ([], 0)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damaged_ids_are_made_anew_and_it_is_said(run, name, damage):
    first, *_ = run()
    path = run.directory.token_ids / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content if damage == "flip" else content[:-2])
    if damage == "gone":
        path.unlink()
    again, (line,), reads = run()
    assert line.startswith("Warning: the token ids of the training pairs are made anew. The file ")
    assert name in line and reads == 1
    assert again.faults == first.faults
    assert run()[1:] == ([], 0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lines": [3]}', '{"lines": [], "faults": 3}'])
def test_without_digests_a_file_without_sense_is_found_as_well(run, text):
    run()
    unchecked = RunDirectory(run.directory.path, verify=False)
    (run.directory.token_ids / "contents.json").write_text(text)
    assert run(unchecked)[1][0].startswith("Warning: the token ids of the training pairs are made")
    assert run()[1:] == ([], 0)


def test_a_disk_that_fills_up_leaves_nothing_half_written(run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("keras_addnorm.runs.training_ids.write_text", full)
    with pytest.raises((UserError, OSError), match="No space left"):
        run()
    assert [path.name for path in run.directory.path.iterdir() if "token_ids" in path.name] == []


def test_an_archive_says_what_is_in_it(run, tmp_path):
    def zipped(name):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for path in sorted(run.corpus.iterdir()):
                archive.write(path, path.name)
        return str(tmp_path / name)

    assert run(data=zipped("a.zip"))[2] == 1
    assert run(data=zipped("b.zip"))[2] == 0
    (run.corpus / "train.en").write_text((run.corpus / "train.en").read_text().replace("7", "8"))
    assert run(data=zipped("c.zip"))[2] == 1


def test_a_tokenizer_of_many_pairs_is_trained_on_a_sample_and_it_is_said(run):
    config = RunConfig.from_dict({"data": str(run.corpus), "source": "en", "target": "de"})
    config = config.replace({"tokenizer.vocabulary_size": 23, "tokenizer.sample_pairs": 11})
    pairs, said = run_pairs(config).training, []
    found = load_or_train_tokenizers(config, run.directory, pairs, said.append)
    drawn = sample(pairs, 11)
    assert found == TokenizerPair.train(drawn, vocabulary_size=23, kind="bpe")
    line = "Tokenizer: trained on a sample of 11 of the 23 training pairs"
    assert said == [f"{line} (--tokenizer-sample-pairs)."]
    # As before where there are not more.
    other, said = RunDirectory(run.directory.path.parent / "other"), []
    whole = config.replace({"tokenizer.sample_pairs": 23})
    found = load_or_train_tokenizers(whole, other, pairs, said.append)
    assert found == TokenizerPair.train(pairs, vocabulary_size=23, kind="bpe") and not said


def test_a_sample_is_fair_repeatable_and_in_order_where_it_is_all():
    assert sample(range(5), None) == sample(range(5), 5) == sample(range(5), 7) == [*range(5)]
    assert sample(range(97), 7) == sample(iter(range(97)), 7)
    drawn = sample(range(100_000), 1_000)
    assert len({*drawn}) == 1_000
    # Of a thousand, each tenth of the range has a hundred, give or take five deviations.
    assert all(abs(n - 100) < 50 for n in np.histogram(drawn, 10, (0, 100_000))[0])


def test_pairs_that_have_come_before_are_known_however_many(monkeypatch):
    monkeypatch.setattr(SeenPairs, "_LATEST", 3)
    others, known, sizes = OtherPairs(), set(), set()
    for n in np.random.default_rng(5).integers(0, 300, 700).tolist():
        pair = (f"text {n}", f"Text {n}")
        assert others.is_repeated(pair) == (pair in known)
        known.add(pair)
        earlier = [len(some) for some in others.seen._earlier]
        assert all(one >= 2 * two for one, two in itertools.pairwise(earlier))
        sizes.add(len(earlier))
    assert max(sizes) > 2
