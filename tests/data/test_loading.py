"""Named sets through the real TFDS code, the demo set by name, and failures without a network."""

import io
import itertools
import re
import sys
import time

import pytest
import requests
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import downloader

from keras_addnorm.data import LineReport, line_reports, load_translation, named_sets
from keras_addnorm.data.strings import string_pairs

PORTUGUESE = ["um", "dois", "três", "", "cinco", "seis", "sete", "oito", "nove", "dez", "onze"]
ENGLISH = ["one", "two", "three", "four", "five", "x" * 9, "seven", "eight", "nine", "ten", "   "]


@pytest.fixture
def ted(tmp_path, monkeypatch):
    """The real `ted_hrlr_translate` code, with its download replaced by a local folder."""
    texts = tmp_path / "archive" / "datasets" / "pt_to_en"
    texts.mkdir(parents=True)
    for split, end in (("train", 11), ("dev", 3), ("test", 2)):
        (texts / f"pt.{split}").write_text("\n".join(PORTUGUESE[:end]), encoding="utf-8")
        (texts / f"en.{split}").write_text("\n".join(ENGLISH[:end]), encoding="utf-8")
    monkeypatch.setattr(
        tfds.download.DownloadManager,
        "download_and_extract",
        lambda manager, url: str(tmp_path / "archive"),
    )
    return {"name_or_folder": "ted_hrlr_translate/pt_to_en", "data_dir": tmp_path / "data"}


@pytest.fixture
def offline(monkeypatch):
    """No server answers; counts who asked."""
    asked = []

    def get(url, **kwargs):
        asked.append(url)
        raise requests.ConnectionError("no route")

    monkeypatch.setattr(requests, "get", get)
    return asked


def test_a_named_set_in_the_direction_of_its_config(ted):
    splits = load_translation(**ted, max_chars=8)
    # Without the empty side, the nine characters and the blank side.
    keep = [0, 1, 2, 4, 6, 7, 8, 9]
    assert {name: sorted(_texts(pairs)) for name, pairs in splits.items()} == {
        "train": sorted((PORTUGUESE[i], ENGLISH[i]) for i in keep),
        "validation": [("dois", "two"), ("três", "three"), ("um", "one")],
        "test": [("dois", "two"), ("um", "one")],
    }


def test_a_named_set_the_other_way_round(ted):
    pairs = load_translation(**ted, source="en", split="test")
    assert sorted(_texts(pairs)) == [("one", "um"), ("two", "dois")]


def test_a_part_of_a_named_set(ted):
    whole = _texts(load_translation(**ted, split="train"))
    assert len(whole) == 9
    assert _texts(load_translation(**ted, split="train[:20%]")) == whole[:2]


def test_a_named_set_with_its_version(ted):
    ted["name_or_folder"] += ":1.0.0"
    assert len(_texts(load_translation(**ted, split="test"))) == 2


def test_lines_of_a_named_set_are_counted(ted):
    reports = line_reports(**ted, max_chars=8)
    train = reports["train"]
    # TFDS itself has left out the line with nothing at all on one side.
    assert (train.kept, train.empty, train.too_long, train.total) == (8, 1, 1, 10)
    assert reports["test"] == LineReport("test", kept=2, max_chars=8)


def test_f6_every_pair_of_a_named_set_can_be_kept(ted):
    train = _texts(load_translation(**ted, split="train", max_chars=8, keep_every_pair=True))
    # TFDS itself has left out the line with nothing at all on one side.
    assert len(train) == 10
    assert {("seis", "x" * 9), ("onze", "")} <= {*train}


def test_a_prepared_set_needs_no_download(ted, offline):
    first = _texts(load_translation(**ted, split="train"))
    assert _texts(load_translation(**ted, split="train", download=False)) == first
    assert offline == []


def test_without_a_network_a_download_fails_at_once(tmp_path, offline):
    with pytest.raises(
        ConnectionError, match=r"data set ted_hrlr_translate/pt_to_en has to be downloaded"
    ) as failure:
        load_translation("ted_hrlr_translate/pt_to_en", split="train", data_dir=tmp_path)
    assert offline == ["http://www.phontron.com/data/qi18naacl-dataset.tar.gz"]
    for advice in ("HTTP_PROXY", "data_dir", "demo/en-de", "ConnectionError"):
        assert advice in str(failure.value)


def test_a_server_that_refuses(tmp_path, monkeypatch):
    response = requests.Response()
    response.status_code, response.raw = 503, io.BytesIO()
    monkeypatch.setattr(requests, "get", lambda url, **kwargs: response)
    with pytest.raises(ConnectionError, match="the server said 503"):
        load_translation("ted_hrlr_translate/pt_to_en", data_dir=tmp_path)


def test_a_server_that_answers_is_downloaded_from(tmp_path, monkeypatch):
    response = requests.Response()
    response.status_code, response.raw = 200, io.BytesIO()
    monkeypatch.setattr(requests, "get", lambda url, **kwargs: response)

    def sync_download(self, url, *args):
        raise RuntimeError(f"TFDS downloads {url}")

    monkeypatch.setattr(downloader._Downloader, "_sync_download", sync_download)
    with pytest.raises(
        RuntimeError, match=r"TFDS downloads http://www.phontron.com/data/qi18naacl"
    ):
        load_translation("ted_hrlr_translate/pt_to_en", data_dir=tmp_path)


def test_a_server_that_never_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(named_sets, "_PATIENCE_SECONDS", 0.02)

    def get(url, **kwargs):
        time.sleep(0.5)
        raise requests.ConnectionError

    monkeypatch.setattr(requests, "get", get)
    with pytest.raises(ConnectionError, match=r"no answer within 0.04 seconds"):
        load_translation("ted_hrlr_translate/pt_to_en", data_dir=tmp_path)


