"""A right call of each public function and class, which `test_wrong_calls` spoils in one place."""

import contextlib
import dataclasses
import functools
import importlib
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from unittest import mock

import keras
import numpy as np
from fake_engine import write_fake_engine
from wrong_values import NO_BOOL, NO_CALL, NO_CHOICE, NO_INT, NO_NUMBER, NO_OBJECT, NOTHING

from keras_addnorm import (
    alignment,
    data,
    decoding,
    diagnostics,
    distribution,
    interop,
    layers,
    models,
    norms,
    schemes,
    serving,
    training,
)
from keras_addnorm.layers import positions

V = 14
SOURCE = np.array([[4, 5, 2], [6, 2, 0]])
TARGET = np.array([[1, 4], [1, 5]])
LABELS = np.array([[4, 2], [5, 2]])
TEXTS = ["a small house", "a small mouse"]
PAIRS = [("a small house", "a mouse"), ("a mouse", "a small house")]
LEXICON_PAIRS = [([5, 6, 2], [8, 9, 2]), ([5, 7, 2], [8, 10, 2])]


class ReachedError(Exception):
    """The checks are done: what takes time begins."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A right call.

    Attributes:
        function: Makes what is called; only when it is needed.
        arguments: Makes the arguments that have no default, and those that are to be another.
        wrong: For arguments whose annotation does not say it, or says too little: what they cannot
            be; `None` for what takes anything.
        out_of_range: Values of the right type that mean nothing.
        keywords: The same as `wrong`, of arguments that the signature has in its `**kwargs`.
        stops_at: What is reached once all is checked, as `mock.patch` takes it.
    """

    function: Callable
    arguments: Callable[[], Mapping] = dict
    wrong: Mapping = dataclasses.field(default_factory=dict)
    out_of_range: Mapping = dataclasses.field(default_factory=dict)
    stops_at: tuple[str, ...] = ()
    keywords: Mapping = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def stopped(self):
        """Makes what takes time raise `ReachedError`."""
        with contextlib.ExitStack() as stack:
            for place in self.stops_at:
                home, _, name = place.rpartition(".")
                # Not `mock.patch`: some functions have the name of the module that they are in.
                owner = keras.Model if home == "keras.Model" else importlib.import_module(home)
                stack.enter_context(mock.patch.object(owner, name, side_effect=ReachedError))
            yield


@functools.cache
def config(**fields):
    return models.Seq2SeqConfig(
        V,
        V,
        **{
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "hidden_dim": 8,
            "intermediate_dim": 8,
            "num_heads": 2,
            "max_length": 8,
        }
        | fields,
    )


@functools.cache
def model(**fields):
    return models.Seq2SeqTransformer(config(**fields))


@functools.cache
def compiled():
    made = models.Seq2SeqTransformer(config())
    made.compile("sgd", training.MaskedSparseCategoricalCrossentropy())
    return made


@functools.cache
def tokenizer(kind="unigram"):
    return data.Tokenizer.train(TEXTS, vocabulary_size=V, kind=kind)


@functools.cache
def lexicon():
    return decoding.Lexicon.estimate(
        LEXICON_PAIRS, source_vocabulary_size=V, target_vocabulary_size=V
    )


@functools.cache
def folder():
    return pathlib.Path(tempfile.mkdtemp(prefix="calls"))


@functools.cache
def engine():
    return write_fake_engine(folder() / "engine")


def inputs():
    return {"source": SOURCE, "target": TARGET}


def always(value):
    return lambda: value


def given(**arguments):
    return lambda: arguments


# What several arguments cannot be.
NO_IDS = (None, 3, "a", [[1.5]], [["a"]], [[-1]], [[V]], [[2**40]], [[[1]]], [[1], [1, 2]], NOTHING)
NO_STRATEGY = (*NO_CHOICE, {"name": "beam", "num_beams": 0}, {"name": "beam", "beams": 2})
NO_PENALTY = (True, np.nan, np.inf, "no such", ["a"], {}, {"name": "gnmt", "alpha": "a"}, NOTHING)
NO_CONSTRAINTS = (
    None,
    3,
    decoding.MinLength(2),
    "min_length",
    {"name": "min_length", "length": 2},
    [3],
    ["no such"],
    [{"name": "min_length"}],
    [decoding.ForbiddenTokens(tuple(range(V)))],
    [decoding.ForbiddenTokens((V,))],
    [decoding.MinLength(7), decoding.MaxLength(2)],
    [decoding.ForbiddenTokens((2,)), decoding.MaxLength(2)],
    NOTHING,
)
NO_ACTIVATION = (3, "no such", {}, {"class_name": "Dense", "config": {"units": 3}}, NOTHING)
NO_INITIALIZER = (
    *(None, 3, "no such", b"zeros", ["zeros"], {}, {"name": "zeros"}, {"class_name": 3}),
    {"class_name": "no such", "config": {}},
    {"class_name": "Zeros", "config": {"no such": 1}},
    {"class_name": "RandomNormal", "config": {"stddev": "a"}},
    {"class_name": "Constant", "config": {"value": np.nan}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}},
    {"module": "keras", "class_name": "Sequential", "config": {}, "registered_name": None},
    {"module": "os", "class_name": "getcwd", "config": "getcwd", "registered_name": "getcwd"},
    NOTHING,
)
NO_DTYPE = (
    *(3, "no such", "int32", "string", b"float32", ["float32"], {}, {"name": "float32"}),
    {"class_name": "no such", "config": {}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}},
    NOTHING,
)
NO_MODEL = (None, 3, "a", keras.layers.Dense(2), models.Seq2SeqTransformer, NOTHING)
NO_TOKENIZER = (None, 3, "a", ["a"], data.Tokenizer, NOTHING)
NO_ADDED = (None, 3, "{", ["{"], (data.AddedToken("no such"),), NOTHING)
NO_TEXTS = (None, 3, "a", b"a", [3], [b"a"], [None], NOTHING)
NO_SHORTLIST = (3, "a", ["a"], {}, decoding.Shortlist, NOTHING)
NO_SPLITTING = NO_CHOICE
NO_PAIRS = (None, 3, "ab", [3], ["ab"], [("a",)], [("a", 3)], [{"a": "b"}], [], NOTHING)
SIZE = (0, -1)
SHARE = (-0.1, 1.0, 2)
FACTOR = (-1.0,)

BLOCK = {"num_heads": 2, "intermediate_dim": 8}
BLOCK_WRONG = {
    "num_heads": NO_INT,
    "intermediate_dim": NO_INT,
    "head_dim": NO_INT,
    "activation": NO_ACTIVATION,
    "scheme": NO_CHOICE,
    "norm": NO_CHOICE,
    "kernel_initializer": NO_INITIALIZER,
    "bias_initializer": NO_INITIALIZER,
    "attention": (3, "a", ["a"], {"no such": 1}, {"window": 0}, {3: 4}, NOTHING),
    "positions": NO_CHOICE,
    "self_attention": NO_CHOICE,
}
BLOCK_RANGE = {
    "num_heads": SIZE,
    "intermediate_dim": SIZE,
    "head_dim": SIZE,
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "drop_path"), SHARE),
    "epsilon": FACTOR,
}
IDS_RANGE = {"pad_id": (-1, V), "start_id": (-1, V), "end_id": (-1, V, 0)}
SEARCH_WRONG = {
    "model": NO_MODEL,
    "source_ids": NO_IDS,
    "strategy": NO_STRATEGY,
    "num_beams": (*NO_INT, True),
    "length_penalty": NO_PENALTY,
    "max_length": (*NO_INT, True),
    "constraints": NO_CONSTRAINTS,
    "target_prefix": (3, "a", [1.5], [V], [-1], [2], [0, 4], [[4]], [4] * 9, NOTHING),
    "shortlist": NO_SHORTLIST,
    "search": NO_OBJECT,
    "done": None,
    "return_details": (3, "yes", {}, {"layer": 0}, decoding.Details(layer=7), NOTHING),
}
SEARCH_RANGE = {"num_beams": SIZE, "max_length": SIZE}
RUN = "keras_addnorm.decoding.generate.run_compiled"

