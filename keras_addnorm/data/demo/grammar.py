"""The interface of a language, and the slots of sentence patterns.

A *slot* is a meaning without a language: a country code, a date, forty-two of the unit ``hour``. A
`Grammar` expresses it in one language, in the form that a sentence pattern asks for: the pattern
``"{person} lebt seit {duration:dative} in {country}."`` puts the duration into the dative. Names of
countries, units, currencies and months come from Babel (Unicode CLDR), spelled-out numbers from
num2words. Genders, articles, a few dozen everyday nouns and the sentences themselves are in one
file per language.
"""

from __future__ import annotations

import abc
import datetime
import functools
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

_UNITS = {
    "minute": "duration-minute",
    "hour": "duration-hour",
    "day": "duration-day",
    "week": "duration-week",
    "month": "duration-month",
    "year": "duration-year",
    "meter": "length-meter",
    "kilometer": "length-kilometer",
    "mile": "length-mile",
    "gram": "mass-gram",
    "kilogram": "mass-kilogram",
    "liter": "volume-liter",
}
UNITS = tuple(_UNITS)
CURRENCIES = ("EUR", "USD", "GBP", "JPY", "CHF", "INR", "MXN", "SEK", "NOK", "DKK", "CZK", "CAD")


@dataclass(frozen=True)
class Word:
    """A noun in one language: its forms and its gender.

    Attributes:
        singular: The word for one.
        plural: The word for more than one; empty if the noun is never counted.
        gender: ``"m"``, ``"f"`` or ``"n"``; empty in a language without genders.
    """

    singular: str
    plural: str = ""
    gender: str = ""


class Grammar(abc.ABC):
    """One language: its nouns, its sentences and the rules that join them.

    The base class uses Babel and num2words as they are. A language overrides what its grammar
    changes.

    Attributes:
        language: The two-letter code, as Babel and num2words know it.
        nouns: The language's everyday nouns, by their key (the English word).
        genders: The gender of each unit and currency, by its key.
        sentences: One pattern for each template, by the template's key.
    """

    language: ClassVar[str]
    nouns: ClassVar[Mapping[str, Word]]
    genders: ClassVar[Mapping[str, str]]
    sentences: ClassVar[Mapping[str, str]]

    def word(self, key: str) -> Word:
        """The noun of a key: an everyday noun, or a unit or currency with its name in CLDR."""
        if key in self.nouns:
            return self.nouns[key]
        name = unit_name if key in _UNITS else currency_name
        return Word(
            name(key, 1, self.language), name(key, 2, self.language), self.genders.get(key, "")
        )

    @abc.abstractmethod
    def noun(self, key: str, form: str) -> str:
        """A noun with its article or contracted preposition, or its pronoun."""

    @abc.abstractmethod
    def count(self, number: int, key: str, form: str) -> str:
        """A spelled-out number and the noun that it counts, agreeing with each other."""

    def territory(self, code: str, form: str) -> str:
        """The name of a country, with the preposition where the form asks for one."""
        del form
        return territory_name(code, self.language)

    def date(self, day: datetime.date, form: str) -> str:
        """A date: ``"day"`` without the year, ``"long"`` with it."""
        return calendar_date(day, form, self.language)

    def weekday(self, day: datetime.date) -> str:
        """The day of the week."""
        return calendar_date(day, "weekday", self.language)

    def clock(self, time: datetime.time, form: str) -> str:
        """A time of day, on the clock (12 or 24 hours) that the language uses."""
        del form
        return clock_time(time, self.language)

    def person(self, person: Person, form: str) -> str:
        """A first name, or a word that agrees with the person's gender."""
        del form
        return person.name

    def sentence(self, template: str, slots: Mapping[str, Slot]) -> str:
        """One sentence: the template's pattern with its slots in this language."""
        texts = {name: _Formatted(slot, self) for name, slot in slots.items()}
        text = self.sentences[template].format_map(texts)
        return text[0].upper() + text[1:]


