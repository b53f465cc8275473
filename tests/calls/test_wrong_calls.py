"""Every public signature is run through a table of wrong values.

A wrong argument gives an error that the docstring names, raised on purpose by a `raise`; or it has
a documented result, and does not stand in the table.
"""

import builtins
import contextlib
import inspect
import linecache
import re
import types

import pytest
from public_calls import CALLS, ReachedError
from wrong_values import wrong_values

import keras_addnorm
from keras_addnorm import layers

ROOMS = (
    "alignment",
    "data",
    "decoding",
    "diagnostics",
    "distribution",
    "interop",
    "layers",
    "models",
    "norms",
    "schemes",
    "serving",
    "training",
)
RESULT = "what a function returns, and no user makes"
MODULE = "a table of names: `get` stands for it"
ABSTRACT = "a base class: what is made of it is checked by whoever takes it"
KERAS = "its arguments are those of Keras, which checks them"
PROCESSES = "what the processes of a training say to each other"
LEFT_OUT = {
    "data.BaseTokenizer": ABSTRACT,
    "data.BatchesOfManySizes": ABSTRACT,
    "data.LineReport": RESULT,
    "data.Piece": RESULT,
    "data.PipelineReport": RESULT,
    "data.TrainingBatches": RESULT,
    "data.byte_alphabet": "no arguments",
    "decoding.Constraint": ABSTRACT,
    "decoding.Decoder": ABSTRACT,
    "decoding.Generation": RESULT,
    "decoding.LengthPenalty": ABSTRACT,
    "decoding.Scores": RESULT,
    "decoding.Splitting": ABSTRACT,
    "decoding.Strategy": ABSTRACT,
    "decoding.Translation": RESULT,
    "decoding.Translations": RESULT,
    "diagnostics.AttentionMaps": RESULT,
    "diagnostics.EffectiveDepth": RESULT,
    "diagnostics.HeadDifferences": RESULT,
    "diagnostics.LossGradients": RESULT,
    "diagnostics.Observation": RESULT,
    "diagnostics.PruneCost": RESULT,
    "diagnostics.PruneResult": RESULT,
    "diagnostics.Report": RESULT,
    "diagnostics.ResidualLog": RESULT,
    "diagnostics.ResidualRow": RESULT,
    "diagnostics.Stability": RESULT,
    "diagnostics.StabilityForecast": RESULT,
    "diagnostics.StabilityReason": RESULT,
    "diagnostics.StreamLog": RESULT,
    "diagnostics.StreamRow": RESULT,
    "diagnostics.StreamStatistics": RESULT,
    "diagnostics.SublayerRecord": RESULT,
    "diagnostics.SublayerReport": RESULT,
    "diagnostics.Verdict": RESULT,
    "diagnostics.fold": "that of models",
    "diagnostics.is_foldable": "that of models",
    "distribution.Devices": ABSTRACT,
    "distribution.ONE_DEVICE": RESULT,
    "distribution.first_before_the_others": PROCESSES,
    "distribution.is_first": PROCESSES,
    "distribution.join_processes": PROCESSES,
    "distribution.model_parallel_layout": "a mesh of Keras, on JAX",
    "distribution.fully_sharded_layout": "a mesh of Keras, on JAX",
    "distribution.process_count": PROCESSES,
    "distribution.process_index": PROCESSES,
    "distribution.wait_for_all": PROCESSES,
    "distribution.whole_values": PROCESSES,
    "interop.GenerationSettings": RESULT,
    "interop.Pretrained": RESULT,
    "layers.RecurrentSelfAttention": ABSTRACT,
    "layers.Projection": KERAS,
    "norms.Norm": ABSTRACT,
    "norms.NormFactory": "a type",
    "norms.NormLike": "a type",
    "norms.Side": "a type",
    "norms.names": "no arguments",
    "norms.register": "what a norm of one's own is checked by",
    "schemes.ExtraLayer": RESULT,
    "schemes.Folding": RESULT,
    "schemes.LearnedArray": RESULT,
    "schemes.LearnedScale": RESULT,
    "schemes.ResidualParts": RESULT,
    "schemes.ResidualPlan": RESULT,
    "schemes.ResidualScheme": ABSTRACT,
    "schemes.State": RESULT,
    "schemes.Step": RESULT,
    "schemes.StreamScheme": ABSTRACT,
    "schemes.StreamState": RESULT,
    "schemes.names": "no arguments",
    "schemes.register": "what a scheme of one's own is checked by",
    "schemes.serialize": "takes what `get` has made",
    "serving.ServingError": RESULT,
    "serving.Translation": RESULT,
    "serving.Translator": "load_translator makes it",
    "training.Comparison": RESULT,
    "training.LearningRateCurve": RESULT,
    "training.NonFiniteError": RESULT,
    "training.Scores": RESULT,
    "training.StopRequest": "no arguments",
    "training.Stopped": RESULT,
    "training.TestedScore": RESULT,
}
# Right in every argument, but there is nothing to read or write.
NOTHING_THERE = {
    "interop.load_pretrained": FileNotFoundError,
    "interop.save_pretrained": TypeError,
    "serving.load_translator": FileNotFoundError,
}
# Python's own error of what is no path, which says so.
NO_PATH = re.compile("expected str, bytes or os.PathLike object, not|argument should be a str")