DECODING = {
    "AveragePenalty": Call(always(decoding.AveragePenalty)),
    "Beam": Call(
        always(decoding.Beam),
        wrong={
            "length_penalty": NO_PENALTY,
            "early_stopping": (None, "no such", 3, ["a"], NOTHING),
            "coverage_penalty": (True, -1.0, np.nan, "a", ["a"], {}, {"beta": "a"}, NOTHING),
        },
        out_of_range={"num_beams": SIZE, "num_return": (0, 5)},
    ),
    "CoveragePenalty": Call(
        always(decoding.CoveragePenalty), given(beta=0.2), out_of_range={"beta": (0.0, -1.0)}
    ),
    "Details": Call(always(decoding.Details)),
    "DiverseBeam": Call(
        always(decoding.DiverseBeam),
        wrong={
            "length_penalty": NO_PENALTY,
            "early_stopping": (None, "no such", 3, ["a"], NOTHING),
            "coverage_penalty": (True, -1.0, np.nan, "a", ["a"], {}, {"beta": "a"}, NOTHING),
        },
        out_of_range={
            "num_beams": (*SIZE, 3),
            "num_groups": (*SIZE, 3),
            "num_return": (0, 5),
            "diversity": FACTOR,
        },
    ),
    "ForbiddenTokens": Call(
        always(decoding.ForbiddenTokens),
        given(tokens=(5,)),
        {"tokens": (None, 3, "ab", (1.5,), ("a",), (True,), (), NOTHING)},
        {"tokens": ((-1,),)},
    ),
    "GNMTPenalty": Call(always(decoding.GNMTPenalty)),
    "Greedy": Call(
        always(decoding.Greedy),
        wrong={
            "length_penalty": NO_PENALTY,
            "coverage_penalty": (True, -1.0, np.nan, "a", ["a"], {}, {"beta": "a"}, NOTHING),
        },
    ),
    "Lexicon.estimate": Call(
        always(decoding.Lexicon.estimate),
        given(pairs=LEXICON_PAIRS, source_vocabulary_size=V, target_vocabulary_size=V),
        {"pairs": (None, 3, "ab", [3], [([1], ["a"])], [([1.5], [1])], [], NOTHING)},
        {
            "pairs": ([([-1], [1])], [([1], [V])]),
            "source_vocabulary_size": (*SIZE, 3),
            "target_vocabulary_size": (*SIZE, 3),
            "num_candidates": SIZE,
            "iterations": SIZE,
        },
    ),
    "Lexicon.from_links": Call(
        always(decoding.Lexicon.from_links),
        given(
            pairs=LEXICON_PAIRS,
            links=[[(0, 0)], []],
            source_vocabulary_size=V,
            target_vocabulary_size=V,
        ),
        {
            "pairs": (None, 3, "ab", [3], [([1], ["a"])], [([1.5], [1])], [], NOTHING),
            "links": (None, 3, "ab", [3], [[(0, 0)]], [[(9, 0)], []], [[], []], NOTHING),
        },
        {
            "source_vocabulary_size": (*SIZE, 3),
            "target_vocabulary_size": (*SIZE, 3),
            "num_candidates": SIZE,
        },
    ),
    "LongTexts": Call(always(decoding.LongTexts)),
    "MaxLength": Call(
        always(decoding.MaxLength),
        given(length=3),
        out_of_range={"length": (-1, 0), "source_factor": FACTOR},
    ),
    "MinLength": Call(
        always(decoding.MinLength),
        given(length=3),
        out_of_range={"length": (-1, 0), "source_factor": FACTOR},
    ),
    "NoPenalty": Call(always(decoding.NoPenalty)),
    "NoRepeatNgram": Call(
        always(decoding.NoRepeatNgram), given(size=2), out_of_range={"size": SIZE}
    ),
    "NoSplitting": Call(always(decoding.NoSplitting)),
    "Prefix": Call(always(decoding.Prefix), given(tokens=[4])),
    "Sample": Call(
        always(decoding.Sample),
        wrong={
            "length_penalty": NO_PENALTY,
            "coverage_penalty": (True, -1.0, np.nan, "a", ["a"], {}, {"beta": "a"}, NOTHING),
        },
        out_of_range={
            "temperature": (0.0, -1.0),
            "top_k": SIZE,
            "top_p": (0.0, -1.0, 1.5),
            "seed": (2**31,),
            "num_return": SIZE,
        },
    ),
    "Search": Call(
        always(decoding.Search),
        dict,
        {
            "strategy": NO_STRATEGY,
            "num_beams": (*NO_INT, True),
            "length_penalty": NO_PENALTY,
            "max_length": (*NO_INT, True),
            "constraints": (*NO_CONSTRAINTS[:8], NOTHING),
            "target_prefix": None,
            "shortlist": NO_SHORTLIST,
            "splitting": NO_SPLITTING,
        },
        SEARCH_RANGE,
    ),
    "Sentences": Call(always(decoding.Sentences)),
    "Shortlist": Call(
        always(decoding.Shortlist),
        lambda: {"lexicon": lexicon(), "size": 6},
        {"lexicon": NO_OBJECT},
        {"size": (3, V + 1)},
    ),
    "SpecialIds": Call(
        always(decoding.SpecialIds),
        out_of_range={"pad_id": (-1, 2), "start_id": (-1,), "end_id": (-1, 0)},
    ),
    "constraints.get": Call(
        always(decoding.constraints.get),
        given(identifier={"name": "no_repeat_ngram", "size": 2}),
        {"identifier": (*NO_CHOICE, "no_repeat_ngram", {"name": "no_repeat_ngram", "length": 2})},
    ),
    "decode": Call(
        always(decoding.decode),
        lambda: {"model": model(), "source_ids": SOURCE, "max_length": 4},
        SEARCH_WRONG | {"source_ids": None, "target_prefix": None},
        SEARCH_RANGE | {"pad_id": (-1,), "start_id": (-1,), "end_id": (-1, 0)},
        ("keras_addnorm.decoding.generate.run_search",),
    ),
    "generate": Call(
        always(decoding.generate),
        lambda: {"model": model(), "source_ids": SOURCE},
        SEARCH_WRONG,
        SEARCH_RANGE | {"pad_id": (-1,), "start_id": (-1,), "end_id": (-1, 0)},
        (RUN,),
    ),
    "length_penalties.get": Call(
        always(decoding.length_penalties.get), given(identifier=0.6), {"identifier": NO_PENALTY}
    ),
    "score": Call(
        always(decoding.score),
        lambda: {"model": model(), "source_ids": SOURCE, "target_ids": LABELS},
        {
            "model": NO_MODEL,
            "source_ids": NO_IDS,
            "target_ids": (*NO_IDS, [[1, 2], [4, 2]]),
            "num_free_tokens": (*NO_INT, True),
        },
        {"num_free_tokens": (-1,)},
        ("keras_addnorm.decoding.score.run_compiled",),
    ),
    "splitting.get": Call(
        always(decoding.splitting.get), given(identifier="none"), {"identifier": NO_SPLITTING}
    ),
    "splitting.split": Call(
        always(decoding.splitting.split), given(text="a. b."), {"splitting": NO_SPLITTING}
    ),
    "strategies.get": Call(
        always(decoding.strategies.get), given(identifier="beam"), {"identifier": NO_STRATEGY}
    ),
    "translate": Call(
        always(decoding.translate),
        lambda: {"model": model(), "tokenizer": tokenizer(), "texts": TEXTS},
        SEARCH_WRONG
        | {
            "tokenizer": (*NO_TOKENIZER, data.ByteTokenizer()),
            "texts": NO_TEXTS,
            "splitting": NO_SPLITTING,
            "source_language": (3, "no such", NOTHING),
            "target_language": (3, "no such", NOTHING),
            "batch_size": (*NO_INT, True),
        },
        SEARCH_RANGE | {"batch_size": SIZE},
        (RUN,),
    ),
}

