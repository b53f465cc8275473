"""English: the source side of every demo pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from keras_addnorm.data.demo.grammar import Grammar, Word, spell


class English(Grammar):
    """English nouns and sentences."""

    language = "en"
    genders: ClassVar[Mapping[str, str]] = {}
    nouns: ClassVar[Mapping[str, Word]] = {
        "airport": Word("airport"),
        "bag": Word("bag"),
        "beach": Word("beach"),
        "bicycle": Word("bicycle"),
        "book": Word("book", "books"),
        "bridge": Word("bridge"),
        "butter": Word("butter"),
        "carpet": Word("carpet"),
        "castle": Word("castle"),
        "chair": Word("chair", "chairs"),
        "child": Word("child", "children"),
        "church": Word("church"),
        "clock": Word("clock"),
        "coat": Word("coat"),
        "flour": Word("flour"),
        "guest": Word("guest", "guests"),
        "guitar": Word("guitar"),
        "hotel": Word("hotel"),
        "lake": Word("lake"),
        "lamp": Word("lamp", "lamps"),
        "man": Word("man", "men"),
        "market": Word("market"),
        "milk": Word("milk"),
        "mirror": Word("mirror"),
        "museum": Word("museum"),
        "oil": Word("oil"),
        "painting": Word("painting", "paintings"),
        "rice": Word("rice"),
        "school": Word("school"),
        "station": Word("station"),
        "sugar": Word("sugar"),
        "table": Word("table", "tables"),
        "theater": Word("theater"),
        "village": Word("village"),
        "water": Word("water"),
        "wine": Word("wine"),
        "woman": Word("woman", "women"),
    }
    sentences: ClassVar[Mapping[str, str]] = {
        "birth": "{person} was born in {country} on {day:long}.",
        "residence": "{person} has been living in {country} for {duration}.",
        "age": "{person} is {age} old and comes from {country}.",
        "price": "{thing} weighs {weight} and costs {price}.",
        "knowledge": "{person} knows that {thing} costs {price}.",
        "reason": "{person} is buying {thing} because it only costs {price}.",
        "payment": "{person} paid {price} for {thing}.",
        "distance": "{place} is {distance} from {landmark}.",
        "shopping": "{person} is buying {amount} of {substance:bare} for {price}.",
        "waiting": "{person} has to wait {hours} and {minutes}.",
        "crowd": "there are {crowd} in {place}.",
        "opening": "on {day:weekday}, {day:day}, {place} opens at {clock}.",
        "departure": "the plane to {country} takes off at {clock}.",
        "journey": "{person} will travel from {country} to {destination} on {day:long}.",
        "visit": "the guests from {country} will arrive on {day:weekday}, {day:long}.",
        "loan": "{person} lent {thing} to {friend} for {duration}.",
    }

    def noun(self, key: str, form: str) -> str:
        """``"the lamp"``, or the noun by itself for the form ``bare``."""
        noun = self.word(key).singular
        return noun if form == "bare" else f"the {noun}"

    def count(self, number: int, key: str, form: str) -> str:
        """``"one hour"``, ``"twenty-one hours"``."""
        del form
        word = self.word(key)
        return f"{spell(number, 'en')} {word.singular if number == 1 else word.plural}"