def test_a_download_that_is_not_allowed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no prepared data of .*download=False"):
        load_translation("ted_hrlr_translate/pt_to_en", data_dir=tmp_path, download=False)


def test_the_downloader_is_left_as_it_was(tmp_path, offline):
    before = downloader._Downloader.download
    with pytest.raises(ConnectionError):
        load_translation("ted_hrlr_translate/pt_to_en", data_dir=tmp_path)
    assert downloader._Downloader.download is before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wmt14_translat/de-en", r"neither a folder .* nor a data set .*mean 'wmt14_translate'"),
        ("qqqqqqqq", r"neither a folder that exists nor a data set that TensorFlow Datasets knows"),
        ("ted_hrlr_translate/pt_en", r"no config 'pt_en'. Near ones: .*/pt_to_en'"),
        ("ted_hrlr_translate", r"needs a config. Near ones: 'ted_hrlr_translate/az_to_en'"),
        ("ted_multi_translate", r"no `Translation` feature .* are 'translations', 'talk_name'"),
        ("demo/en-it", r"no demo set 'demo/en-it'. There are 'demo/en-de', 'demo/en-fr'"),
        ("demo/de-fr", r"no demo set 'demo/de-fr'"),
        ("", r"neither a folder"),
    ],
)
def test_names_that_are_not_known(tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        load_translation(name, data_dir=tmp_path)


@pytest.mark.parametrize("wrong", [None, 3, ["train.en"]])
def test_something_else_than_a_name(tmp_path, wrong):
    with pytest.raises(TypeError, match=f"Received: {type(wrong).__name__}"):
        load_translation(wrong, data_dir=tmp_path)


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(
    ("name", "choices", "pattern"),
    [
        ("demo", {}, r"The .* \| (Der|Die|Das) .*"),
        ("demo/de-en", {}, r".*ä.* \| The .*"),
        ("demo/en-de", {"source": "de"}, r".*ä.* \| The .*"),
        ("demo", {"target": "es"}, r"The .* \| (El|La|Los) .*"),
        ("demo", {"source": "es", "target": "en"}, r"(El|La|Los) .* \| The .*"),
        ("demo/en-es", {}, r"The .* \| (El|La|Los) .*"),
    ],
)
def test_the_demo_set_in_both_directions(name, choices, pattern):
    test = load_translation(name, split="test", **choices)
    assert len(test) == 1_000
    assert any(re.fullmatch(pattern, " | ".join(pair)) for pair in _texts(test))


def test_nothing_held_out_of_the_loaded_demo_set_is_trained_on():
    splits = load_translation("demo/en-de")
    assert {name: len(pairs) for name, pairs in splits.items()} == {
        "train": 30_000,
        "validation": 1_000,
        "test": 1_000,
    }
    texts = {name: _texts(pairs) for name, pairs in splits.items()}
    for side in (0, 1):
        train, validation, test = ({pair[side] for pair in texts[name]} for name in splits)
        assert train.isdisjoint(validation | test)
        assert validation.isdisjoint(test)


def test_the_longest_demo_sentences_can_be_left_out():
    test = load_translation("demo", split="test", max_chars=45)
    lengths = [max(map(len, pair)) for pair in _texts(test)]
    assert 50 < len(lengths) < 900
    assert max(lengths) <= 45


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"source": "it"}, r"no language 'it' for source. It has 'en', 'de', 'fr', 'es'"),
        ({"source": "de", "target": "fr"}, "One side of the demo set is English"),
        ({"split": "dev_test"}, "no split 'dev_test'. It has 'train', 'validation', 'test'"),
    ],
)
def test_demo_choices_that_cannot_be(choices, message):
    with pytest.raises(ValueError, match=message):
        load_translation("demo", **choices)


def test_loading_says_nothing_on_the_console(capfd):
    _texts(load_translation("demo/en-fr", split="train[:3]"))
    out, err = capfd.readouterr()
    assert out == ""
    assert "WARNING" not in err


def test_rows_are_read_when_they_are_asked_for():
    class Endless:
        def __iter__(self):
            return ({"en": f"word {n}", "de": f"Wort {n}"} for n in itertools.count())

    pairs = load_translation(Endless(), source="en", target="de", split="train")
    assert pairs.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert _texts(pairs.take(2)) == [("word 0", "Wort 0"), ("word 1", "Wort 1")]


def test_only_named_sets_need_tensorflow_datasets(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    for language, text in (("en", "a dog"), ("fr", "un chien")):
        (tmp_path / f"train.{language}").write_text(f"{text}\n")
    (pairs,) = load_translation(tmp_path, source="en", target="fr").values()
    assert _texts(pairs) == [("a dog", "un chien")]
    assert len(load_translation("demo/en-fr", split="test")) == 1_000
    with pytest.raises(ImportError, match=r"'tensorflow_datasets', .*\.\[tfds\]"):
        load_translation("ted_hrlr_translate/pt_to_en")


@pytest.mark.parametrize("missing", ["babel", "num2words"])
def test_without_the_libraries_of_the_demo_set(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"'{missing}', .* not installed.*\.\[demo\]"):
        load_translation("demo")


def _texts(pairs):
    return list(string_pairs(pairs))


def test_a_name_that_is_too_long_for_a_file_is_that_of_no_data_set():
    with pytest.raises(ValueError, match="nor a data set"):
        load_translation("x" * 300, split="train")