POSITIONAL = {
    "norm": (*(each for each in NO_CHOICE), {"encoder": "layer_norm"}),
    "positions": NO_CHOICE,
    "scale": (np.nan, np.inf, "a", ["a"], {}, NOTHING),
    "embeddings_initializer": NO_INITIALIZER[1:],
}
ATTENTION = {
    name: NO_INITIALIZER
    for name in (
        "query_initializer",
        "key_initializer",
        "value_initializer",
        "output_initializer",
        "bias_initializer",
    )
} | {
    "attention": BLOCK_WRONG["attention"],
    "inner_norm": (3, "no such", NOTHING),
    "positions": NO_CHOICE,
}
ATTENTION_RANGE = {
    "num_heads": SIZE,
    "head_dim": SIZE,
    "dropout": SHARE,
    "init_gain": FACTOR,
}
OF_KWARGS = {"dtype": NO_DTYPE}
OF_A_LAYER = {"position": (3, "a", ["a"], {"no such": 1}, NOTHING)}
OF_A_STACK = {
    "num_layers": NO_INT,
    "num_other_layers": NO_INT,
    "pruned_sublayers": (3, "no such", ["no such"], NOTHING),
}
# Keras checks its other arguments.
KERAS = {**dict.fromkeys(("name", "activity_regularizer")), "dtype": NO_DTYPE}

LAYERS = {
    "AddNorm": Call(
        always(layers.AddNorm),
        wrong={
            "scheme": NO_CHOICE,
            "norm": NO_CHOICE,
            "position": (3, "a", ["a"], {"no such": 1}, NOTHING),
        },
        out_of_range={"epsilon": FACTOR, "dropout": SHARE, "drop_path": SHARE},
        keywords=OF_KWARGS,
    ),
    "AttentionConfig": Call(
        always(layers.AttentionConfig),
        wrong={
            "num_key_value_heads": NO_INT,
            "query_key_norm": NO_CHOICE,
            "value_norm": NO_CHOICE,
            "scale": (True, np.nan, "no such", ["a"], {}, {"name": "learned", "a": 1}, NOTHING),
            "window": NO_INT,
            "sink": (True, np.nan, "no such", ["a"], {}, {"name": "learned", "a": 1}, NOTHING),
            "head_diversity": (3, "a", ["a"], {}, {"no such": 1}, {"outputs": "a"}, NOTHING),
        },
        out_of_range={
            "num_key_value_heads": SIZE,
            "window": (*SIZE, 2**31),
            "soft_cap": (0.0, -1.0),
        },
    ),
    "BlockConfig": Call(always(layers.BlockConfig), given(**BLOCK), BLOCK_WRONG, BLOCK_RANGE),
    "FeedForward": Call(
        always(layers.FeedForward),
        given(intermediate_dim=8),
        {
            "activation": NO_ACTIVATION,
            "kernel_initializer": NO_INITIALIZER,
            "bias_initializer": NO_INITIALIZER,
            "inner_norm": (3, "no such", NOTHING),
        },
        {"intermediate_dim": SIZE, "dropout": SHARE, "init_gain": FACTOR},
        keywords=OF_KWARGS,
    ),
    "HeadDiversity": Call(
        always(layers.HeadDiversity),
        given(outputs=0.1),
        out_of_range=dict.fromkeys(("subspaces", "positions", "outputs"), FACTOR),
    ),
    "MultiHeadCrossAttention": Call(
        always(layers.MultiHeadCrossAttention),
        given(num_heads=2),
        ATTENTION,
        ATTENTION_RANGE,
        keywords=OF_KWARGS,
    ),
    "MultiHeadSelfAttention": Call(
        always(layers.MultiHeadSelfAttention),
        given(num_heads=2),
        ATTENTION,
        ATTENTION_RANGE,
        keywords=OF_KWARGS,
    ),
    "SSRU": Call(
        always(layers.SSRU),
        given(),
        {
            "kernel_initializer": NO_INITIALIZER,
            "bias_initializer": NO_INITIALIZER,
        },
        {"init_gain": FACTOR},
        keywords=OF_KWARGS,
    ),
    "AverageAttention": Call(
        always(layers.AverageAttention),
        given(intermediate_dim=8),
        {
            "activation": NO_ACTIVATION,
            "kernel_initializer": NO_INITIALIZER,
            "bias_initializer": NO_INITIALIZER,
            "inner_norm": (3, "no such", NOTHING),
        },
        {"intermediate_dim": SIZE, "dropout": SHARE, "init_gain": FACTOR},
        keywords=OF_KWARGS,
    ),
    "PositionalEmbedding": Call(
        always(layers.PositionalEmbedding),
        given(vocabulary_size=V, hidden_dim=8),
        POSITIONAL,
        {
            "vocabulary_size": SIZE,
            "hidden_dim": SIZE,
            "max_length": SIZE,
            "dropout": SHARE,
            "scale": (0.0, -1.0),
            "epsilon": FACTOR,
            "init_gain": FACTOR,
        },
        keywords=OF_KWARGS,
    ),
    "PositionalEmbedding.__call__": Call(
        lambda: layers.PositionalEmbedding(V, 8).__call__,
        given(inputs=SOURCE),
        {
            "inputs": ([[1.5]], [[V]], [[-1]], np.zeros((2, 3, 4), "int32"), SOURCE[0]),
            "start_index": None,
        },
    ),
    "TransformerDecoder": Call(
        always(layers.TransformerDecoder),
        given(num_layers=1, **BLOCK),
        BLOCK_WRONG | OF_A_STACK | KERAS,
        BLOCK_RANGE | {"num_layers": SIZE},
    ),
    "TransformerDecoderLayer": Call(
        always(layers.TransformerDecoderLayer),
        given(**BLOCK),
        BLOCK_WRONG | OF_A_LAYER | OF_A_STACK | KERAS,
        BLOCK_RANGE,
    ),
    "TransformerEncoder": Call(
        always(layers.TransformerEncoder),
        given(num_layers=1, **BLOCK),
        BLOCK_WRONG | OF_A_STACK | KERAS,
        BLOCK_RANGE | {"num_layers": SIZE},
    ),
    "TransformerEncoderLayer": Call(
        always(layers.TransformerEncoderLayer),
        given(**BLOCK),
        BLOCK_WRONG | OF_A_LAYER | OF_A_STACK | KERAS,
        BLOCK_RANGE,
    ),
    **{
        f"positions.{kind.__name__}": Call(
            always(kind), wrong=wrong, out_of_range=ranges, keywords=OF_KWARGS
        )
        for kind, wrong, ranges in (
            (
                positions.RotaryPositions,
                {"scaling": (3, "a", ["a"], {}, {"name": "no", "factor": 2}, NOTHING)},
                {"base": (1.0, -1.0)},
            ),
            (positions.T5Positions, {}, {"num_buckets": (0, 5), "max_distance": (0, 16, 2**30)}),
            (positions.ShawPositions, {}, {"max_distance": (*SIZE, 2**30)}),
        )
    },
}

