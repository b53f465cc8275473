"""Names of languages."""

from collections import Counter

import pytest

from keras_addnorm.basics import languages


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *(("de", "de"), ("DE_at", "de"), ("deu", "de"), ("ger", "de"), ("German", "de")),
        *(("zh-Hant-TW", "zh"), (" cmn ", "zh"), ("nb", "no"), ("tlh", "tlh"), ("", "")),
        *(("Hausa", "ha"), ("Serbian (Latin)", "sr"), ("Scottish Gaelic", "gd")),
        *(("English_UK", "en"), ("No way", "no way"), ("English tea is", "english tea is")),
    ],
)
def test_every_name_has_one_code(name, code):
    assert languages.fold(name) == code


def test_no_name_stands_for_two_languages():
    names = Counter(languages._LANGUAGES.replace("|", " ").split())
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("language", "wanted", "expected"),
    [
        *(("en-GB", "en", True), ("eng", "en", True), ("en-GB", "en_gb", True)),
        *(("en-GB", "en-US", False), ("en", "en-GB", False), ("fr", "en", False)),
    ],
)
def test_a_region_is_asked_for_or_not(language, wanted, expected):
    assert languages.is_in(language, wanted) is expected


@pytest.mark.parametrize(
    "language",
    ["xx", "qaa", "shn", "eng_Latn", "de_DE", "zh-Hant-TW", "sr_Latn_RS", "es-419"],
)
def test_well_formed_codes_pass(language):
    languages.require_code("source", language)
    assert languages.code_of(language) == language


@pytest.mark.parametrize(
    ("language", "hint"),
    [
        *(
            ("german", "'de'"),
            ("English", "'en'"),
            ("Serbian (Latin)", "'sr'"),
            ("chinese", "'zh'"),
        ),
        *((name, "") for name in ("", "x", "../x", "a/b", "d\ne", "d e", "-de", "de\n", "dé")),
    ],
)
def test_names_and_malformed_codes_are_refused(language, hint):
    with pytest.raises(ValueError, match="A language is named by its code") as error:
        languages.require_code("source", language)
    assert f"Received: source={language!r}." in str(error.value)
    assert str(error.value).endswith(f" Did you mean {hint}?" if hint else ".")


def test_an_unknown_code_is_noted_and_a_known_one_is_not(caplog):
    assert languages.note_unknown("zh-Hant-TW") == languages.note_unknown("Hausa") == ""
    assert languages.note_unknown("qab").startswith("'qab' is no code of a language that is known")
    languages.require_language("language", "qab")
    languages.require_language("language", "qab")
    languages.require_language("language", "German")
    assert caplog.messages == [languages.note_unknown("qab")]
    with pytest.raises(ValueError, match=r"Received: language='\.\./x'"):
        languages.require_language("language", "../x")


def test_every_code_of_two_letters_is_there():
    assert len([code for code in languages._CODES if len(code) == 2]) == 183
