"""What an export holds of a run's search, and what the command's note says of the rest."""

import dataclasses
import types
from types import SimpleNamespace

import numpy as np
import pytest
from fake_engine import write_fake_engine

from keras_addnorm import cli
from keras_addnorm.decoding import Lexicon, Shortlist
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.choices import BEAM_STOPPINGS
from keras_addnorm.runs.export import FORMATS
from keras_addnorm.runs.settings import SEARCH_SETTINGS, EvaluationConfig

DEFAULT = EvaluationConfig()
OTHER = {
    "num_beams": 3,
    "length_penalty": 0.25,
    "length_penalty_kind": "average",
    "beam_stopping": next(name for name in BEAM_STOPPINGS if name != DEFAULT.beam_stopping),
    "max_length": 7,
    "max_length_factor": 1.5,
    "min_length": 2,
    "no_repeat_ngram": 5,
    "forbidden_ids": (3,),
    "shortlist": 11,
    "splitting": "long_texts",
    "batch_size": 13,
    "samples": 17,
    "bleu_tokenizer": "char",
}
LEXICON = Lexicon(np.zeros((11, 1), "int32"), np.ones((11, 1), "float32"), np.ones(11, "float32"))
SHORTLISTS = {0: None, OTHER["shortlist"]: Shortlist(LEXICON, OTHER["shortlist"])}
WRITERS = {
    "saved_model": "keras_addnorm.serving.export_saved_model",
    "ctranslate2": "keras_addnorm.interop.export_ctranslate2",
    "onnx": "keras_addnorm.interop.export_onnx",
    "litert": "keras_addnorm.interop.export_litert",
    "bergamot": "keras_addnorm.interop.export_bergamot",
}


@pytest.fixture
def exported(monkeypatch, tmp_path, capsys):
    """Exports a run by the command; returns what the writer was given, and what was said."""

    def export(name, settings, *flags, scores=types.MappingProxyType({})):
        given = {}
        directory = RunDirectory(tmp_path / "run")
        directory.write_config(RunConfig().replace(settings))

        def load(options, config):
            return SimpleNamespace(
                model="model",
                tokenizers="tokenizers",
                search=lambda: config.search(shortlist=SHORTLISTS[config.evaluation.shortlist]),
                config=config,
                directory=SimpleNamespace(
                    read_scores=lambda: scores, path=directory.path, log=directory.log
                ),
            )

        def write(*places, **choices):
            given.update(choices, places=places)
            return places

        monkeypatch.setattr("keras_addnorm.runs.commands.export.load", load)
        monkeypatch.setattr(WRITERS[name], write)
        arguments = ["export", "--run-dir", str(directory.path), "new", "--format", name, *flags]
        assert cli.main(arguments) == 0
        return given, capsys.readouterr().err

    return export


def test_there_is_another_value_of_every_setting():
    assert [*OTHER] == [field.name for field in dataclasses.fields(DEFAULT)]
    assert all(getattr(DEFAULT, name) != value for name, value in OTHER.items())
    assert {*OTHER} - {*SEARCH_SETTINGS} == {"batch_size", "samples", "bleu_tokenizer"}
    assert [*WRITERS] == [*FORMATS]


@pytest.mark.parametrize("name", FORMATS)
def test_a_setting_is_inside_of_an_export_or_in_the_note(exported, name):
    """Once, the note said of a SavedModel with `min_length` that it translates without."""
    plain, note = exported(name, {})
    assert note == ""
    for setting, value in OTHER.items():
        key = f"evaluation.{setting}"
        given, note = exported(name, {key: value})
        is_inside = setting in FORMATS[name].search
        assert (given != plain) == is_inside, setting
        is_lost = setting in SEARCH_SETTINGS and not is_inside
        assert (f": {key} = {value}. Ask" in note) == is_lost and bool(note) == is_lost, setting


@pytest.mark.parametrize("name", FORMATS)
def test_the_flags_that_a_format_takes_are_those_that_it_has_inside(exported, capsys, name):
    for setting in SEARCH_SETTINGS:
        value = OTHER[setting]
        values = value if isinstance(value, tuple) else (value,)
        flags = (f"--{setting.replace('_', '-')}", *map(str, values))
        if setting in FORMATS[name].search:
            given, note = exported(name, {}, *flags)
            assert (given, note) == exported(name, {f"evaluation.{setting}": value})
        else:
            with pytest.raises(AssertionError):
                exported(name, {}, *flags)
            said = capsys.readouterr().err
            assert f"An export with --format {name} has no {flags[0]} inside. Expected" in said


def test_a_page_says_of_a_run_what_its_card_does(exported, tmp_path):
    engine = str(write_fake_engine(tmp_path / "engine"))
    demo = {"data": "demo/en-de", "source": "en", "target": "de"}
    given, _ = exported("bergamot", demo, "--engine", engine)
    page = given["page"]
    assert (page.engine, page.name) == (tmp_path / "engine", "run")
    assert (page.source, page.target) == ("en", "de")
    assert "sixteen kinds of sentences" in page.note
    assert page.facts == {"Trained on": "demo/en-de", "Licence": "not stated"}

    figures = {"cased": {"bleu": 38.04, "chrf": 61.96}, "sentences": 1200}
    scores = {"validation": {}, "test": figures}
    licensed = {**demo, "licence": "CC0"}
    given, _ = exported("bergamot", licensed, "--engine", engine, scores=scores)
    said = "BLEU 38.0, chrF 62.0 on 1,200 sentences (test), before the rounding to eight bits"
    expected = {"Scores": said, "Trained on": "demo/en-de", "Licence": "CC0"}
    assert given["page"].facts == expected
    given, _ = exported("bergamot", licensed)
    assert len(given["samples"]) == 100
    assert given["page"] is None


def test_what_is_no_engine_or_has_no_place_for_one_is_refused(exported, capsys, tmp_path):
    for name, words in (("bergamot", "npm install"), ("onnx", "has no --engine inside")):
        with pytest.raises(AssertionError):
            exported(name, {}, "--engine", str(tmp_path))
        assert words in capsys.readouterr().err


def test_a_run_without_pairs_claims_none(exported, tmp_path):
    """One that was imported: its pairs were the demo set's, whatever its languages."""
    engine = str(write_fake_engine(tmp_path / "engine"))
    languages = {"source": "ja", "target": "en"}
    given, _ = exported("bergamot", languages, "--engine", engine)
    assert given["samples"] == []
    assert (given["page"].note, given["page"].facts) == ("", {"Licence": "not stated"})
    assert (given["page"].source, given["page"].target) == ("ja", "en")
    given, _ = exported("saved_model", languages)
    assert given["card"]["training_data"] is None and "note" not in given["card"]