MODELS = {
    "Seq2SeqConfig": Call(
        always(models.Seq2SeqConfig),
        given(source_vocabulary_size=V, target_vocabulary_size=V),
        BLOCK_WRONG
        | {
            "embedding_norm": NO_CHOICE,
            "pruned_sublayers": (3, "no such", ["no such"], NOTHING),
        },
        BLOCK_RANGE
        | IDS_RANGE
        | {
            "source_vocabulary_size": SIZE,
            "target_vocabulary_size": (*SIZE, 2),
            "num_encoder_layers": SIZE,
            "num_decoder_layers": SIZE,
            "hidden_dim": (*SIZE, 7),
            "max_length": SIZE,
            "embedding_scale": (0.0, -1.0),
        },
    ),
    "Seq2SeqConfig.from_dict": Call(
        always(models.Seq2SeqConfig.from_dict),
        given(values={"source_vocabulary_size": V, "target_vocabulary_size": V}),
        {"values": (None, 3, "a", ["a"], {}, {3: 4}, {"no such": 1}, NOTHING)},
    ),
    "Seq2SeqConfig.from_json": Call(
        always(models.Seq2SeqConfig.from_json),
        lambda: {"text": config().to_json()},
        {"text": (None, 3, "a", "[]", "3", "{}", ["a"], NOTHING)},
    ),
    "Seq2SeqConfig.preset": Call(
        always(models.Seq2SeqConfig.preset),
        given(name="tiny", source_vocabulary_size=V, target_vocabulary_size=V),
        {"name": NO_CHOICE},
    ),
    "Seq2SeqTransformer": Call(
        always(models.Seq2SeqTransformer),
        lambda: {"config": config()},
        {"config": (None, 3, "a", ["a"], {}, {"no such": 1}, models.Seq2SeqConfig, NOTHING)},
        keywords=OF_KWARGS,
    ),
    "Seq2SeqTransformer.__call__": Call(
        lambda: model().__call__,
        lambda: {"inputs": inputs()},
        {
            "inputs": tuple(
                inputs() | {side: ids}
                for side in ("source", "target")
                for ids in (
                    np.array([[1.5], [2]]),
                    np.array([[-1], [2]]),
                    np.array([[V], [2]]),
                    np.array([[2**40], [2]]),
                    keras.ops.convert_to_tensor([[V], [2]], "int32"),
                    keras.ops.convert_to_tensor([[-1], [2]], "int32"),
                )
            )
        },
    ),
    "Seq2SeqTransformer.compile": Call(
        lambda: models.Seq2SeqTransformer(config()).compile,
        dict,
        {
            "optimizer": (3, "no such", ["sgd"], {}, {"class_name": "no such"}, NOTHING),
            "loss": (3, "no such", ["no such"], {"a": 3}, "crossentropy", NOTHING),
            "guided_alignment": NO_OBJECT,
            "distillation": NO_OBJECT,
            "vocabulary_chunk_size": (*NO_INT, -1),
            "args": None,
            "kwargs": None,
        },
    ),
    "Seq2SeqTransformer.generate": Call(
        lambda: model().generate,
        given(source_ids=SOURCE),
        {name: values for name, values in SEARCH_WRONG.items() if name != "model"},
        SEARCH_RANGE,
        (RUN,),
    ),
    **{
        f"Seq2SeqTransformer.{name}": Call(
            lambda name=name: getattr(compiled(), name),
            lambda name=name: {"x": inputs()} | ({} if "predict" in name else {"y": LABELS}),
            {
                "x": tuple(
                    inputs() | {side: np.array(ids)}
                    for side in ("source", "target")
                    for ids in ([[1.5], [2]], [[-1], [2]], [[V], [2]])
                ),
                "y": (np.array([[V, 2], [4, 2]]), np.array([[-1, 2], [4, 2]])),
                "args": None,
                "kwargs": None,
            },
            stops_at=(f"keras.Model.{name}",),
        )
        for name in (
            "fit",
            "evaluate",
            "predict",
            "train_on_batch",
            "test_on_batch",
            "predict_on_batch",
        )
    },
    "enable_lora": Call(
        always(models.enable_lora),
        lambda: {"model": model(hidden_dim=4), "rank": 2},
        {"model": NO_MODEL, "filters": (3, "no such", "(", ["no such"], [3], NOTHING)},
        {"rank": SIZE, "lora_alpha": (0.0, -1.0)},
        ("keras_addnorm.models.lora.lora_layers",),
    ),
    "fold": Call(
        always(models.fold),
        lambda: {"model": model()},
        {"model": NO_MODEL, "say": NO_CALL},
        stops_at=("keras_addnorm.models.fold.rebuild",),
    ),
    "is_foldable": Call(
        always(models.is_foldable), lambda: {"model": model()}, {"model": NO_MODEL}
    ),
    "merge_lora": Call(always(models.merge_lora), lambda: {"model": model()}, {"model": NO_MODEL}),
    "rebuild": Call(always(models.rebuild), lambda: {"model": model()}, {"model": NO_MODEL}),
}

BATCHES = {
    "pairs": NO_PAIRS,
    "tokenizers": NO_TOKENIZER,
    "bucket_lengths": (3, "a", (), (2.5,), ("a",), (1,), NOTHING),
    "row_share": (None, 3, "ab", (0,), (0, 2.5), (2, 2), (0, 0), (-1, 1), NOTHING),
    "sampling": (3, "a", ["a"], 0.1, NOTHING),
    "alignments": (3, "ab", [3], [[(0, 0)]], [[(0.5, 0)], []], [[(99, 0)], []], NOTHING),
}
BATCHES_RANGE = {
    "tokens_per_batch": SIZE,
    "num_buckets": SIZE,
    "max_length": (*SIZE, 1),
    "shuffle_seed": (-1,),
    "first_epoch": (-1,),
    "batches_per_update": SIZE,
    "steps_per_epoch": SIZE,
    "repeats": SIZE,
    "rows_multiple_of": SIZE,
}
TOKENIZER = {
    "kind": NO_CHOICE,
    "normalization": NO_CHOICE,
    "user_defined_symbols": (3, "ab", [3], [""], ["a", "a"], NOTHING),
}
TOKENIZER_RANGE = {"vocabulary_size": (0, -1, 3, 10**6), "character_coverage": (0.0, -1.0, 1.5)}

