import dataclasses
import json

import numpy as np
import pytest
from models_reference import SOURCE, V_TARGET, array, tiny_model

from keras_addnorm.basics.table import ENTRY
from keras_addnorm.decoding import (
    AveragePenalty,
    Beam,
    CoveragePenalty,
    DiverseBeam,
    Greedy,
    MinLength,
    Sample,
    Search,
    Strategy,
    strategies,
)

ALL = [
    Greedy(),
    Greedy("average", 0.3),
    Beam(),
    Beam(5, 0.6, 2, False, CoveragePenalty(0.2, 1)),
    DiverseBeam(6, 3, 0.9, AveragePenalty(0.4), 2),
    Sample(0.7, 5, 0.9, 11, 3, 1.0, 0.1),
]


@pytest.mark.parametrize("strategy", ALL, ids=str)
def test_the_table_goes_there_and_back(strategy):
    written = json.loads(json.dumps(strategies.serialize(strategy)))
    assert strategies.get(written) == strategy
    assert hash(strategies.get(written)) == hash(strategy)
    assert strategies.get(strategy) is strategy


def test_a_strategy_that_holds_another_goes_there_and_back(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Outer(Greedy):
        of: Strategy = dataclasses.field(
            default=Beam(3, 0.6, coverage_penalty=CoveragePenalty(0.2)), metadata=ENTRY
        )

    monkeypatch.setattr(strategies._TABLE, "_classes", dict(strategies._TABLE._classes))
    strategies.register("outer", Outer)
    written = json.loads(json.dumps(strategies.serialize(Outer())))
    assert strategies.get(written) == Outer()


def test_names():
    assert strategies.names() == ("greedy", "beam", "diverse_beam", "sample")
    assert [type(strategies.get(name)) for name in strategies.names()] == [
        Greedy,
        Beam,
        DiverseBeam,
        Sample,
    ]


def test_equal_choices_are_equal_however_they_are_written():
    assert Beam(4, 0.6) == Beam(4, {"name": "gnmt", "alpha": 0.6})
    assert strategies.get({"name": "beam", "coverage_penalty": 0.2}) == Beam(
        coverage_penalty=CoveragePenalty(0.2)
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((None, None, None), Greedy()),
        ((None, 1, 0.6), Greedy(0.6)),
        ((None, None, "average"), Greedy(AveragePenalty())),
        ((None, 4, None), Beam(4)),
        ((None, 4, 0.6), Beam(4, 0.6)),
        (("beam", None, None), Beam()),
    ],
)
def test_the_short_way_and_the_long_way(arguments, expected):
    assert Search(*arguments).chosen == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: strategies.get("beams"),
            "no such decoding strategy. Expected one of greedy, beam",
        ),
        (lambda: strategies.get(4), "no such decoding strategy.*Received: 4"),
        (lambda: strategies.get({"name": "beam", "beams": 3}), r"no such field.*\['beams'\]"),
        (lambda: Search("beam", 4), "described twice.*'beam', num_beams=4"),
        (lambda: Search(Greedy(), length_penalty=0.0), "described twice.*length_penalty=0.0"),
        (lambda: Search(num_beams=0), "Expected an int num_beams >= 1. Received: 0"),
        (lambda: Beam(2.5), "Expected an int num_beams >= 1. Received: 2.5"),
        (lambda: Beam(True), "Received: True"),
        (lambda: Beam(3, num_return=4), "Expected num_return <= num_beams.*=4, num_beams=3"),
        (lambda: Beam(3, num_return=0), "Expected an int num_return >= 1. Received: 0"),
        (lambda: Beam(3, "gmnt"), "no such length penalty"),
        (lambda: DiverseBeam(5, 2), "a multiple of num_groups.*num_beams=5, num_groups=2"),
        (lambda: DiverseBeam(4, 0), "Expected an int num_groups >= 1. Received: 0"),
        (lambda: DiverseBeam(4, 2, -0.1), "Expected 0 <= diversity <= 10000. Received: -0.1"),
        # An impossible token would cost less than one that was used.
        (lambda: DiverseBeam(4, 2, 1e9), "Received: 1000000000.0"),
        (lambda: DiverseBeam(4, 2, num_return=5), "num_return=5, num_beams=4"),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.fixture(scope="module")
