"""Which names stand for which language: codes with regions, three-letter codes, English names."""

from __future__ import annotations

import functools
import logging
import re
from typing import Any

from keras_addnorm.basics.errors import ArgumentError

_LOGGER = logging.getLogger(__name__)

# Two letters (ISO 639-1) if there are such, three letters (ISO 639-3, and 639-2 where it differs),
# English names, whose words are joined by hyphens. Names have four letters or more, codes have not.
_LANGUAGES = """
aa aar afar|ab abk abkhazian|ae ave avestan|af afr afrikaans|ak akan aka fat|am amh amharic
an arg aragonese|ar ara arb arabic|as asm assamese|av ava avaric|ay aym ayr aymara
az aze azerbaijani azj|ba bak bashkir|be bel belarusian|bg bul bulgarian|bi bis bislama
bm bam bambara|bn ben bengali bangla|bo bod tib tibetan|br bre breton|bs bos bosnian
ca cat catalan valencian|ce che chechen|ch cha chamorro|co cos corsican|cr cre cree|cs ces cze czech
cu chu church-slavic|cv chv chuvash|cy cym wel welsh|da dan danish|de deu ger german
dv div divehi dhivehi maldivian|dz dzo dzongkha|ee ewe|el ell gre greek|en eng english
eo epo esperanto|es spa spanish castilian|et est estonian ekk|eu eus baq basque
fa fas per pes persian farsi|ff fuc ful fula fulah|fi fin finnish|fj fij fijian|fo fao faroese
fr fra fre french|fy fry western-frisian frisian|ga gle irish|gd gla scottish-gaelic gaelic
gl glg galician|gn grn gug guarani|gu guj gujarati|gv glv manx|ha hau hausa|he heb hebrew iw
hi hin hindi|ho hmo hiri-motu|hr hrv croatian|ht hat haitian-creole haitian|hu hun hungarian
hy hye arm armenian|hz her herero|ia ina interlingua|id ind indonesian|ie ile interlingue
ig ibo igbo|ii iii sichuan-yi|ik ipk inupiaq|io ido|is isl ice icelandic|it ita italian
iu ike iku inuktitut|ja jpn japanese|jv jav javanese|ka kat geo georgian|kg kng kon kongo
ki kik kikuyu|kj kua kuanyama|kk kaz kazakh|kl kal kalaallisut greenlandic|km khm khmer
kn kan kannada|ko kor korean|kr kau knc kanuri|ks kas kashmiri
ku kmr kur kurdish kurmanji northern-kurdish|kv kom kpv komi|kw cor cornish|ky kir kyrgyz kirghiz
la lat latin|lb ltz luxembourgish letzeburgesch|lg lug ganda luganda|li lim limburgish limburgan
ln lin lingala|lo lao|lt lit lithuanian|lu lub luba-katanga|lv lav lvs latvian|mg mlg plt malagasy
mh mah marshallese|mi mao mri maori māori|mk mkd mac macedonian|ml mal malayalam
mn mon mongolian khk|mr mar marathi|ms msa may zsm malay|mt mlt maltese|my mya bur burmese myanmar
na nau nauru|nd nde north-ndebele|ne nep npi nepali|ng ndo ndonga|nl nld dut dutch flemish
nn nno norwegian-nynorsk nynorsk|no nor nob nb norwegian bokmal norwegian-bokmål bokmål
nr nbl south-ndebele|nv nav navajo navaho|ny nya nyanja chichewa chewa|oc oci occitan
oj oji ojibwa ojibwe|om orm oromo gaz|or ori ory odia oriya|os oss ossetic|pa pan punjabi panjabi
pi pli pali|pl pol polish|ps pbu pus pashto pushto|pt por portuguese brazilian-portuguese
qu que quz quechua|rm roh romansh|rn run rundi kirundi|ro ron rum romanian mol moldavian
ru rus russian|rw kin kinyarwanda|sa cls san sanskrit|sc srd sardinian|sd snd sindhi
se sme northern-sami|sg sag sango|sh serbo-croatian hbs|si sin sinhala sinhalese|sk slk slo slovak
sl slv slovenian|sm smo samoan|sn sna shona|so som somali|sq sqi alb albanian als|sr srp serbian
ss ssw swati swazi|st sot southern-sotho sesotho|su sun sundanese|sv swe swedish|sw swa swh swahili
ta tam tamil|te tel telugu|tg tgk tajik|th tha thai|ti tir tigrinya tigrigna|tk tuk turkmen
tl tgl tagalog|tn tsn tswana setswana|to ton tongan|tr tur turkish|ts tso tsonga xitsonga
tt tat tatar|tw twi|ty tah tahitian|ug uig uyghur uighur|uk ukr ukrainian|ur urd urdu
uz uzb uzbek uzn|ve ven venda tshivenda|vi vie vietnamese|vo vol volapuk|wa wln walloon|wo wol wolof
xh xho xhosa|yi ydd yid yiddish ji|yo yor yoruba|za zha zyb zhuang
zh zho chi cmn chinese mandarin simplified-chinese traditional-chinese mandarin-chinese|zu zul zulu
ace acehnese|ang old-english|apc levantine-arabic|ary moroccan-arabic|arz egyptian-arabic
ast asturian|awa awadhi|ban balinese|bar bavarian|bem bemba|bho bhojpuri|bik bikol|bjn banjar
bug buginese|ceb cebuano|chr cherokee|ckb central-kurdish sorani|cnh hakha-chin|cop coptic
crh crimean-tatar|dsb lower-sorbian|dyu dyula|ewo ewondo|fil filipino pilipino|fon
frr northern-frisian|fur friulian|gan gan-chinese|gom goan-konkani|grc ancient-greek
gsw swiss-german|hak hakka-chinese|haw hawaiian|hil hiligaynon|hmn hmong|hsb upper-sorbian
ilo iloko ilocano|jbo lojban|kab kabyle|kac kachin|kbp kabiye|kea kabuverdianu|kha khasi
kmb kimbundu|kok konkani|kri krio|lij ligurian|lmo lombard|ltg latgalian|lua luba-lulua|luo|lus mizo
lzh literary-chinese|mag magahi|mai maithili|mhr meadow-mari|min minangkabau|mni manipuri meitei
mos mossi|myv erzya|nan min-nan-chinese|nds low-german|new newari|nso northern-sotho sepedi pedi
nus nuer|nyn nyankole|pag pangasinan|pam pampanga|pap papiamento|pcm nigerian-pidgin naija|prs dari
quc kiche|quy ayacucho-quechua|rom romany|sah yakut|sat santali|scn sicilian|sco scots|szl silesian
tet tetum|tlh klingon|tpi tok-pisin|tum tumbuka|tvl tuvalu|tyv tuvinian|tzm central-atlas-tamazight
udm udmurt|umb umbundu|vec venetian|vls west-flemish|war waray waray-waray|wuu wu-chinese|xal kalmyk
yue cantonese yue-chinese|zza zaza
"""
_CODE_OF = {
    name: names.split()[0]
    for line in _LANGUAGES.strip().splitlines()
    for names in line.split("|")
    for name in names.split()
}
_CODES = frozenset(_CODE_OF.values())
_LETTERS_OF_NAMES = 4
# The first name of each, where there is one.
_NAME_OF = {
    code: name.replace("-", " ").title()
    for name, code in reversed(_CODE_OF.items())
    if len(name) >= _LETTERS_OF_NAMES
}
# What every code has, whether of BCP 47 (`zh-Hant-TW`), NLLB (`eng_Latn`) or mBART (`de_DE`).
_CODE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")
_LONGEST_NAME = 80
_IN_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")