DATA = {
    "ByteLevelBPETokenizer.from_vocabulary": Call(
        always(data.ByteLevelBPETokenizer.from_vocabulary),
        lambda: {
            "vocabulary": {
                name: index
                for index, name in enumerate(
                    ["<s>", "<pad>", "</s>", "<unk>", *data.byte_alphabet()]
                )
            },
            "merges": ["a b"],
        },
        {
            "vocabulary": (None, 3, ["a"], {}, {"a": "b"}, {"a": 0}, NOTHING),
            "merges": (None, 3, [3], ["a"], ["a b c"], NOTHING),
        },
    ),
    "AddedToken": Call(
        always(data.AddedToken), given(text="{"), {"text": (None, 3, "", "a\0", NOTHING)}
    ),
    "ByteTokenizer": Call(
        always(data.ByteTokenizer),
        wrong={
            "added": NO_ADDED,
            "first": (None, 3, (), (3,), ("a", "a"), NOTHING),
            "last": (None, 3, (3,), ("<pad>",), NOTHING),
            **{
                role: (None, 3, "no such", ["a"], NOTHING)
                for role in ("pad", "start", "end", "unknown")
            },
        },
    ),
    "PieceIds": Call(
        always(data.PieceIds),
        given(pieces=("<pad>", "<s>", "</s>", "<unk>")),
        {
            "added": NO_ADDED,
            "pieces": (None, 3, (), (3,), ("a", "a"), NOTHING),
            "controls": (None, 3, (3,), ("no such",), NOTHING),
            **{
                role: (None, 3, "no such", ["a"], NOTHING)
                for role in ("pad", "start", "end", "unknown")
            },
        },
    ),
    "SubwordSampling": Call(
        always(data.SubwordSampling), given(alpha=0.1), out_of_range={"alpha": (0.0, -1.0)}
    ),
    "TextFormat": Call(
        always(data.TextFormat),
        wrong={
            **{
                name: (None, 3, "ab", (3,), ("{no}",), NOTHING)
                for name in ("source_prefix", "source_suffix", "target_prefix")
            },
            "text_prefix": (None, 3, "{no}", ["a"], NOTHING),
            "leading_piece": (3, "ab", ("a",), (3, 4), ("", ""), NOTHING),
        },
    ),
    "Tokenizer": Call(
        always(data.Tokenizer),
        lambda: {"proto": tokenizer().proto},
        {"proto": (None, 3, "a", b"", b"no model", NOTHING), "ids": (3, "a", {}, NOTHING)},
    ),
    "Tokenizer.train": Call(
        always(data.Tokenizer.train),
        given(texts=TEXTS, vocabulary_size=V),
        TOKENIZER | {"texts": (None, 3, "a", b"a", [], [3], [" "], NOTHING)},
        TOKENIZER_RANGE,
    ),
    "Tokenizer.encode": Call(lambda: tokenizer().encode, given(text="a")),
    "Tokenizer.encode_batch": Call(
        lambda: tokenizer().encode_batch, given(texts=TEXTS), {"texts": NO_TEXTS}
    ),
    "Tokenizer.decode": Call(
        lambda: tokenizer().decode,
        given(ids=[4]),
        {"ids": (None, 3, "a", [1.5], ["a"], [[4]], [None], NOTHING)},
        {"ids": ([-1], [V])},
    ),
    "Tokenizer.decode_batch": Call(
        lambda: tokenizer().decode_batch,
        given(batch=[[4]]),
        {"batch": (None, 3, "a", [4], [[1.5]], [["a"]], NOTHING)},
        {"batch": ([[-1]], [[V]])},
    ),
    "Tokenizer.sample_batch": Call(
        lambda: tokenizer().sample_batch,
        given(texts=TEXTS, sampling=data.SubwordSampling(0.1), seed=1),
        {"texts": NO_TEXTS, "sampling": (None, 0.1, "a", NOTHING)},
        {"seed": (-1,)},
    ),
    "TokenizerPair": Call(
        always(data.TokenizerPair),
        lambda: {"source": tokenizer(), "target": tokenizer()},
        {
            "source": NO_TOKENIZER,
            "target": (*NO_TOKENIZER, data.ByteTokenizer()),
            "text_format": (None, 3, "a", {}, NOTHING),
        },
    ),
    "TokenizerPair.of": Call(
        always(data.TokenizerPair.of),
        lambda: {"tokenizers": tokenizer()},
        {"tokenizers": NO_TOKENIZER},
    ),
    "TokenizerPair.train": Call(
        always(data.TokenizerPair.train),
        given(pairs=PAIRS, vocabulary_size=V),
        TOKENIZER | {"pairs": NO_PAIRS},
        TOKENIZER_RANGE,
    ),
    "bucket_by_length": Call(
        always(data.bucket_by_length),
        lambda: {"dataset": ids_in_a_stream(), "bucket_lengths": (4,), "batch_size": 2},
        {
            "dataset": (None, 3, "a", [([1], [2])], NOTHING),
            "bucket_lengths": (None, 3, "a", (), (2.5,), ("a",), (1,), NOTHING),
        },
        {"batch_size": SIZE, "pad_id": (-1,), "start_id": (-1,), "end_id": (-1,)},
    ),
    "demo_builder": Call(
        always(data.demo_builder),
        wrong={"language": NO_CHOICE},
        stops_at=("keras_addnorm.data.named_sets.fingerprint",),
    ),
    "demo_pairs": Call(
        lambda: lambda language="de", *, seed=0: next(data.demo_pairs(language, seed=seed)),
        wrong={"language": NO_CHOICE, "seed": NO_INT},
    ),
    "fit_bucket_lengths": Call(
        always(data.fit_bucket_lengths),
        given(lengths=[3, 7]),
        {"lengths": (None, 3, "a", [2.5], ["a"], [None], NOTHING)},
        {
            "lengths": ([-1],),
            "num_buckets": SIZE,
            "max_length": SIZE,
            "tokens_per_batch": SIZE,
            "rows_multiple_of": SIZE,
        },
    ),
    "hold_out": Call(
        always(data.hold_out),
        given(pairs=[(f"text {i}", "b") for i in range(20)]),
        {"pairs": NO_PAIRS},
        {"count": (*SIZE, 20)},
    ),
    "line_reports": Call(
        always(data.line_reports),
        given(name_or_folder=[{"en": "a", "de": "b"}], source="en", target="de"),
        {
            "name_or_folder": (None, 3, [3], [{"en": "a"}], "no/such/folder", {}, [], NOTHING),
            "source": (3, "de", NOTHING),
            "target": (3, "en", NOTHING),
            "split": (3, "no such", NOTHING),
            "reader": (3, "csv", {"name": "no such"}, NOTHING),
        },
        {"max_chars": SIZE},
    ),
    "load_tokenizer": Call(
        always(data.load_tokenizer),
        lambda: {"path": tokenizer().save(folder() / "tokenizer.model")},
        {"path": ("no such file",)},
    ),
    "load_translation": Call(
        always(data.load_translation),
        given(name_or_folder=[{"en": "a", "de": "b"}], source="en", target="de"),
        {
            "name_or_folder": (None, 3, [3], [{"en": "a"}], "no/such/folder", {}, [], NOTHING),
            "source": (3, "de", NOTHING),
            "target": (3, "en", NOTHING),
            "split": (3, "no such", "train[", NOTHING),
            "reader": (3, "csv", {"name": "no such"}, NOTHING),
        },
        {"max_chars": SIZE},
    ),
    **{
        name: Call(
            always(getattr(data, name)),
            lambda: {"pairs": PAIRS, "tokenizers": tokenizer()},
            BATCHES | {"options": None},
            BATCHES_RANGE if name == "make_training_dataset" else {},
        )
        for name in ("make_training_batches", "make_training_dataset")
    },
    "align_pieces": Call(
        always(data.align_pieces),
        lambda: {"pairs": PAIRS, "tokenizers": tokenizer()},
        # Of no pairs there are no links.
        {"pairs": [one for one in NO_PAIRS if one != []], "tokenizers": NO_TOKENIZER},
    ),
    "piece_links": Call(
        always(data.piece_links),
        lambda: {"pairs": PAIRS, "tokenizers": tokenizer(), "word_links": [[(0, 0)], []]},
        {
            "pairs": NO_PAIRS,
            "tokenizers": NO_TOKENIZER,
            "word_links": (None, 3, "ab", [3], [[(0, 0)]], [[(9, 0)], []], NOTHING),
        },
    ),
    "sentencepiece_pieces": Call(
        always(data.sentencepiece_pieces),
        lambda: {"model": tokenizer().proto},
        {"model": ("no such file", b"no model")},
    ),
}


def ids_in_a_stream():
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(([5, 6], [7]))


