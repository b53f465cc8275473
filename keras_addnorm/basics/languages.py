"""Which names stand for which language: codes with regions, three-letter codes, English names."""

from __future__ import annotations

# Two letters (ISO 639-1), three letters (ISO 639-3, and 639-2 where it differs), English name.
_LANGUAGES = """
af afr afrikaans|ar ara arb arabic|az aze azerbaijani|be bel belarusian|bg bul bulgarian
bn ben bengali|bo bod tib tibetan
ca cat catalan|cs ces cze czech|cy cym wel welsh|da dan danish|dz dzo dzongkha
de deu ger german|el ell gre greek|en eng english|eo epo esperanto|es spa spanish
et est estonian|eu eus baq basque|fa fas per pes persian|fi fin finnish|fr fra fre french
ga gle irish|gl glg galician|gu guj gujarati|he heb hebrew|hi hin hindi|hr hrv croatian
hu hun hungarian|hy hye arm armenian|id ind indonesian|is isl ice icelandic|it ita italian
ja jpn japanese|ka kat geo georgian|kk kaz kazakh|km khm khmer|kn kan kannada|ko kor korean|lo lao
lt lit lithuanian|lv lav lvs latvian|mk mkd mac macedonian|ml mal malayalam|mr mar marathi
ms msa may zsm malay|my mya bur burmese|ne nep npi nepali|nl nld dut dutch
no nor nob nb norwegian|pa pan punjabi|pl pol polish|pt por portuguese|ro ron rum romanian
ru rus russian|si sin sinhala|sk slk slo slovak|sl slv slovenian|sq sqi alb albanian
sr srp serbian|sv swe swedish|sw swa swh swahili|ta tam tamil|te tel telugu|th tha thai
tl tgl tagalog|tr tur turkish|uk ukr ukrainian|ur urd urdu|uz uzb uzbek|vi vie vietnamese
zh zho chi cmn chinese
"""
_CODE_OF = {
    name: names.split()[0]
    for line in _LANGUAGES.strip().splitlines()
    for names in line.split("|")
    for name in names.split()
}


def fold(language: str) -> str:
    """The code of a language without region and script: `en` for `en-GB`, `eng` and `English`."""
    base = tidy(language).partition("-")[0]
    return _CODE_OF.get(base, base)


def tidy(language: str) -> str:
    """A code in lower case with hyphens: `en-gb` for `en_GB`."""
    return language.strip().lower().replace("_", "-")


def is_in(language: str, wanted: str) -> bool:
    """Whether a text in `language` is one in the language that is asked for.

    Args:
        language: What the text says it is, such as `en-GB`.
        wanted: What is asked for. One with a region or a script, such as `en-GB`, is that one only.

    Returns:
        Whether it is.

    Example:
        >>> from keras_addnorm.basics.languages import is_in
        >>> is_in("en-GB", "en"), is_in("en-GB", "en_gb"), is_in("en-GB", "en-US")
        (True, True, False)
    """
    if "-" in tidy(wanted):
        return tidy(language) == tidy(wanted)
    return fold(language) == fold(wanted)
