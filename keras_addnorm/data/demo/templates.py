"""The templates of the demo sentences: which slots each one has, and their random values.

The words of a template are in the language files, under the template's name. A slot takes its value
from a short, fixed list, so that a training set of the default size contains every item often. A
held-out sentence tests a combination of items that training has not shown.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping

from keras_addnorm.data.demo.grammar import (
    CURRENCIES,
    Clock,
    Count,
    Day,
    Noun,
    Person,
    Slot,
    Territory,
)

PEOPLE = (
    *(Person(name, "f") for name in ("Anna", "Clara", "Emma", "Julia", "Laura", "Sophie")),
    *(Person(name, "m") for name in ("David", "Felix", "Martin", "Paul", "Simon", "Thomas")),
)
# Countries that German, Spanish and English name without an article.
COUNTRIES = (
    "AT",
    "BE",
    "BR",
    "CA",
    "CL",
    "CN",
    "DE",
    "DK",
    "EG",
    "ES",
    "FI",
    "FR",
    "GR",
    "IE",
    "IN",
    "IT",
    "JP",
    "KE",
    "MX",
    "NO",
    "PE",
    "PL",
    "PT",
    "SE",
)
THINGS = (
    "bag",
    "bicycle",
    "book",
    "carpet",
    "chair",
    "clock",
    "coat",
    "guitar",
    "lamp",
    "mirror",
    "painting",
    "table",
)
LANDMARKS = (
    "airport",
    "beach",
    "bridge",
    "castle",
    "church",
    "hotel",
    "lake",
    "museum",
    "station",
    "village",
)
BUILDINGS = ("castle", "church", "hotel", "museum", "school", "station", "theater", "village")
PUBLIC_PLACES = ("castle", "church", "market", "museum", "school", "theater")
COUNTABLE = ("book", "chair", "child", "guest", "lamp", "man", "painting", "table", "woman")
LIQUIDS = ("milk", "oil", "water", "wine")
DRY_GOODS = ("butter", "flour", "rice", "sugar")
LONG_TIMES = ("day", "week", "month", "year")
DISTANCES = ("kilometer", "meter", "mile")

Slots = Mapping[str, Slot]


def _person(rng: random.Random) -> Person:
    return rng.choice(PEOPLE)


def _territory(rng: random.Random) -> Territory:
    return Territory(rng.choice(COUNTRIES))


def _noun(rng: random.Random, keys: tuple[str, ...]) -> Noun:
    return Noun(rng.choice(keys))


def _number(rng: random.Random, low: int, high: int) -> int:
    """A number from `low` to `high`, but never 101, 201, ..."""
    number = rng.randint(low, high)
    return number + 1 if number > 1 and number % 100 == 1 else number


def _everyday_number(rng: random.Random) -> int:
    """A number from 2 to 999, small numbers more often."""
    return _number(rng, 2, 99) if rng.random() < 0.6 else _number(rng, 100, 999)


def _price(rng: random.Random) -> Count:
    return Count(_everyday_number(rng), rng.choice(CURRENCIES))


def _duration(rng: random.Random) -> Count:
    return Count(_number(rng, 1, 99), rng.choice(LONG_TIMES))


def _day(rng: random.Random, first_year: int, last_year: int) -> Day:
    first = datetime.date(first_year, 1, 1).toordinal()
    last = datetime.date(last_year, 12, 31).toordinal()
    return Day(datetime.date.fromordinal(rng.randint(first, last)))


def _clock(rng: random.Random) -> Clock:
    return Clock(datetime.time(rng.randrange(24), 5 * rng.randrange(12)))


def _birth(rng: random.Random) -> Slots:
    return {"person": _person(rng), "country": _territory(rng), "day": _day(rng, 1960, 2009)}


def _residence(rng: random.Random) -> Slots:
    return {"person": _person(rng), "country": _territory(rng), "duration": _duration(rng)}


def _age(rng: random.Random) -> Slots:
    age = Count(_number(rng, 2, 99), "year")
    return {"person": _person(rng), "country": _territory(rng), "age": age}


def _price_and_weight(rng: random.Random) -> Slots:
    weight = rng.choice(
        (Count(_number(rng, 2, 99), "kilogram"), Count(_number(rng, 100, 999), "gram"))
    )
    return {"thing": _noun(rng, THINGS), "weight": weight, "price": _price(rng)}


def _purchase(rng: random.Random) -> Slots:
    return {"person": _person(rng), "thing": _noun(rng, THINGS), "price": _price(rng)}


def _distance(rng: random.Random) -> Slots:
    place, landmark = rng.sample(LANDMARKS, 2)
    distance = Count(_everyday_number(rng), rng.choice(DISTANCES))
    return {"place": Noun(place), "landmark": Noun(landmark), "distance": distance}


def _shopping(rng: random.Random) -> Slots:
    unit, goods = rng.choice((("liter", LIQUIDS), ("kilogram", DRY_GOODS)))
    return {
        "person": _person(rng),
        "amount": Count(_number(rng, 1, 20), unit),
        "substance": _noun(rng, goods),
        "price": Count(_number(rng, 2, 99), rng.choice(CURRENCIES)),
    }


def _waiting(rng: random.Random) -> Slots:
    return {
        "person": _person(rng),
        "hours": Count(_number(rng, 1, 23), "hour"),
        "minutes": Count(_number(rng, 1, 59), "minute"),
    }


def _crowd(rng: random.Random) -> Slots:
    crowd = Count(_everyday_number(rng), rng.choice(COUNTABLE))
    return {"crowd": crowd, "place": _noun(rng, BUILDINGS)}


def _opening(rng: random.Random) -> Slots:
    day = _day(rng, 2024, 2030)
    return {"day": day, "place": _noun(rng, PUBLIC_PLACES), "clock": _clock(rng)}


def _departure(rng: random.Random) -> Slots:
    return {"country": _territory(rng), "clock": _clock(rng)}


def _journey(rng: random.Random) -> Slots:
    country, destination = rng.sample(COUNTRIES, 2)
    return {
        "person": _person(rng),
        "country": Territory(country),
        "destination": Territory(destination),
        "day": _day(rng, 2024, 2043),
    }


def _visit(rng: random.Random) -> Slots:
    return {"country": _territory(rng), "day": _day(rng, 2024, 2043)}


def _loan(rng: random.Random) -> Slots:
    person, friend = rng.sample(PEOPLE, 2)
    return {
        "person": person,
        "friend": friend,
        "thing": _noun(rng, THINGS),
        "duration": _duration(rng),
    }


TEMPLATES: Mapping[str, Callable[[random.Random], Slots]] = {
    "birth": _birth,
    "residence": _residence,
    "age": _age,
    "price": _price_and_weight,
    "knowledge": _purchase,
    "reason": _purchase,
    "payment": _purchase,
    "distance": _distance,
    "shopping": _shopping,
    "waiting": _waiting,
    "crowd": _crowd,
    "opening": _opening,
    "departure": _departure,
    "journey": _journey,
    "visit": _visit,
    "loan": _loan,
}