OF_KERAS = {"name": None}  # a name is what Keras takes for one
SCHEDULE = training.InverseSquareRootSchedule
# Keras checks the rest.
ADAM = {
    "beta_1": SHARE,
    "beta_2": (*SHARE, 1 - 1e-9),
    "epsilon": (*NO_NUMBER, 0.0, -1.0, 1e-60, np.inf),
    **dict.fromkeys(
        ("clipnorm", "global_clipnorm", "clipvalue", "loss_scale_factor"),
        (*NO_NUMBER, 0.0, -1.0, 1e-46, np.inf),
    ),
    "learning_rate": (*NO_NUMBER, None, True, -1.0, np.inf, 1e39),
    "weight_decay": (*NO_NUMBER, True, -1.0, np.inf),
    "ema_momentum": (*NO_NUMBER, -1.0, 1.5),
    "gradient_accumulation_steps": (*NO_INT, 0, 1),
    "ema_overwrite_frequency": (*NO_INT, 0),
    **dict.fromkeys(("amsgrad", "use_ema"), NO_BOOL),
}
TRAINING = {
    "Adam": Call(always(training.Adam), out_of_range=ADAM),
    "EightBitAdam": Call(always(training.EightBitAdam), out_of_range=ADAM),
    "Cooldown": Call(
        always(training.Cooldown),
        lambda: {"schedule": SCHEDULE(0.1, 2), "total_steps": 8, "cooldown_steps": 4},
        {"schedule": NO_CALL},
        {"total_steps": (*SIZE, 3), "cooldown_steps": (*SIZE, 9)},
    ),
    "Checkpoints": Call(
        always(training.Checkpoints),
        lambda: {"directory": folder() / "checkpoints", "position": position()},
        {"position": NO_OBJECT, "before": NO_CALL, "stop_request": NO_OBJECT},
        {"keep": SIZE, "every_batches": (-1,), "every_minutes": (-1.0, np.inf)},
    ),
    "NonFiniteGuard": Call(
        always(training.NonFiniteGuard),
        lambda: {
            "position": position(),
            "batch": lambda epoch, index: (),
            "directory": folder(),
            "checkpoint": lambda: None,
        },
        {"position": (*NO_OBJECT, None), "batch": NO_CALL, "checkpoint": NO_CALL},
    ),
    "TrainingPosition": Call(
        always(training.TrainingPosition),
        lambda: {"epochs": mock.Mock(), "batches_per_epoch": 3},
        {
            "epochs": (*NO_OBJECT, None),
            "state": NO_OBJECT,
            "remembering": (3, "a", ["a"], {"a": 3}, {"a": "early_stopping"}, NOTHING),
        },
        {"batches_per_epoch": SIZE},
    ),
    "GuidedAlignment": Call(always(training.GuidedAlignment), out_of_range={"weight": (0.0, -1.0)}),
    "InverseSquareRootSchedule": Call(
        always(SCHEDULE),
        given(peak_learning_rate=0.1, warmup_steps=2),
        out_of_range={"peak_learning_rate": (0.0, -1.0), "warmup_steps": SIZE},
    ),
    "LastCheckpoints": Call(
        always(training.LastCheckpoints),
        lambda: {"directory": folder()},
        {"save": NO_CALL},
        {"keep": SIZE},
    ),
    "MaskedAccuracy": Call(always(training.MaskedAccuracy), wrong=OF_KERAS),
    "MaskedSparseCategoricalCrossentropy": Call(
        always(training.MaskedSparseCategoricalCrossentropy),
        wrong=OF_KERAS,
        out_of_range={"label_smoothing": SHARE},
    ),
    "MinimumRisk": Call(
        always(training.MinimumRisk),
        given(rows_per_sentence=3),
        OF_KERAS,
        out_of_range={
            "rows_per_sentence": (*SIZE, 1),
            "sharpness": (0.0, -1.0),
            "reference_weight": FACTOR,
            "label_smoothing": SHARE,
        },
    ),
    "NoamSchedule": Call(
        always(training.NoamSchedule),
        given(hidden_dim=8),
        out_of_range={"hidden_dim": SIZE, "warmup_steps": SIZE, "factor": (0.0, -1.0)},
    ),
    "Perplexity": Call(always(training.Perplexity), wrong=OF_KERAS),
    "RDropCrossentropy": Call(
        always(training.RDropCrossentropy),
        wrong=OF_KERAS,
        out_of_range={"alpha": FACTOR, "label_smoothing": SHARE},
    ),
    "ScheduleOfUpdates": Call(
        always(training.ScheduleOfUpdates),
        lambda: {"schedule": SCHEDULE(0.1, 2), "batches_per_update": 2},
        {"schedule": NO_CALL},
        {"batches_per_update": SIZE},
    ),
    "TokenDistillation": Call(
        always(training.TokenDistillation),
        lambda: {"teacher": model()},
        {"teacher": NO_CALL},
        {"weight": (0.0, -1.0), "temperature": (0.0, -1.0)},
    ),
    "on_eight_bit_grid": Call(
        always(training.on_eight_bit_grid), lambda: {"matrix": np.eye(2, dtype="float32")}
    ),
    "TranslationScore": Call(
        always(training.TranslationScore),
        given(sources=["a"], references=["b"], translate=lambda model, texts: texts),
        {
            "sources": (*NO_TEXTS, [], ["a", "b"]),
            "references": (*NO_TEXTS, [], ["a", "b"]),
            "translate": (*NO_CALL, None),
            "tokenizer": (None, 3, "no such", ["a"], NOTHING),
        },
        {"every": SIZE},
    ),
    **{
        name: Call(
            always(getattr(training, name)),
            lambda of_model=of_model: {"paths": [weights()]} | of_model(),
            {"paths": (None, 3, "a", [], ["no such.weights.h5"], ["a.txt"], [3], NOTHING)}
            | {"model": NO_MODEL},
        )
        for name, of_model in (
            ("average_checkpoints", dict),
            ("average_weights", lambda: {"model": model()}),
        )
    },
    "bleu_tokenizer": Call(
        always(training.bleu_tokenizer),
        given(language="de"),
        {"tokenizer": (None, 3, "no such", ["a"], NOTHING), "references": (None, 3, "a", NOTHING)},
    ),
    "evaluate_translations": Call(
        always(training.evaluate_translations),
        given(hypotheses=["a"], references=["b"]),
        {
            "hypotheses": (*NO_TEXTS, [], ["a", "b"]),
            "references": (*NO_TEXTS, [], ["a", "b"]),
            "tokenizer": (None, 3, "no such", ["a"], NOTHING),
        },
    ),
    "compare_translations": Call(
        always(training.compare_translations),
        given(systems={"one": ["a"], "two": ["b"]}, references=["b"]),
        {
            "systems": (None, 3, "a", ["a"], {}, {"one": ["a"]}, {"one": [3], "two": ["b"]}),
            "references": (*NO_TEXTS, [], ["a", "b"]),
            "tokenizer": (None, 3, "no such", ["a"], NOTHING),
        },
    ),
    "sentence_scorer": Call(
        always(training.sentence_scorer),
        given(metric="chrf"),
        {"metric": (None, 3, "no such", ["a"], NOTHING)},
    ),
    "find_learning_rate": Call(
        always(training.find_learning_rate),
        lambda: {"model": model(), "dataset": (inputs(), LABELS), "loss": "mse"},
        {"model": NO_MODEL, "optimizer": None, "jit_compile": None},
        {"lowest": (0.0, -1.0, 2.0), "highest": (0.0, -1.0), "batches": SIZE},
        ("keras.Model.compile",),
    ),
    "plot_curves": Call(
        always(training.plot_curves),
        lambda: {"csv_path": a_log(), "png_path": folder() / "curves.png"},
        {"csv_path": ("no such file",)},
    ),
}


@functools.cache
def weights():
    path = folder() / "a.weights.h5"
    model().save_weights(path)
    return path


def position():
    return training.TrainingPosition(mock.Mock(), 3)


def a_log():
    path = folder() / "log.csv"
    path.write_text("epoch,loss\n0,2.0\n")
    return path


def observed(model, *, offsets=None):
    """Enter `observe`, which checks its arguments there.

    Raises:
        ValueError: As `observe` says.
    """
    with diagnostics.observe(model, offsets=offsets):
        pass


