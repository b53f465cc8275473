"""An export searches as the same `Search` does in Python, whichever field is set, and says so."""

import dataclasses

import numpy as np
import pytest
from exported import LENGTHS
from tiers import for_releases

from keras_addnorm.decoding import (
    Beam,
    Lexicon,
    NoRepeatNgram,
    NoSplitting,
    Prefix,
    Search,
    Shortlist,
    translate,
)
from keras_addnorm.decoding.decoder import DecoderInfo
from keras_addnorm.serving import export_saved_model, load_translator
from keras_addnorm.serving.request_batches import Buckets
from keras_addnorm.serving.signatures import Decoding

RANDOM = np.random.default_rng(2)
LEXICON = Lexicon(
    RANDOM.integers(3, 89, (101, 5)).astype("int32"),
    RANDOM.random((101, 5)).astype("float32"),
    RANDOM.random(89).astype("float32"),
)
# Another value of each field.
VALUES = {
    "strategy": Beam(3, "average", 2, early_stopping=True, coverage_penalty=0.4),
    "num_beams": 4,
    "length_penalty": 1.5,
    "max_length": 3,
    "constraints": (NoRepeatNgram(1),),
    "target_prefix": Prefix((7, 12), is_free=True),
    "shortlist": Shortlist(LEXICON, 30),
    "splitting": NoSplitting(),
}
CARD_KEYS = {"strategy": "strategies", "num_beams": "strategies", "length_penalty": "strategies"}
TEXTS = ["Ba di ku. Mon ler schätö?", "", "unvei kuba", "Zz aa ó! " + "mon " * 14]


def test_there_is_another_value_of_every_field():
    assert [*VALUES] == [field.name for field in dataclasses.fields(Search)]
    assert all(getattr(Search(), name) != value for name, value in VALUES.items())


@pytest.mark.parametrize("name", VALUES)
def test_the_card_has_each_field(name):
    """Each field changes one entry of the card; a new field without an entry fails here."""

    def card(search):
        strategies = {"translate": search.chosen}
        return Decoding(strategies, search, Buckets((1,), (8,))).to_dict()

    plain, other = card(Search()), card(Search(**{name: VALUES[name]}))
    assert {key for key in plain if plain[key] != other[key]} == {CARD_KEYS.get(name, name)}


@pytest.mark.slow
@pytest.mark.parametrize("name", for_releases(VALUES, but=("strategy", "constraints", "shortlist")))
def test_an_export_does_what_the_search_does(toy, tmp_path, name):
    search = Search(**{name: VALUES[name]})
    path = export_saved_model(
        toy.model,
        toy.tokenizers,
        tmp_path / "export",
        search=search,
        batch_buckets=(16,),  # All sentences are one batch, for which a shortlist is chosen.
        length_buckets=LENGTHS[-1:],
    )
    translator = load_translator(path)
    expected = translate(toy.model, toy.tokenizers, TEXTS, search=search, jit_compile=False)
    plain = translate(toy.model, toy.tokenizers, TEXTS, jit_compile=False)
    assert (expected.texts, [*expected.scores]) != (plain.texts, [*plain.scores])
    found = translator(TEXTS)
    assert [each.text for each in found] == expected.texts
    np.testing.assert_allclose([each.score for each in found], expected.scores, atol=1e-4)
    said = search.fitted(DecoderInfo.of(toy.model)).to_dict()
    card = translator.card["decoding"]
    one = {key: 1 if key == "num_return" else each for key, each in said.pop("strategy").items()}
    assert card["strategies"]["translate"] == one
    assert {key: card[key] for key in said} == said
