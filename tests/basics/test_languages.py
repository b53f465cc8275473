"""Names of languages."""

from collections import Counter

import pytest

from keras_addnorm.basics import languages


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *(("de", "de"), ("DE_at", "de"), ("deu", "de"), ("ger", "de"), ("German", "de")),
        *(("zh-Hant-TW", "zh"), (" cmn ", "zh"), ("nb", "no"), ("tlh", "tlh"), ("", "")),
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
