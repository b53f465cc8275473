"""French: two genders, elision, adjectives and clocks that come after."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import ClassVar

from keras_addnorm.data.demo.grammar import Grammar, Person, Word, spell, starts_with_vowel

_ARTICLES = {
    "definite": {"m": "le ", "f": "la ", "elided": "l'"},
    "from": {"m": "du ", "f": "de la ", "elided": "de l'"},
}
_COUNTRY_PREPOSITIONS = {
    "definite": _ARTICLES["definite"],
    "in": {"m": "au ", "f": "en ", "elided": "en "},
    "from": {"m": "du ", "f": "de ", "elided": "d'"},
}
_PRONOUNS = {"m": "il", "f": "elle"}
_BORN = {"m": "né", "f": "née"}
_MASCULINE_COUNTRIES = frozenset({"BR", "CA", "CL", "DK", "JP", "KE", "MX", "PE", "PT"})


class French(Grammar):
    """French nouns, sentences and their agreement."""

    language = "fr"
    genders: ClassVar[Mapping[str, str]] = {
        "minute": "f",
        "hour": "f",
        "day": "m",
        "week": "f",
        "month": "m",
        "year": "m",
        "meter": "m",
        "kilometer": "m",
        "mile": "m",
        "gram": "m",
        "kilogram": "m",
        "liter": "m",
        "EUR": "m",
        "USD": "m",
        "GBP": "f",
        "JPY": "m",
        "CHF": "m",
        "INR": "f",
        "MXN": "m",
        "SEK": "f",
        "NOK": "f",
        "DKK": "f",
        "CZK": "f",
        "CAD": "m",
    }
    nouns: ClassVar[Mapping[str, Word]] = {
        "airport": Word("aéroport", gender="m"),
        "bag": Word("sac", gender="m"),
        "beach": Word("plage", gender="f"),
        "bicycle": Word("vélo", gender="m"),
        "book": Word("livre", "livres", "m"),
        "bridge": Word("pont", gender="m"),
        "butter": Word("beurre", gender="m"),
        "carpet": Word("tapis", gender="m"),
        "castle": Word("château", gender="m"),
        "chair": Word("chaise", "chaises", "f"),
        "child": Word("enfant", "enfants", "m"),
        "church": Word("église", gender="f"),
        "clock": Word("horloge", gender="f"),
        "coat": Word("manteau", gender="m"),
        "flour": Word("farine", gender="f"),
        "guest": Word("invité", "invités", "m"),
        "guitar": Word("guitare", gender="f"),
        "hotel": Word("hôtel", gender="m"),
        "lake": Word("lac", gender="m"),
        "lamp": Word("lampe", "lampes", "f"),
        "man": Word("homme", "hommes", "m"),
        "market": Word("marché", gender="m"),
        "milk": Word("lait", gender="m"),
        "mirror": Word("miroir", gender="m"),
        "museum": Word("musée", gender="m"),
        "oil": Word("huile", gender="f"),
        "painting": Word("tableau", "tableaux", "m"),
        "rice": Word("riz", gender="m"),
        "school": Word("école", gender="f"),
        "station": Word("gare", gender="f"),
        "sugar": Word("sucre", gender="m"),
        "table": Word("table", "tables", "f"),
        "theater": Word("théâtre", gender="m"),
        "village": Word("village", gender="m"),
        "water": Word("eau", gender="f"),
        "wine": Word("vin", gender="m"),
        "woman": Word("femme", "femmes", "f"),
    }
    sentences: ClassVar[Mapping[str, str]] = {
        "birth": "{person} est {person:born} {country:in} le {day:long}.",
        "residence": "{person} vit {country:in} depuis {duration}.",
        "age": "{person} a {age} et vient {country:from}.",
        "price": "{thing:definite} pèse {weight} et coûte {price}.",
        "knowledge": "{person} sait que {thing:definite} coûte {price}.",
        "reason": (
            "{person} achète {thing:definite} parce qu'{thing:pronoun} ne coûte que {price}."
        ),
        "payment": "{person} a payé {price} pour {thing:definite}.",
        "distance": "{place:definite} est à {distance} {landmark:from}.",
        "shopping": "{person} achète {amount} {substance:of} pour {price}.",
        "waiting": "{person} doit attendre {hours} et {minutes}.",
        "crowd": "il y a {crowd} dans {place:definite}.",
        "opening": "le {day:weekday} {day:day}, {place:definite} ouvre à {clock}.",
        "departure": "l'avion pour {country:definite} décolle à {clock}.",
        "journey": "{person} ira {country:from} {destination:in} le {day:long}.",
        "visit": "les invités {country:from} arriveront le {day:weekday} {day:long}.",
        "loan": "{person} a prêté {thing:definite} à {friend} pour {duration}.",
    }

    def noun(self, key: str, form: str) -> str:
        """A noun with its article, ``de`` and its article, a bare ``de``, or its pronoun."""
        word = self.word(key)
        if form == "pronoun":
            return _PRONOUNS[word.gender]
        elided = starts_with_vowel(word.singular)
        if form == "of":
            return f"d'{word.singular}" if elided else f"de {word.singular}"
        return _ARTICLES[form]["elided" if elided else word.gender] + word.singular

    def count(self, number: int, key: str, form: str) -> str:
        """``"un an"``, ``"vingt et une heures"``: a final "un" agrees with the noun."""
        del form
        word = self.word(key)
        spelled = spell(number, "fr")
        if word.gender == "f" and spelled.endswith("un"):
            spelled += "e"
        return f"{spelled} {word.singular if number == 1 else word.plural}"

    def territory(self, code: str, form: str) -> str:
        """``"en Pologne"``, ``"au Portugal"``, ``"d'Italie"``, ``"le Japon"``."""
        name = super().territory(code, form)
        gender = "m" if code in _MASCULINE_COUNTRIES else "f"
        return _COUNTRY_PREPOSITIONS[form]["elided" if starts_with_vowel(name) else gender] + name

    def date(self, day: datetime.date, form: str) -> str:
        """A date; the first of a month is an ordinal, which CLDR's patterns leave out."""
        text = super().date(day, form)
        return text.replace("1 ", "1er ", 1) if day.day == 1 else text

    def person(self, person: Person, form: str) -> str:
        """The name, or the participle "born" in the person's gender."""
        return _BORN[person.gender] if form == "born" else person.name
