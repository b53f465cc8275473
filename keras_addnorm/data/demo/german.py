"""German: three genders, cases, units before tens, verbs at the end."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import ClassVar

from keras_addnorm.data.demo.grammar import Grammar, Word, spell

_ARTICLES = {
    "nominative": {"m": "der", "f": "die", "n": "das"},
    "accusative": {"m": "den", "f": "die", "n": "das"},
    "dative": {"m": "dem", "f": "der", "n": "dem"},
}
_CONTRACTIONS = {
    "from": {"m": "vom", "f": "von der", "n": "vom"},
    "in": {"m": "im", "f": "in der", "n": "im"},
}
_PRONOUNS = {"m": "er", "f": "sie", "n": "es"}
_ONE = {
    "accusative": {"m": "einen", "f": "eine", "n": "ein"},
    "dative": {"m": "einem", "f": "einer", "n": "einem"},
}


class German(Grammar):
    """German nouns, sentences and their agreement."""

    language = "de"
    genders: ClassVar[Mapping[str, str]] = {
        "minute": "f",
        "hour": "f",
        "day": "m",
        "week": "f",
        "month": "m",
        "year": "n",
        "meter": "m",
        "kilometer": "m",
        "mile": "f",
        "gram": "n",
        "kilogram": "n",
        "liter": "m",
    }
    nouns: ClassVar[Mapping[str, Word]] = {
        "airport": Word("Flughafen", gender="m"),
        "bag": Word("Tasche", gender="f"),
        "beach": Word("Strand", gender="m"),
        "bicycle": Word("Fahrrad", gender="n"),
        "book": Word("Buch", "Bücher", "n"),
        "bridge": Word("Brücke", gender="f"),
        "butter": Word("Butter", gender="f"),
        "carpet": Word("Teppich", gender="m"),
        "castle": Word("Schloss", gender="n"),
        "chair": Word("Stuhl", "Stühle", "m"),
        "child": Word("Kind", "Kinder", "n"),
        "church": Word("Kirche", gender="f"),
        "clock": Word("Uhr", gender="f"),
        "coat": Word("Mantel", gender="m"),
        "flour": Word("Mehl", gender="n"),
        "guest": Word("Gast", "Gäste", "m"),
        "guitar": Word("Gitarre", gender="f"),
        "hotel": Word("Hotel", gender="n"),
        "lake": Word("See", gender="m"),
        "lamp": Word("Lampe", "Lampen", "f"),
        "man": Word("Mann", "Männer", "m"),
        "market": Word("Markt", gender="m"),
        "milk": Word("Milch", gender="f"),
        "mirror": Word("Spiegel", gender="m"),
        "museum": Word("Museum", gender="n"),
        "oil": Word("Öl", gender="n"),
        "painting": Word("Gemälde", "Gemälde", "n"),
        "rice": Word("Reis", gender="m"),
        "school": Word("Schule", gender="f"),
        "station": Word("Bahnhof", gender="m"),
        "sugar": Word("Zucker", gender="m"),
        "table": Word("Tisch", "Tische", "m"),
        "theater": Word("Theater", gender="n"),
        "village": Word("Dorf", gender="n"),
        "water": Word("Wasser", gender="n"),
        "wine": Word("Wein", gender="m"),
        "woman": Word("Frau", "Frauen", "f"),
    }
    sentences: ClassVar[Mapping[str, str]] = {
        "birth": "{person} wurde am {day:long} in {country} geboren.",
        "residence": "{person} lebt seit {duration:dative} in {country}.",
        "age": "{person} ist {age:accusative} alt und kommt aus {country}.",
        "price": "{thing:nominative} wiegt {weight:accusative} und kostet {price:accusative}.",
        "knowledge": "{person} weiß, dass {thing:nominative} {price:accusative} kostet.",
        "reason": (
            "{person} kauft {thing:accusative}, weil {thing:pronoun} nur {price:accusative} kostet."
        ),
        "payment": "{person} hat für {thing:accusative} {price:accusative} bezahlt.",
        "distance": "{place:nominative} ist {distance:accusative} {landmark:from} entfernt.",
        "shopping": "{person} kauft {amount:accusative} {substance:bare} für {price:accusative}.",
        "waiting": "{person} muss {hours:accusative} und {minutes:accusative} warten.",
        "crowd": "{place:in} gibt es {crowd:accusative}.",
        "opening": "am {day:weekday}, dem {day:day}, öffnet {place:nominative} um {clock} Uhr.",
        "departure": "das Flugzeug nach {country} hebt um {clock} Uhr ab.",
        "journey": "{person} wird am {day:long} von {country} nach {destination} reisen.",
        "visit": "die Gäste aus {country} kommen am {day:weekday}, dem {day:long}, an.",
        "loan": "{person} hat {friend} {thing:accusative} für {duration:accusative} geliehen.",
    }

    def word(self, key: str) -> Word:
        """The noun of a key; CLDR's names of currencies begin with a capital, as in a table."""
        word = super().word(key)
        return dataclasses.replace(
            word, singular=_in_a_sentence(word.singular), plural=_in_a_sentence(word.plural)
        )

    def noun(self, key: str, form: str) -> str:
        """A noun with its article in a case, or contracted (``vom``, ``im``), or its pronoun."""
        word = self.word(key)
        if form == "bare":
            return word.singular
        if form == "pronoun":
            return _PRONOUNS[word.gender]
        companions = _ARTICLES.get(form) or _CONTRACTIONS[form]
        return f"{companions[word.gender]} {word.singular}"

    def count(self, number: int, key: str, form: str) -> str:
        """``"einen Tag"``, ``"einem Jahr"``, ``"einundzwanzig Jahren"``."""
        word = self.word(key)
        if number == 1:
            return f"{_ONE[form][word.gender]} {word.singular}"
        plural = _dative_plural(word.plural) if form == "dative" else word.plural
        return f"{spell(number, 'de')} {plural}"


def _in_a_sentence(name: str) -> str:
    """``"japanische Yen"`` for ``"Japanische Yen"``, as German has no capitals for adjectives."""
    return re.sub(r"^\w+isch\w+ ", lambda adjective: adjective[0].lower(), name)


def _dative_plural(plural: str) -> str:
    return plural if plural.endswith(("n", "s")) else f"{plural}n"
