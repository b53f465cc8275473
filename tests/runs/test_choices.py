"""The names that settings choose among are those of the tables, which --help does not import."""

import dataclasses
from pathlib import Path

import keras
import pytest

from keras_addnorm.basics.fields import list_settings
from keras_addnorm.data import readers
from keras_addnorm.data.demo import TARGETS
from keras_addnorm.data.normalization import RULES
from keras_addnorm.data.vocabulary import KINDS
from keras_addnorm.decoding import Beam, beam, length_penalties, search, splitting
from keras_addnorm.distribution import devices
from keras_addnorm.layers import self_attention
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.models import config as model_config
from keras_addnorm.runs import ModelChoice, RunConfig, choices, optimization, settings
from keras_addnorm.runs.toml_files import by_dotted_key, read_toml
from keras_addnorm.serving import stored_weights
from keras_addnorm.training import bleu_tokenizers

TABLES = {
    "DATA_FORMATS": ("auto", *readers.names()),
    "TOKENIZER_KINDS": KINDS,
    "NORMALIZATIONS": RULES,
    "DEMO_PAIRS": [f"en-{language}" for language in TARGETS],
    "PRESETS": model_config._PRESETS,
    "OPTIMIZERS": optimization.OPTIMIZERS,
    "SCHEDULES": optimization.SCHEDULES,
    "DISTRIBUTIONS": devices._CHOICES,
    "SPLITTINGS": splitting.names(),
    "BLEU_TOKENIZERS": (bleu_tokenizers.AUTO, *bleu_tokenizers.BLEU_TOKENIZERS),
    "SELF_ATTENTIONS": self_attention.names(),
    "STORAGES": stored_weights._STORAGES,
    "LENGTH_PENALTIES": {*length_penalties.names()} - {"none"},
}


@pytest.mark.parametrize("name", TABLES)
def test_the_names_are_those_of_the_table(name):
    assert sorted(getattr(choices, name)) == sorted(TABLES[name])


def test_the_recommended_search_is_that_of_exports():
    found = choices.NUM_BEAMS, choices.LENGTH_PENALTY
    assert found == (search.NUM_BEAMS, search.LENGTH_PENALTY)
    assert choices.PRESET_SCHEME == model_config.PRESET_SCHEME


def test_a_beam_search_stops_when_its_settings_say():
    rules = {name: Beam(early_stopping=each) for name, each in choices.BEAM_STOPPINGS.items()}
    assert {one.early_stopping for one in rules.values()} == {*beam._RULES}


@pytest.mark.parametrize("argument", choices.CLIPS.values())
def test_clips_are_arguments_of_keras(argument):
    assert getattr(keras.optimizers.Adam(**{argument: 0.5}), argument) == 0.5


@pytest.mark.parametrize(("name", "policy"), choices.PRECISIONS.items())
def test_precisions_are_policies_of_keras(name, policy):
    found = keras.dtype_policies.get(policy)
    assert (found.compute_dtype, found.variable_dtype) == (name, "float32")


def test_later_settings_are_those_that_a_run_of_the_first_version_lacks():
    stored = Path(__file__).parents[1] / "compatibility" / "0.1.0" / "run" / "config.toml"
    given = by_dotted_key(read_toml(stored))
    always = {one.key for one in list_settings(RunConfig) if one.default is not None}
    always -= {one.key for one in ModelChoice.more_settings()}
    assert always - given.keys() == settings._LATER


@pytest.mark.parametrize("name", choices.INITIALIZERS)
def test_initializers_are_those_of_keras(name):
    assert keras.initializers.get(name) is not None


def test_flags_of_the_model_have_the_defaults_of_its_configuration():
    fields = {field.name: field.default for field in dataclasses.fields(Seq2SeqConfig)}
    fields["scheme"] = model_config.PRESET_SCHEME  # of presets, not of the constructor
    for one in ModelChoice.more_settings():
        assert fields[one.name] == one.default or one.default is None, one.key
