"""Which split and language a file is by its name, and which files of a folder are read."""

import pyarrow
import pyarrow.parquet
import pytest

from keras_addnorm.data import load_translation
from keras_addnorm.data.file_names import side_files, table_files
from keras_addnorm.data.open_files import open_path
from keras_addnorm.data.readers import InputFile
from keras_addnorm.data.request import Request


@pytest.mark.parametrize(
    ("name", "split", "language"),
    [
        ("train.en", "train", "en"),
        ("val.pt_BR.gz", "validation", "pt_BR"),
        ("test-2016.flickr.en", "test_2016_flickr", "en"),
        ("europarl-v7.de-en.de", "train", "de"),
        ("Tatoeba.de-en.en.bz2", "train", "en"),
        ("train.tok.en", "train", "en"),
        ("train.de-en.en", "train", "en"),
        ("train.en.txt", "train", "en"),
        ("dev.clean.tok.de.xz", "validation", "de"),
        ("src-train.txt", "train", "src"),
        ("tgt-val.txt", "validation", "tgt"),
        ("target_test.txt.zst", "test", "target"),
        ("newstest2014.en", "newstest2014", "en"),
        ("newsdev2016.tok.ro", "newsdev2016", "ro"),
        ("tst2013.vi", "tst2013", "vi"),
        ("dev2010.en", "dev2010", "en"),
        ("train.zh-Hant-TW", "train", "zh-Hant-TW"),
        ("train.es-419.gz", "train", "es-419"),
        ("val.sr_Latn_RS", "validation", "sr_Latn_RS"),
        ("train.ca-valencia", "train", "ca-valencia"),
        ("test.de-CH-1996", "test", "de-CH-1996"),
        ("train.tok.eng_Latn.txt", "train", "eng_Latn"),
        ("newstest2014.es-419", "newstest2014", "es-419"),
        ("europarl-v7.en-zh_Hant.zh_Hant", "train", "zh_Hant"),
        ("Tatoeba.en-zh-Hant-TW.zh-Hant-TW", "train", "zh-Hant-TW"),
        ("Tatoeba.en-zh-Hant-TW.en", "train", "en"),
    ],
)
def test_m2_names_of_parallel_files(tmp_path, name, split, language):
    (found,) = side_files([InputFile(tmp_path / name)])
    assert (found.split, found.language) == (split, language)


@pytest.mark.parametrize(
    "name",
    ["README.md", "train.csv", "train.txt", "test.py", "Tatoeba.de-en.ids", "europarl.de-en.fr",
     "corpus.en", "train.en.html", "vocab.de-en.bpe", "val.tsv.gz"],
)  # fmt: skip
def test_names_that_are_no_texts_of_one_language(tmp_path, name):
    assert side_files([InputFile(tmp_path / name)]) == []


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("pt-BR", "pt_BR"),
        ("pt_br", "pt-BR"),
        ("zh-Hant-TW", "zh_hant_tw"),
        ("es_419", "es-419"),
        ("ca-valencia", "ca_VALENCIA"),
        ("eng_Latn", "eng-latn"),
    ],
)
def test_a_code_may_be_spelt_otherwise_in_a_name(tmp_path, asked, there):
    write(tmp_path, f"train.{there}", "um")
    write(tmp_path, "train.de", "eins")
    found = open_path(Request(tmp_path, "de", asked))
    assert pairs_of(found, "train") == [("eins", "um")]
    assert pairs_of(open_path(Request(tmp_path, asked, None)), "train") == [("um", "eins")]


def test_the_spelling_that_is_asked_for_comes_first(tmp_path):
    for name, line in (("pt_BR", "um"), ("pt-BR", "dois"), ("de", "eins")):
        write(tmp_path, f"train.{name}", line)
    assert pairs_of(open_path(Request(tmp_path, "de", "pt-BR")), "train") == [("eins", "dois")]
    assert pairs_of(open_path(Request(tmp_path, "de", "pt_BR")), "train") == [("eins", "um")]
    with pytest.raises(ValueError, match="two files for the split 'train'"):
        open_path(Request(tmp_path, "de", "PT-br"))
    with pytest.raises(ValueError, match="has no language 'pt'"):
        open_path(Request(tmp_path, "de", "pt"))


def test_m2_a_folder_with_the_names_of_opus_is_one_training_set(tmp_path):
    write(tmp_path, "europarl-v7.de-en.de", "eins", "zwei")
    write(tmp_path, "europarl-v7.de-en.en", "one", "two")
    write(tmp_path, "Tatoeba.de-en.de", "drei")
    write(tmp_path, "Tatoeba.de-en.en", "three")
    write(tmp_path, "europarl-v7.fr-en.fr", "quatre")
    write(tmp_path, "europarl-v7.fr-en.en", "four")
    found = open_path(Request(tmp_path, "en", "de"))
    assert [*found.splits] == ["train"]
    assert pairs_of(found, "train") == [("three", "drei"), ("one", "eins"), ("two", "zwei")]
    pairs = load_translation(tmp_path, source="de", target="en", split="train")
    assert [tuple(map(bytes.decode, pair)) for pair in pairs.as_numpy_iterator()] == [
        ("drei", "three"),
        ("eins", "one"),
        ("zwei", "two"),
    ]


