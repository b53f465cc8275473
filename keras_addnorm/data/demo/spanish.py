"""Spanish: numbers that agree in gender, adjectives after nouns, dates joined by "de"."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import ClassVar

from keras_addnorm.data.demo.grammar import Grammar, Word, spell

_ARTICLES = {
    "definite": {"m": "el", "f": "la"},
    "from": {"m": "del", "f": "de la"},
}


class Spanish(Grammar):
    """Spanish nouns, sentences and their agreement."""

    language = "es"
    genders: ClassVar[Mapping[str, str]] = {
        "minute": "m",
        "hour": "f",
        "day": "m",
        "week": "f",
        "month": "m",
        "year": "m",
        "meter": "m",
        "kilometer": "m",
        "mile": "f",
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
        "airport": Word("aeropuerto", gender="m"),
        "bag": Word("bolso", gender="m"),
        "beach": Word("playa", gender="f"),
        "bicycle": Word("bicicleta", gender="f"),
        "book": Word("libro", "libros", "m"),
        "bridge": Word("puente", gender="m"),
        "butter": Word("mantequilla", gender="f"),
        "carpet": Word("alfombra", gender="f"),
        "castle": Word("castillo", gender="m"),
        "chair": Word("silla", "sillas", "f"),
        "child": Word("niño", "niños", "m"),
        "church": Word("iglesia", gender="f"),
        "clock": Word("reloj", gender="m"),
        "coat": Word("abrigo", gender="m"),
        "flour": Word("harina", gender="f"),
        "guest": Word("invitado", "invitados", "m"),
        "guitar": Word("guitarra", gender="f"),
        "hotel": Word("hotel", gender="m"),
        "lake": Word("lago", gender="m"),
        "lamp": Word("lámpara", "lámparas", "f"),
        "man": Word("hombre", "hombres", "m"),
        "market": Word("mercado", gender="m"),
        "milk": Word("leche", gender="f"),
        "mirror": Word("espejo", gender="m"),
        "museum": Word("museo", gender="m"),
        "oil": Word("aceite", gender="m"),
        "painting": Word("cuadro", "cuadros", "m"),
        "rice": Word("arroz", gender="m"),
        "school": Word("escuela", gender="f"),
        "station": Word("estación", gender="f"),
        "sugar": Word("azúcar", gender="m"),
        "table": Word("mesa", "mesas", "f"),
        "theater": Word("teatro", gender="m"),
        "village": Word("pueblo", gender="m"),
        "water": Word("agua", gender="f"),
        "wine": Word("vino", gender="m"),
        "woman": Word("mujer", "mujeres", "f"),
    }
    sentences: ClassVar[Mapping[str, str]] = {
        "birth": "{person} nació en {country} el {day:long}.",
        "residence": "{person} vive en {country} desde hace {duration}.",
        "age": "{person} tiene {age} y viene de {country}.",
        "price": "{thing:definite} pesa {weight} y cuesta {price}.",
        "knowledge": "{person} sabe que {thing:definite} cuesta {price}.",
        "reason": "{person} compra {thing:definite} porque solo cuesta {price}.",
        "payment": "{person} pagó {price} por {thing:definite}.",
        "distance": "{place:definite} está a {distance} {landmark:from}.",
        "shopping": "{person} compra {amount} de {substance:bare} por {price}.",
        "waiting": "{person} tiene que esperar {hours} y {minutes}.",
        "crowd": "hay {crowd} en {place:definite}.",
        "opening": "el {day:weekday} {day:day}, {place:definite} abre {clock:at}.",
        "departure": "el avión a {country} despega {clock:at}.",
        "journey": "{person} viajará de {country} a {destination} el {day:long}.",
        "visit": "los invitados de {country} llegarán el {day:weekday} {day:long}.",
        "loan": "{person} le prestó {thing:definite} a {friend} por {duration}.",
    }

    def noun(self, key: str, form: str) -> str:
        """A noun by itself, with its article, or with ``de`` and its article."""
        word = self.word(key)
        return (
            word.singular if form == "bare" else f"{_ARTICLES[form][word.gender]} {word.singular}"
        )

    def count(self, number: int, key: str, form: str) -> str:
        """``"veintiún años"``, ``"veintiuna horas"``, ``"doscientas libras esterlinas"``."""
        del form
        word = self.word(key)
        agree = _feminine if word.gender == "f" else _masculine
        return f"{agree(spell(number, 'es'))} {word.singular if number == 1 else word.plural}"

    def clock(self, time: datetime.time, form: str) -> str:
        """``"a las 9:30"``, but ``"a la 1:30"``: the hour is a feminine noun."""
        return f"{'a la' if time.hour == 1 else 'a las'} {super().clock(time, form)}"


def _masculine(spelled: str) -> str:
    """A cardinal before a masculine noun: uno becomes un, veintiuno becomes veintiún."""
    if spelled.endswith("veintiuno"):
        return spelled.removesuffix("uno") + "ún"
    return spelled.removesuffix("o") if spelled.endswith("uno") else spelled


def _feminine(spelled: str) -> str:
    """A cardinal before a feminine noun: uno becomes una, doscientos becomes doscientas."""
    hundreds = spelled.replace("cientos", "cientas").replace("quinientos", "quinientas")
    return hundreds.removesuffix("o") + "a" if hundreds.endswith("uno") else hundreds
