"""A `Search` is the options of every function that searches, as keywords or as one object."""

import dataclasses
import inspect
import json

import keras
import numpy as np
import pytest
from models_reference import SOURCE, array, tiny_model

from keras_addnorm import decoding
from keras_addnorm.decoding import Beam, Greedy, NoRepeatNgram, Prefix, Search, decode, translate
from keras_addnorm.decoding.decoder import DecoderInfo
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.serving import export_saved_model

FIELDS = [field.name for field in dataclasses.fields(Search)]
FUNCTIONS = {
    "decode": (decode, {"splitting"}),
    "generate": (decoding.generate, {"splitting"}),
    "Seq2SeqTransformer.generate": (Seq2SeqTransformer.generate, {"splitting"}),
    "translate": (translate, set()),
    "export_saved_model": (export_saved_model, set()),
}


@pytest.fixture(scope="module")
def model():
    return tiny_model(num_encoder_layers=1, num_decoder_layers=1, max_length=6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_fields_are_the_keywords(name):
    function, without = FUNCTIONS[name]
    parameters = inspect.signature(function).parameters
    assert [each for each in parameters if each in FIELDS] == [
        each for each in FIELDS if each not in without
    ]
    assert parameters["strategy"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert parameters["search"].kind is inspect.Parameter.KEYWORD_ONLY


def test_keywords_and_the_object_are_the_same_search(model):
    options = {"max_length": 5, "constraints": [NoRepeatNgram(1)], "target_prefix": [4]}
    source = keras.ops.convert_to_tensor(SOURCE)
    expected = model.generate(SOURCE, Beam(3, 0.6), **options, jit_compile=False)
    search = Search(num_beams=3, length_penalty=0.6, **options)
    for found in (
        model.generate(SOURCE, search=search, jit_compile=False),
        model.generate(SOURCE, num_beams=3, length_penalty=0.6, **options, jit_compile=False),
        decode(model, source, search=dataclasses.replace(search, target_prefix=Prefix([4]))),
    ):
        np.testing.assert_array_equal(array(found[0]), expected[0])
        np.testing.assert_allclose(array(found[1]), expected[1], rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{"num_beams": 2}, {"strategy": "greedy"}, {"constraints": ["min_length"]}]
)
def test_both_ways_at_once_are_refused(model, options):
    with pytest.raises(ValueError, match=f"described twice.*, and {next(iter(options))}. Put"):
        model.generate(SOURCE, search=Search(), **options)


def test_what_is_not_said_is_no_second_way(model):
    nothing = {"num_beams": None, "constraints": (), "max_length": None}
    ids, _ = model.generate(SOURCE, search=Search(max_length=2), **nothing, jit_compile=False)
    assert ids.shape == (3, 2)


def test_a_fitted_search_says_each_option(model):
    fitted = Search(num_beams=3).fitted(DecoderInfo.of(model))
    assert (fitted.strategy, fitted.max_length) == (Beam(3), 6)
    assert (fitted.num_beams, fitted.length_penalty) == (None, None)
    assert Search().fitted(DecoderInfo.of(model)).strategy == Greedy()


def test_the_numbers_of_a_card_are_plain():
    rules = [{"name": "min_length", "length": np.int64(2)}]
    prefix = np.array([3, 4])
    search = Search(
        num_beams=np.int64(4), max_length=np.int32(7), constraints=rules, target_prefix=prefix
    )
    found = json.loads(json.dumps(search.to_dict()))
    assert found == search.to_dict()
    assert (found["strategy"]["num_beams"], found["max_length"]) == (4, 7)
    assert (found["constraints"][0]["length"], found["target_prefix"]["tokens"]) == (2, [3, 4])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temperature", r"Write a strategy that has it: Sample\(temperature=...\)"),
        ("max_new_tokens", "Write max_length"),
        ("num_return_sequences", r"Write a strategy that returns several: Beam\(4, num_return=4\)"),
        ("repetition_penalty", r"Write constraints=\[NoRepeatNgram\(3\)\]"),
        ("constraint", "Did you mean 'constraints'"),
    ],
)
def test_an_argument_of_another_library_is_answered_with_ours(model, name, meant):
    with pytest.raises(TypeError, match=rf"^generate\(\) has no argument '{name}'\. {meant}"):
        model.generate(np.array([[4, 5]]), **{name: 4})