def test_every_public_name_is_in_the_table():
    for room in ROOMS:
        module = getattr(keras_addnorm, room)
        for name in module.__all__:
            if isinstance(getattr(module, name), types.ModuleType):
                continue
            full = f"{room}.{name}"
            in_table = any(key == full or key.startswith(f"{full}.") for key in CALLS)
            assert in_table != (full in LEFT_OUT), full


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_right_call_is_right_and_each_wrong_argument_is_refused_in_words(name):
    call = CALLS[name]
    with call.stopped():
        expected = NOTHING_THERE.get(name, ReachedError if call.stops_at else None)
        with pytest.raises(expected) if expected else contextlib.nullcontext():
            call.function()(**call.arguments())
        faults = [
            f"{parameter}={value!r:.60}: {outcome}"
            for parameter, value, outcome in outcomes(call)
            if outcome != "refused"
        ]
    assert not faults, "\n" + "\n".join(faults)


def outcomes(call):
    """Yields each wrong argument, and what came of it: "refused" if that was clear."""
    function = call.function()
    for parameter, value in wrong_arguments(call, function):
        yield parameter, value, outcome(function, call.arguments() | {parameter: value})


def wrong_arguments(call, function):
    """Yields the name and a wrong value of each argument."""
    for name, parameter in inspect.signature(function).parameters.items():
        values = (
            call.wrong[name] if name in call.wrong else wrong_values(parameter.annotation)
        ) or ()
        for value in (*values, *call.out_of_range.get(name, ())):
            yield name, value
    for name, values in call.keywords.items():
        for value in values:
            yield name, value


def outcome(function, arguments):
    """Returns "refused" for a clear error, and else what was wrong with it."""
    try:
        function(**arguments)
    except ReachedError:
        return "accepted"
    except Exception as error:
        if not is_clear(error):
            return f"a raw {type(error).__name__}: {str(error)[:120]}"
        if not is_documented(function, error):
            return f"the docstring names no {type(error).__name__}"
        return "refused"
    return "accepted"


def is_clear(error):
    """Whether an error was raised by a `raise`, of ours or of Keras, and not by accident."""
    if isinstance(error, TypeError) and NO_PATH.search(str(error)):
        return True
    if isinstance(error, OSError) and error.filename is not None:
        return True
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return line.lstrip().startswith("raise")


def is_documented(function, error):
    """Whether the section `Raises` names the error, or a class of it."""
    text = inspect.getdoc(function) or ""
    if "Raises:" not in text:
        # A frozen choice without a section of its own says `ValueError` in its table's `get`.
        return isinstance(error, ValueError | TypeError)
    section = re.split(r"\n\n(?=\S)", text.split("Raises:")[1])[0]
    named = re.findall(r"^\s+(\w+(?:Error|Exception)):", section, re.MULTILINE)
    kinds = tuple(getattr(builtins, kind) for kind in named if hasattr(builtins, kind))
    # Python itself raises it where no path is given.
    return isinstance(error, kinds) or bool(NO_PATH.search(str(error)))


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("kernel_initializer", "glorot_uniform, zeros"),
        ("activation", "relu, gelu, silu"),
        ("dtype", "float32, bfloat16"),
    ],
)
def test_what_keras_calls_by_names_is_refused_in_our_words(name, accepted):
    for make in (
        lambda **chosen: layers.FeedForward(5, **chosen),
        lambda **chosen: layers.TransformerEncoderLayer(num_heads=2, intermediate_dim=5, **chosen),
        lambda **chosen: layers.TransformerDecoder(1, num_heads=2, intermediate_dim=5, **chosen),
    ):
        for value in ("nonsense\x1b[2J", {"class_name": "nonsense", "config": {}}):
            with pytest.raises(ValueError, match=f"{name}.*Expected .*{accepted}") as error:
                make(**{name: value})
            assert "nonsense" in str(error.value) and "\x1b" not in str(error.value)