BATCH = (None, 3, "ab", (), (1,), NOTHING)
DIAGNOSTICS = {
    "ResidualMonitor": Call(
        always(diagnostics.ResidualMonitor),
        lambda: {"batch": (inputs(), LABELS), "csv": folder() / "residuals.csv"},
        {"batch": BATCH, "loss": NO_CALL},
        {"every": SIZE},
    ),
    "Sentence": Call(
        always(diagnostics.Sentence),
        lambda: {"inputs": inputs(), "source": ["a"]},
        {"source": None, "target": None},
    ),
    "StabilityThresholds": Call(
        always(diagnostics.StabilityThresholds),
        out_of_range=dict.fromkeys(
            ("lost_signal", "weak_signal", "steep_gradient", "exploding_gradient"), FACTOR
        ),
    ),
    "Thresholds": Call(always(diagnostics.Thresholds), wrong={"head_free_weights": NO_NUMBER}),
    "Validation": Call(
        always(diagnostics.Validation),
        given(sources=["a"], references=["b"], translate=lambda model, texts: texts),
        {
            "data": None,
            "sources": (None, 3, "a", [3], (), NOTHING),
            "references": (None, 3, "a", [3], ["a", "b"], NOTHING),
            "translate": (*NO_CALL, None),
            "loss": NO_CALL,
        },
    ),
    "attention_maps": Call(
        always(diagnostics.attention_maps),
        lambda: {"model": model(), "source_ids": SOURCE[0], "target_ids": TARGET[0]},
        {
            "model": NO_MODEL,
            "source_ids": (None, 3, "a", [], [1.5], ["a"], [[1]], [V], [-1], NOTHING),
            "target_ids": (None, 3, "a", [], [1.5], ["a"], [[1]], [V], [-1], NOTHING),
        },
    ),
    "effective_depth": Call(
        always(diagnostics.effective_depth),
        lambda: {"model": model(), "batch": (inputs(), LABELS)},
        {"model": NO_MODEL, "batch": BATCH, "loss": NO_CALL},
        stops_at=("keras_addnorm.diagnostics.effective_depth.compiled",),
    ),
    "head_diversity": Call(
        always(diagnostics.head_diversity),
        lambda: {"model": model(), "source_ids": SOURCE, "target_ids": TARGET},
        {"model": NO_MODEL, "source_ids": NO_IDS, "target_ids": NO_IDS},
    ),
    "initialize_admin": Call(
        always(diagnostics.initialize_admin),
        lambda: {"model": model(scheme="admin"), "batch": inputs()},
        {"model": (*NO_MODEL, model), "batch": None},
    ),
    "inspect": Call(
        always(diagnostics.inspect),
        lambda: {"model": model(), "batch": (inputs(), LABELS)},
        {
            "model": NO_MODEL,
            "batch": BATCH,
            "loss": NO_CALL,
            "sentence": NO_OBJECT,
            "thresholds": NO_OBJECT,
            "depth": NO_OBJECT,
        },
        stops_at=("keras_addnorm.diagnostics.inspect_model.gradients_of",),
    ),
    "loss_gradients": Call(
        always(diagnostics.loss_gradients),
        lambda: {"model": model(), "inputs": inputs(), "labels": LABELS},
        {
            "model": NO_MODEL,
            "inputs": None,
            "labels": None,
            "loss": NO_CALL,
            "probes": (3, "a", {"no such": 1}, NOTHING),
        },
        stops_at=("keras_addnorm.diagnostics.gradients.differentiate",),
    ),
    "observe": Call(
        always(observed),
        lambda: {"model": model()},
        {"model": NO_MODEL, "offsets": (3, "a", {"no such": 1}, NOTHING)},
    ),
    "plot_attention": Call(
        always(diagnostics.plot_attention),
        lambda: {
            "weights": np.eye(2),
            "key_labels": ["a", "b"],
            "query_labels": ["c", "d"],
            "path": folder() / "attention.png",
        },
        {
            "weights": (None, 3, "a", np.eye(3), [["a", "b"], ["c", "d"]], NOTHING),
            "key_labels": (None, 3, ["a"], [3, 4], NOTHING),
            "query_labels": (None, 3, ["a"], [3, 4], NOTHING),
        },
    ),
    "predict_stability": Call(
        always(diagnostics.predict_stability),
        lambda: {"config": config()},
        {"config": (None, 3, "a", {}, NOTHING), "thresholds": NO_OBJECT},
        {
            "learning_rate": (0.0, -1.0),
            "max_width": (*SIZE, 3),
            "max_vocabulary_size": SIZE,
            "batch_size": (*SIZE, 1),
            "length": SIZE,
            "seed": (-1,),
        },
        ("keras_addnorm.diagnostics.stability.Seq2SeqTransformer",),
    ),
    "prune": Call(
        always(diagnostics.prune),
        lambda: {"model": model(), "sublayers": ["encoder/0/feed_forward"]},
        {
            "model": NO_MODEL,
            "sublayers": (None, 3, "no such", ["no such"], [3], NOTHING),
            "evaluate": NO_CALL,
        },
        stops_at=("keras_addnorm.diagnostics.prune.rebuild",),
    ),
}

NO_LINKS = (None, 3, "0-0", [3], [(0, 0.5)], [(0, 1, 2)], NOTHING)
NO_ALIGNMENTS = (None, 3, "0-0", [3], [[(0, 0.5)]], {"a": 1}, NOTHING)
ALIGNMENT = {
    "align": Call(
        always(alignment.align),
        given(pairs=[(["a"], ["b"])]),
        {"pairs": (None, 3, "ab", ["ab"], [("a", "b")], [(["a"],)], [([[]], ["b"])], NOTHING)},
        {"ibm_iterations": SIZE, "hmm_iterations": SIZE},
    ),
    "format_links": Call(
        always(alignment.format_links), given(links=[(0, 1)]), {"links": NO_LINKS[1:]}
    ),
    "grow_diag_final_and": Call(
        always(alignment.grow_diag_final_and),
        given(forward=[(0, 1)], backward=[(0, 1)]),
        {"forward": NO_LINKS, "backward": NO_LINKS},
    ),
    "parse_links": Call(
        always(alignment.parse_links), given(line="0-0 1-2"), out_of_range={"line": ("0", "a-b")}
    ),
    "read_pharaoh": Call(
        always(alignment.read_pharaoh),
        lambda: {"path": links_in_a_file()},
        {"path": ("no such file",)},
    ),
    "write_pharaoh": Call(
        always(alignment.write_pharaoh),
        lambda: {"path": folder() / "links", "alignments": [[(0, 1)], []]},
        {"alignments": NO_ALIGNMENTS},
    ),
}


def links_in_a_file():
    path = folder() / "links of words"
    path.write_text("0-0 1-2\n")
    return path