def fold(language: str) -> str:
    """The code of a language without region and script: `en` for `en-GB`, `eng` and `English`."""
    if len(language) > _LONGEST_NAME:
        return tidy(language)  # No language has such a name.
    name = tidy(_IN_BRACKETS.sub("", language))
    joined = "-".join(name.split())
    if joined in _CODE_OF:
        return _CODE_OF[joined]
    if joined != name:
        return name  # A sentence, such as "No way", is no code with a region.
    base = name.partition("-")[0]
    return _CODE_OF.get(base, base)


def tidy(language: str) -> str:
    """A code in lower case with hyphens: `en-gb` for `en_GB`."""
    return language.strip().lower().replace("_", "-")


def is_known(language: str) -> bool:
    """Whether a text is a code or an English name of a language of the table."""
    return fold(language) in _CODES


def code_of(language: str) -> str:
    """The code for an English name, such as `sr` for `Serbian (Latin)`; a code as it stands."""
    base = tidy(language).partition("-")[0]
    is_name = is_known(language) and (len(base) >= _LETTERS_OF_NAMES or " " in language.strip())
    return fold(language) if is_name else language


def english_name(language: str) -> str:
    """The English name of a language of the table, such as `German` for `de`; else as it stands."""
    return _NAME_OF.get(fold(language), language)


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


def has_form_of_code(language: str) -> bool:
    """Whether a name has the form of a code: letters and digits, in parts joined by `-` or `_`."""
    return _CODE.fullmatch(language) is not None


def require_code(what: str, language: str) -> None:
    """Refuses what is no code of a language; one that is not known here passes.

    Args:
        what: What the language is, for the message, such as `"source"`.
        language: The language.

    Raises:
        ValueError: If it is an English name, or has not the form of a code.

    Example:
        >>> from keras_addnorm.basics.languages import require_code
        >>> for language in ("zh-Hant-TW", "eng_Latn", "qaa"):
        ...     require_code("source", language)
        >>> try:
        ...     require_code("source", "German")
        ... except ValueError as error:
        ...     print(str(error).partition("eng_Latn'. ")[2])
        Received: source='German'. Did you mean 'de'?
    """
    code = code_of(language)
    if code == language and has_form_of_code(language):
        return
    given: dict[str, Any] = {what: language[:80]}
    hint = f" Did you mean {code!r}?" if code != language else ""
    raise ArgumentError(
        "A language is named by its code.",
        "letters and digits, in parts joined by '-' or '_', such as 'de', 'pt-BR' or 'eng_Latn'",
        hint,
        **given,
    )


def require_language(what: str, language: str) -> None:
    """Refuses what is neither a code nor an English name, and logs once that one is not known."""
    if not is_known(language):
        require_code(what, language)
        _log_unknown(language)


@functools.cache
def _log_unknown(language: str) -> None:
    _LOGGER.warning("%s", note_unknown(language))


def note_unknown(language: str) -> str:
    """What is to be said of a code that is not in the table; empty for one that is."""
    if is_known(language):
        return ""
    return (
        f"{language[:80]!r} is no code of a language that is known here. Sentences are split, and "
        "words counted for BLEU, as in most languages."
    )
