"""Texts that are in another language than they are taken for."""

import itertools
import logging

import pytest

from keras_addnorm.basics.languages import fold
from keras_addnorm.data import language_check, load_translation
from keras_addnorm.data.demo.generate import demo_pairs
from keras_addnorm.data.language_check import language_suspicion
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.request import Request

ENGLISH = [f"I have {n} dogs, and you are not in the house with them." for n in range(11)]
SPANISH = [f"Yo tengo {n} perros, y ella no está en casa, pero es un día." for n in range(11)]
GERMAN = [f"Ich habe {n} Hunde, und du bist nicht mit ihnen in einem Haus." for n in range(11)]
RUSSIAN = [f"У меня {n} собак, и я не в доме, но он что-то так." for n in range(23)]
CHINESE = [f"我有{n}只狗，你不在房子里。" for n in range(23)]
SWAPPED = "looks like {!r}, and the other way round: swap source and target?"


@pytest.mark.parametrize(
    ("sources", "targets", "source", "target", "said"),
    [
        (ENGLISH, SPANISH, "en", "es", ""),
        (ENGLISH, SPANISH, "es", "en", "The side taken for 'es' " + SWAPPED.format("en")),
        (ENGLISH, SPANISH, "spa_Latn", "en-GB", "The side taken for 'spa_Latn' looks like 'en-GB'"),
        (ENGLISH, SPANISH, "yo", "en", "The side taken for 'yo' " + SWAPPED.format("en")),
        (ENGLISH, SPANISH, "en", "yo", ""),
        (ENGLISH, SPANISH, "yo", "xx", ""),
        (GERMAN, SPANISH, "en", "es", "The side taken for 'en' looks like 'de': are these"),
        (GERMAN, SPANISH, "en", "fr", "The side taken for 'en' looks like 'de', and the side taken "
         "for 'fr' looks like 'es'"),
        (ENGLISH, ENGLISH[::-1], "en", "noisy", ""),
        (RUSSIAN, CHINESE, "ru", "zh", ""),
        (RUSSIAN, CHINESE, "zh-Hans", "ru", "The side taken for 'zh-Hans' looks like 'ru', and"),
        (RUSSIAN, CHINESE, "ru", "ko", "The side taken for 'ko' is in Chinese/Japanese script"),
        (RUSSIAN, CHINESE, "sr", "ja", ""),
        (RUSSIAN, CHINESE, "ru", "ko_Latn", ""),
    ],
)  # fmt: skip
def test_what_is_said(sources, targets, source, target, said):
    found = language_suspicion(zip(sources, targets, strict=False), source, target)
    assert found.startswith(said) and bool(found) is bool(said)


NAMES = ["Juan de la Cruz", "El Paso", "Río de la Plata", "San Pedro del Mar", "Los Santos", "Tom"]


@pytest.mark.parametrize(
    "texts",
    [
        [f"{a} {b}" for a in NAMES for b in NAMES],
        ["Anna Bauer", "Jan van der Meer", "The Hague", "Erika von Stein", "Am Bach"] * 23,
        ["red", "green", "house", "to", "in", "es", "un", "no"] * 5,
        ["Save file", "Open", "No", "Cancel", "OK"] * 23,
        ["12", "3.5 kg", "", "%s"] * 23,
    ],
)
@pytest.mark.parametrize("language", ["en", "de", "es", "fr", "yo"])
def test_names_and_single_words_tell_nothing(texts, language):
    others = [f"{text}." for text in reversed(texts)]
    for pair in ((language, "nl"), ("nl", language)):
        assert language_suspicion(zip(texts, others, strict=True), *pair) == ""


def test_a_text_that_was_copied_tells_nothing():
    assert language_suspicion(zip(ENGLISH, ENGLISH, strict=True), "en", "de") == ""


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_the_demo_set_is_what_it_says_and_is_recognised_the_other_way_round(language):
    pairs = [(one.source, one.target) for one in itertools.islice(demo_pairs(language), 211)]
    assert language_suspicion(pairs, "en", language) == ""
    for start in range(0, 200, 20):
        assert language_suspicion(pairs[start : start + 20], "en", language) == ""
    assert SWAPPED.format("en") in language_suspicion(pairs, language, "en")


def test_the_tables_name_languages_by_their_codes():
    for table in (language_check._WORDS, language_check._WORDS_OF_NAMES, language_check._SCRIPTS):
        assert [code for code in table if fold(code) != code] == []
    for words in language_check._WORDS.values():
        assert len(words) > 11 and all(word == word.casefold() for word in words)


def test_a_file_by_position_shows_a_pair_and_what_it_looks_like(tmp_path, caplog):
    path = tmp_path / "spa.txt"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in zip(ENGLISH, SPANISH, strict=True)))
    notes = open_translation(Request(path, "es", "en")).notes
    assert notes[0].endswith(
        "column 1 is taken for 'es', column 2 for 'en'.\n"
        "  es: I have 0 dogs, and you are not in the house with them. / "
        "en: Yo tengo 0 perros, y ella no está en casa, pero es un día."
    )
    assert notes[1:] == (f"spa.txt: the side taken for 'es' {SWAPPED.format('en')}",)
    with caplog.at_level(logging.WARNING):
        load_translation(path, source="es", target="en")
    assert [message for message in caplog.messages if message in notes] == list(notes)
    caplog.clear()
    (right,) = open_translation(Request(path, "en", "es")).notes
    assert right.startswith(f"{path} does not say which column is which")


def test_files_with_names_are_looked_at_too_and_so_are_rows(tmp_path):
    for split, texts in {"train": GERMAN, "test": ENGLISH}.items():
        (tmp_path / f"{split}.en").write_text("\n".join(texts))
        (tmp_path / f"{split}.es").write_text("\n".join(SPANISH))
    assert open_translation(Request(tmp_path, "en", "es")).notes == (
        "train.en and train.es: the side taken for 'en' looks like 'de': are these the right "
        "languages and columns?",
    )
    rows = [{"en": a, "es": b} for a, b in zip(SPANISH, ENGLISH, strict=True)]
    assert open_translation(Request(rows, "en", "es")).notes == (
        f"train: the side taken for 'en' {SWAPPED.format('es')}",
    )
    rows = [{"q": a, "a": b} for a, b in zip(ENGLISH, SPANISH, strict=True)]
    (note,) = open_translation(Request(rows, "en", "es")).notes
    assert note.endswith(f"\n  en: {ENGLISH[0]} / es: {SPANISH[0]}")