def model():
    return tiny_model(num_encoder_layers=1, num_decoder_layers=1, max_length=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_prefix": [[3, 4]]}, r"a row for each sentence.*\(3, length\).*\(1, 2\)"),
        ({"target_prefix": np.full((3, 5), 4), "max_length": 4}, "max_length = 4.*Received: 5"),
        ({"target_prefix": np.full((3, 2), 4.0)}, "Target ids have to be integers"),
        ({"target_prefix": np.full((3, 2), V_TARGET)}, "A target id lies outside the vocabulary"),
        ({"target_prefix": [[3, 0, 4]] * 3}, "no padding \\(0\\) in between"),
        ({"target_prefix": [[1, 4]] * 3}, "no start token \\(1\\)"),
        ({"target_prefix": [[4, 2]] * 3}, "no end token \\(2\\)"),
        ({"constraints": [MinLength(8)]}, "longer than the longest.*max_length=7"),
        ({"constraints": ["nothing"]}, "no such constraint"),
        ({"constraints": [{"name": "forbidden_tokens", "tokens": [11]}]}, "ids from 0 to 10"),
        ({"strategy": "beam", "num_beams": 4}, "described twice"),
    ],
)
def test_bad_requests_are_named(options, message, model):
    with pytest.raises(ValueError, match=message):
        model.generate(SOURCE, **options)


def test_logits_that_are_no_numbers_name_the_step():
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1, positions="learned")
    kernel = model.decoder_embedding.position_encoding.embeddings
    table = array(kernel).copy()
    table[2] = np.nan
    kernel.assign(table)
    with pytest.raises(FloatingPointError, match="NaN or infinite at step 2 of the search"):
        model.generate(SOURCE, "beam", max_length=5, jit_compile=False)
    ids, _ = model.generate(SOURCE, max_length=2, jit_compile=False)
    assert ids.shape == (3, 2)
    with pytest.raises(FloatingPointError, match="NaN or infinite while outputs were scored"):
        model.score(SOURCE, np.full((3, 3), 5), jit_compile=False)


@pytest.mark.slow
def test_one_compilation_a_bucket_whatever_the_seed_and_the_prefix(model, monkeypatch):
    traced = []
    encode = type(model).encode

    def counting(self, source_ids):
        traced.append(tuple(source_ids.shape))
        return encode(self, source_ids)

    monkeypatch.setattr(type(model), "encode", counting)
    monkeypatch.setitem(vars(model), "_compiled_decoders", {})

    def compiled():
        return [shape for _, ((shape, _), *_), _ in vars(model)["_compiled_decoders"]]

    options = {"max_length": 3, "jit_compile": False}
    for seed, batch_size in ((0, 3), (5, 4), (-9, 3)):
        source = np.tile(SOURCE[:1], (batch_size, 1))
        model.generate(source, Sample(0.8, seed=seed), **options)
    assert compiled() == [(4, 16)] and len(traced) == 1
    for length in (1, 2, 3):
        prefix = np.full((3, length), 4)
        ids, _ = model.generate(SOURCE, Sample(0.8), target_prefix=prefix, **options)
        np.testing.assert_array_equal(ids[:, :length], 4)
    assert compiled() == [(4, 16), (4, 16)] and len(traced) == 2
    model.generate(SOURCE, Sample(0.9), **options)
    model.generate(SOURCE, Sample(0.9), constraints=[MinLength(2)], **options)
    assert len(traced) == 4


def test_another_seed_gives_another_sample_without_compiling(model):
    options = {"max_length": 6, "jit_compile": False}
    found = [model.generate(SOURCE, Sample(seed=seed), **options) for seed in (0, 1, 0)]
    assert (found[0][0] != found[1][0]).any()
    np.testing.assert_array_equal(found[0][0], found[2][0])
    np.testing.assert_array_equal(found[0][1], found[2][1])