class Slot(Protocol):
    """A meaning without a language."""

    def say(self, grammar: Grammar, form: str) -> str:
        """Expresses the slot in a language, in the form that the sentence pattern asks for."""
        ...


@dataclass(frozen=True)
class Person:
    """A first name and the gender that words agree with."""

    name: str
    gender: str

    def say(self, grammar: Grammar, form: str) -> str:
        """The name, or the agreeing word that `form` names."""
        return grammar.person(self, form)


@dataclass(frozen=True)
class Noun:
    """An everyday noun, by its key."""

    key: str

    def say(self, grammar: Grammar, form: str) -> str:
        """The noun with the article or preposition that `form` names."""
        return grammar.noun(self.key, form)


@dataclass(frozen=True)
class Count:
    """A number of something: a unit, a currency or an everyday noun."""

    number: int
    key: str

    def say(self, grammar: Grammar, form: str) -> str:
        """Number and noun, agreeing, in the case that `form` names."""
        return grammar.count(self.number, self.key, form)


@dataclass(frozen=True)
class Territory:
    """A country, by its ISO 3166 code."""

    code: str

    def say(self, grammar: Grammar, form: str) -> str:
        """The country's name, with the preposition that `form` names where it changes."""
        return grammar.territory(self.code, form)


@dataclass(frozen=True)
class Day:
    """A day of the calendar."""

    date: datetime.date

    def say(self, grammar: Grammar, form: str) -> str:
        """The date (``day``, ``long``) or its day of the week (``weekday``)."""
        if form == "weekday":
            return grammar.weekday(self.date)
        return grammar.date(self.date, form)


@dataclass(frozen=True)
class Clock:
    """A time of day."""

    time: datetime.time

    def say(self, grammar: Grammar, form: str) -> str:
        """The time as the language's clock shows it."""
        return grammar.clock(self.time, form)


@dataclass(frozen=True)
class _Formatted:
    """A slot in a language, which ``"{slot:form}".format`` expresses in that form."""

    slot: Slot
    grammar: Grammar

    def __format__(self, form: str) -> str:
        return self.slot.say(self.grammar, form)


# Babel and num2words take tens of microseconds to milliseconds a call, and a data set repeats the
# same few thousand calls hundreds of thousands of times.


@functools.cache
def spell(number: int, language: str) -> str:
    """A number in words, as num2words spells it (no gender, no noun)."""
    from num2words import num2words

    return str(num2words(number, lang=language))


@functools.cache
def unit_name(key: str, number: int, language: str) -> str:
    """A unit's name from CLDR, in the plural form that `number` asks for."""
    from babel.units import format_unit

    return _plain(format_unit(number, _UNITS[key], locale=language)).split(" ", 1)[1]


@functools.cache
def currency_name(code: str, number: int, language: str) -> str:
    """A currency's name from CLDR, in the plural form that `number` asks for."""
    from babel.numbers import get_currency_name

    return _plain(get_currency_name(code, count=number, locale=language))


@functools.cache
def territory_name(code: str, language: str) -> str:
    """A country's name from CLDR."""
    from babel import Locale

    return _plain(Locale.parse(language).territories[code])


@functools.cache
def calendar_date(day: datetime.date, form: str, language: str) -> str:
    """A date (``long``), a date without its year (``day``) or a day of the week (``weekday``)."""
    from babel.dates import format_date, format_skeleton

    if form == "day":
        return _plain(format_skeleton("MMMMd", day, locale=language))
    return _plain(format_date(day, {"long": "long", "weekday": "EEEE"}[form], locale=language))


@functools.cache
def clock_time(time: datetime.time, language: str) -> str:
    """A time of day in CLDR's short format."""
    from babel.dates import format_time

    return _plain(format_time(time, "short", locale=language))


def starts_with_vowel(text: str) -> bool:
    """Whether French elides before `text`; every h of this small lexicon is mute."""
    return unicodedata.normalize("NFD", text)[0].lower() in "aeiouh"


def _plain(text: str) -> str:
    """CLDR's no-break spaces as ordinary ones."""
    return text.replace("\u202f", " ").replace("\xa0", " ")