EXPORT_RANGE = {"max_length": SIZE}
SERVING = {
    "Client": Call(
        always(serving.Client),
        given(target="http://127.0.0.1:9", model="mine"),
        out_of_range={
            "target": ("", "http://"),
            "model": ("",),
            "version": (-1,),
            "timeout": (0.0, -1.0),
            "retries": (-1,),
        },
    ),
    "Client.translate": Call(
        lambda: serving.Client("http://127.0.0.1:9", model="mine", retries=0).translate,
        given(texts=[]),
        {
            "texts": NO_TEXTS,
            "source_language": None,
            "target_language": None,
        },
    ),
    "GraphTokenizer": Call(
        always(serving.GraphTokenizer),
        lambda: {"tokenizer": tokenizer()},
        {"tokenizer": (*NO_TOKENIZER, data.ByteTokenizer()), "name": None},
    ),
    "export_saved_model": Call(
        always(serving.export_saved_model),
        lambda: {"model": model(), "tokenizer": tokenizer(), "directory": folder() / "exported"},
        {
            "model": NO_MODEL,
            "tokenizer": (*NO_TOKENIZER, data.ByteTokenizer()),
            "strategy": NO_STRATEGY,
            "search": NO_OBJECT,
            "target_prefix": SEARCH_WRONG["target_prefix"],
            "length_penalty": NO_PENALTY[1:],
            "strategies": (
                3,
                "beam",
                ["beam"],
                {},
                {"": "greedy"},
                {3: "greedy"},
                {"a b": "greedy"},
                {"ä": "greedy"},
                {"_a": "greedy"},
                {"score": "greedy"},
                {"a_xla": "greedy"},
                {"a": "no such"},
                {"a": None},
                {"a": {"name": "beam", "num_return": 2}},
                NOTHING,
            ),
            "batch_buckets": (3, "a", (), (0,), (4, 1), (1, 1), (1.5,), ("a",), NOTHING),
            "length_buckets": (3, "a", (), (0,), (4, 1), (1, 1), (1.5,), ("a",), NOTHING),
            "shortlist": NO_SHORTLIST,
            "splitting": NO_SPLITTING,
            "constraints": NO_CONSTRAINTS,
            "source_language": (3, "no such", NOTHING),
            "target_language": (3, "no such", NOTHING),
            "storage": NO_CHOICE,
            "card": (3, "a", ["a"], {"a": np.nan}, {"a": NOTHING}, NOTHING),
        },
        EXPORT_RANGE | {"version": (*SIZE, 2**63), "num_beams": SIZE},
        ("keras_addnorm.serving.export.fold", "keras_addnorm.serving.export.merge_lora"),
    ),
    "load_translator": Call(
        always(serving.load_translator),
        lambda: {"directory": folder()},
        {"directory": ("no such folder",)},
    ),
}

INTEROP = {
    "BrowserPage": Call(
        always(interop.BrowserPage),
        lambda: {"engine": engine(), "facts": {"BLEU": "3.5"}},
        {
            "engine": (None, 3, "elsewhere", folder(), NOTHING),
            "facts": (None, 3, ["a"], {"a": 3}, {3: "a"}, NOTHING),
        },
    ),
    "export_bergamot": Call(
        always(interop.export_bergamot),
        lambda: {
            "model": model(hidden_dim=64, intermediate_dim=64, share_embeddings=True),
            "tokenizer": tokenizer(),
            "directory": folder() / "other",
        },
        {
            "model": NO_MODEL,
            "tokenizer": (*NO_TOKENIZER, data.ByteTokenizer()),
            "samples": (None, 3, "ab", [3], NOTHING),
            "lexicon": NO_OBJECT,
            "page": NO_OBJECT,
        },
        stops_at=("keras_addnorm.interop.bergamot.merge_lora",),
    ),
    "export_ctranslate2": Call(
        always(interop.export_ctranslate2),
        lambda: {"model": model(), "tokenizer": tokenizer(), "directory": folder() / "other"},
        {"model": NO_MODEL, "tokenizer": (*NO_TOKENIZER, data.ByteTokenizer())},
        stops_at=("keras_addnorm.interop.ctranslate2.merge_lora",),
    ),
    "export_litert": Call(
        always(interop.export_litert),
        lambda: {"model": model(), "directory": folder() / "other"},
        {"model": NO_MODEL, "tokenizer": (3, "a", NOTHING, data.ByteTokenizer())},
        {"batch_size": SIZE, "source_length": SIZE, "max_length": SIZE},
        ("keras_addnorm.interop.litert.trace",),
    ),
    "export_onnx": Call(
        always(interop.export_onnx),
        lambda: {"model": model(), "directory": folder() / "other"},
        {"model": NO_MODEL, "tokenizer": (3, "a", NOTHING, data.ByteTokenizer())},
        {"max_length": SIZE},
        ("keras_addnorm.interop.onnx.trace",),
    ),
    "load_pretrained": Call(
        always(interop.load_pretrained),
        lambda: {"name": folder()},
        {
            "name": ("/no/such/folder",),
            "family": NO_CHOICE,
            "tokenizers": (3, "no such", NOTHING),
            "dtype": (3, "no such", NOTHING),
        },
    ),
    "make_random_folder": Call(
        always(interop.make_random_folder),
        lambda: {"name": "t5", "directory": folder() / "t5"},
        {"name": NO_CHOICE},
        {"seed": (-1,)},
        ("keras_addnorm.interop.random_folder.atomic_folder",),
    ),
    "require_intact": Call(
        always(interop.require_intact), lambda: {"path": folder()}, {"path": ("/no/such/folder",)}
    ),
    "save_pretrained": Call(
        always(interop.save_pretrained),
        lambda: {"pretrained": None, "directory": folder() / "saved"},
        {"pretrained": (None, 3, "a", NOTHING), "family": None},
    ),
}

NUMBERS = {
    "num_streams": (*SIZE,),
    "block_size": SIZE,
    "dilation": SIZE,
    "period": SIZE,
    "iterations": SIZE,
    "share": (-0.1, 1.1),
    "epsilon": FACTOR,
    "start": ("no such",),
}
SCHEMES = {
    name: Call(always(kind), wrong={"of": NO_OBJECT}, out_of_range=NUMBERS)
    for name in schemes.__all__
    if isinstance(kind := getattr(schemes, name), type)
    and issubclass(kind, schemes.ResidualScheme)
    and kind not in (schemes.ResidualScheme, schemes.StreamScheme)
} | {
    "get": Call(always(schemes.get), given(identifier="pre_ln"), {"identifier": NO_CHOICE}),
    "StackPosition": Call(
        always(schemes.StackPosition),
        given(num_encoder_layers=1, num_decoder_layers=1, side="encoder"),
        out_of_range={"layer_index": (-1, 1), "side": ("middle",)},
    ),
}
OF_A_NORM = {
    "momentum": SHARE,
    "epsilon": FACTOR,
    "num_heads": SIZE,
}
NORMS = {
    **{
        name: Call(always(kind), wrong={"kwargs": None}, out_of_range=OF_A_NORM, keywords=OF_KWARGS)
        for name in norms.__all__
        if isinstance(kind := getattr(norms, name), type) and kind is not norms.Norm
    },
    **{
        name: Call(
            always(getattr(norms, name)), given(identifier="rms_norm"), {"identifier": NO_CHOICE}
        )
        for name in ("is_scale_invariant", "mixes_positions")
    },
    "get": Call(always(norms.get), given(identifier="rms_norm"), {"identifier": NO_CHOICE}),
    "for_side": Call(
        always(norms.for_side),
        given(identifier="rms_norm", side="decoder"),
        {"identifier": NO_CHOICE, "side": None},
    ),
}

DISTRIBUTION = {
    "get": Call(
        always(distribution.get),
        given(name="none"),
        {"name": NO_CHOICE},
        {"devices_per_model": (-1,)},
    ),
    "require_divisible": Call(
        always(distribution.require_divisible),
        given(sizes={"num_heads": 8}, devices=4),
        {"sizes": (None, 3, ["a"], {"a": 3}, {"a": "b"}, NOTHING)},
        {"devices": SIZE},
    ),
}

CALLS = {
    f"{room}.{name}": call
    for room, calls in (
        ("alignment", ALIGNMENT),
        ("data", DATA),
        ("decoding", DECODING),
        ("diagnostics", DIAGNOSTICS),
        ("distribution", DISTRIBUTION),
        ("interop", INTEROP),
        ("layers", LAYERS),
        ("models", MODELS),
        ("norms", NORMS),
        ("schemes", SCHEMES),
        ("serving", SERVING),
        ("training", TRAINING),
    )
    for name, call in calls.items()
}
"""A right call of each, by the room and the name that it is imported by."""