def test_m2_a_corpus_beside_train_is_named_and_test_sets_are_read(tmp_path):
    for language in ("de", "en"):
        write(tmp_path, f"train.{language}", language)
        write(tmp_path, f"train.tok.{language}", "tokenised")
        write(tmp_path, f"newstest2014.{language}", "news")
        write(tmp_path, f"europarl.de-en.{language}", "more")
    write(tmp_path, "newstest2014.fr", "nouvelles")
    found = open_path(Request(tmp_path, "de", "en"))
    assert [*found.splits] == ["train", "newstest2014"]
    assert pairs_of(found, "train") == [("de", "en")]
    assert found.notes == (
        "Not read, as there is a file of the split 'train': europarl.de-en.de, europarl.de-en.en.",
    )
    test = load_translation(tmp_path, source="de", target="en", split="test")
    assert next(test.as_numpy_iterator()) == (b"news", b"news")


def test_m2_the_names_of_opennmt_have_sides_in_place_of_languages(tmp_path):
    for split in ("train", "val"):
        write(tmp_path, f"src-{split}.txt", f"{split} here")
        write(tmp_path, f"tgt-{split}.txt", f"{split} there")
    found = open_path(Request(tmp_path, "fr", "de"))
    assert (found.source, found.target) == ("fr", "de")
    assert [*found.splits] == ["train", "validation"]
    assert pairs_of(found, "validation") == [("val here", "val there")]
    # The languages in alphabetical order must not turn the sides round.
    pairs = load_translation(tmp_path, source="fr", target="de", split="train")
    assert next(pairs.as_numpy_iterator()) == (b"train here", b"train there")
    found = open_path(Request(tmp_path, None, None))
    assert (found.source, found.target) == ("src", "tgt")


def test_two_variants_of_a_split_are_refused(tmp_path):
    for variant in ("tok", "bpe2"):
        for language in ("de", "en"):
            write(tmp_path, f"train.{variant}.{language}", "x")
    with pytest.raises(
        ValueError, match=r"two files for the split 'train' .*train.bpe2.*train.tok"
    ):
        open_path(Request(tmp_path, "de", "en"))


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "test.parquet"],
         {"train": 2, "test": 1}),
        (["data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"],
         {"train": 1, "validation": 1}),
        (["train/data-00000-of-00001.parquet", "dev/data-00000-of-00001.parquet"],
         {"train": 1, "validation": 1}),
        (["de-en/train-00000-of-00001.parquet", "de-en/test-00000-of-00001.parquet"],
         {"train": 1, "test": 1}),
        (["a.parquet", "b.parquet"], {"train": 2}),
        (["everything.parquet", "newstest2014.parquet"], {"train": 1, "newstest2014": 1}),
    ],
)  # fmt: skip
def test_m1_folders_as_hugging_face_writes_them(tmp_path, names, splits):
    for number, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        rows = [{"de": f"Satz {number}", "en": f"sentence {number}"}]
        pyarrow.parquet.write_table(pyarrow.table({"translation": rows}), path)
    (tmp_path / "README.md").write_text("---")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    found = open_path(Request(tmp_path, "de", "en"))
    counts = {split: len(pairs_of(found, split)) for split in found.splits}
    assert counts == splits
    assert pairs_of(found, "train")[0] == ("Satz 0", "sentence 0")


def test_several_sets_in_one_folder_are_not_mixed(tmp_path):
    for pair in ("cs-en", "de-en"):
        (tmp_path / pair).mkdir()
        write(tmp_path / pair, "train.tsv", "x\ty")
    with pytest.raises(ValueError, match=r"several sets .* 'cs-en', 'de-en'. Give one of these"):
        open_path(Request(tmp_path, "de", "en"))


def test_m1_a_folder_with_one_file_for_anki(tmp_path):
    write(tmp_path, "deu.txt", "Go.\tGeh.\tCC-BY 2.0 Attribution: tatoeba.org")
    write(tmp_path, "_about.txt", "About\tthis")
    write(tmp_path, "LICENSE.txt", "All\trights")
    write(tmp_path, "notes.txt", "no columns")
    found = open_path(Request(tmp_path, "de", "en"))
    assert pairs_of(found, "train") == [("Geh.", "Go.")]
    assert list(table_files([InputFile(tmp_path / "notes.txt")])) == []


def test_line_numbers_name_the_file_where_a_split_has_several(tmp_path, caplog):
    write(tmp_path, "a.tsv", "en\tde", "one\teins", "two\t")
    write(tmp_path, "b.tsv", "de\ten", "\tthree", "vier\tfour")
    pairs = load_translation(tmp_path, source="en", target="de", split="train")
    assert [pair[0] for pair in pairs.as_numpy_iterator()] == [b"one", b"four"]
    assert "2 of 4 pairs kept; left out: 2 empty (lines a.tsv:3, b.tsv:2)" in caplog.text


def write(folder, name, *lines):
    text = "".join(f"{line}\n" for line in lines).encode()
    (folder / name).write_bytes(text)


def pairs_of(found, split):
    return [
        tuple(text.decode() if isinstance(text, bytes) else text for text in pair[:2])
        for files in found.sources
        if files.split == split
        for pair in files.raw_pairs()
    ]
