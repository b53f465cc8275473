"""The same model in ONNX Runtime and in LiteRT: the same logits, the same tokens."""

import dataclasses
import functools
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter
import ai_edge_litert.schema_py_generated as litert_schema
import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf

from keras_addnorm.basics.integrity import IN_EXPORTS, Manifest
from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.interop import export_litert, export_onnx, graphs, require_intact
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, enable_lora

ROOT = Path(__file__).parents[2]
BATCH, SOURCE_LENGTH, MAX_LENGTH = 5, 7, 11

CASES = {
    "post_ln, halves, norm and bias of embeddings": {
        "scheme": {"name": "post_ln", "final_norm": True},
        "positions": {"name": "sinusoidal", "layout": "halves", "offset": 2},
        "embedding_norm": "layer_norm",
        "logits_bias": True,
    },
    "pre_ln, t5, own ids, pruned": {
        "head_dim": 5,
        "use_bias": False,
        "scheme": "pre_ln",
        "norm": "rms_norm",
        "activation": "swiglu",
        "positions": "t5",
        "tie_embeddings": False,
        "pad_id": 3,
        "start_id": 3,
        "end_id": 1,
        "num_decoder_layers": 2,
        "pruned_sublayers": ("encoder/0/feed_forward", "decoder/0/self_attention"),
    },
    "gpas around hybrid_norm, seed_norm": {
        "scheme": {"name": "gpas", "of": "hybrid_norm"},
        "norm": "seed_norm",
    },
    "several streams": {"scheme": {"name": "mhc_lite", "num_streams": 3, "off_diagonal": -1.0}},
    "a memory of depth": {"scheme": {"name": "attention_residuals", "block_size": 2}},
    "ssru": {"self_attention": "ssru", "use_bias": False},
    "average attention": {"self_attention": "average_attention", "scheme": "pre_ln"},
    "sub_ln, rotary, grouped heads, value residual": {
        "scheme": "sub_ln",
        "activation": "gelu",
        "positions": "rotary",
        "attention": {"num_key_value_heads": 2, "value_residual": True},
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "start_id": 2,  # As the end.
    },
}


def small_config(**fields):
    return Seq2SeqConfig(
        **{
            "source_vocabulary_size": 19,
            "target_vocabulary_size": 23,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "hidden_dim": 24,
            "intermediate_dim": 29,
            "num_heads": 4,
            "max_length": 13,
        }
        | fields
    )


def make_model(config):
    model = Seq2SeqTransformer(config)
    generator = np.random.default_rng(5)
    for weight in model.trainable_weights:
        # Norms' gains, biases and branch scales start at constants: a swap would not be seen.
        noise = generator.normal(size=weight.shape)
        is_table = weight.path.endswith("embeddings")
        weight.assign(1.5 * weight + (0.0 if is_table else 0.2) * noise)
    return model


def source_rows(config, batch, length):
    """Random sources of all lengths, the first one full and the last one padding alone."""
    ordinary = [i for i in range(19) if i not in (config.pad_id, config.start_id, config.end_id)]
    rows = np.random.default_rng(7).choice(ordinary, (batch, length)).astype("int32")
    for row, end in enumerate(np.linspace(length - 1, 0, batch).astype(int)):
        rows[row, end:] = config.pad_id
        rows[row, end] = config.end_id if end else config.pad_id
    return rows


def target_rows(config, batch, length):
    ordinary = [i for i in range(23) if i not in (config.pad_id, config.start_id, config.end_id)]
    rows = np.random.default_rng(8).choice(ordinary, (batch, length)).astype("int32")
    rows[:, 0] = config.start_id
    return rows


@dataclasses.dataclass(frozen=True)
class Runtime:
    """An export, and how its graphs are run."""

    name: str
    export: Callable[..., Path]
    load: Callable[[Path, str], Callable[..., dict[str, np.ndarray]]]
    sizes: dict[str, int]
    described: Callable[[Path, str], tuple[dict[str, Any], dict[str, Any]]]


def onnx_graph(directory, name):
    session = onnxruntime.InferenceSession(directory / f"{name}.onnx")
    outputs = [output.name for output in session.get_outputs()]
    return lambda **inputs: dict(zip(outputs, session.run(outputs, inputs), strict=True))


def onnx_description(directory, name):
    types = {"tensor(int32)": "int32", "tensor(float)": "float32", "tensor(bool)": "bool"}
    session = onnxruntime.InferenceSession(directory / f"{name}.onnx")
    return tuple(
        {value.name: (value.shape, types[value.type]) for value in values}
        for values in (session.get_inputs(), session.get_outputs())
    )


def litert_graph(directory, name):
    interpreter = ai_edge_litert.interpreter.Interpreter(str(directory / "model.tflite"))
    return interpreter.get_signature_runner(name)


def litert_description(directory, name):
    runner = litert_graph(directory, name)
    return tuple(
        {key: (value["shape"].tolist(), value["dtype"].__name__) for key, value in details.items()}
        for details in (runner.get_input_details(), runner.get_output_details())
    )


FIXED_SIZES = {"batch_size": BATCH, "source_length": SOURCE_LENGTH, "max_length": MAX_LENGTH}
RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("onnx", export_onnx, onnx_graph, {"max_length": MAX_LENGTH}, onnx_description),
        Runtime("litert", export_litert, litert_graph, FIXED_SIZES, litert_description),
    )
}


@pytest.fixture(scope="module")
def tokenizers():
    words = np.random.default_rng(3).choice([*"abcde"], (97, 5))
    texts = ["".join(word) for word in words]
    return TokenizerPair(
        Tokenizer.train(texts, vocabulary_size=19), Tokenizer.train(texts, vocabulary_size=23)
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory, tokenizers):
    """Models, what they generate, and their exports, each made once."""

    @functools.cache
    def model(case):
        return make_model(small_config(**CASES[case]))

    @functools.cache
    def generated(case):
        source = source_rows(model(case).config, BATCH, SOURCE_LENGTH)
        return model(case).generate(source, max_length=MAX_LENGTH, jit_compile=False)[0]

    @functools.cache
    def directory(case, name):
        runtime = RUNTIMES[name]
        path = tmp_path_factory.mktemp(name) / "new" / "model"
        return runtime.export(model(case), path, tokenizer=tokenizers, **runtime.sizes)

    return types.SimpleNamespace(model=model, generated=generated, directory=directory)


FIRST, *OTHERS = CASES
# What they compute is near to what other cases compute.
AGAIN = ("gpas around hybrid_norm, seed_norm", "a memory of depth", "average attention")


def in_its_tier(case):
    mark = pytest.mark.release if case in AGAIN else pytest.mark.slow
    return pytest.param(case, marks=mark)


@pytest.fixture(params=[FIRST, *map(in_its_tier, OTHERS)])
def case(request):
    return request.param


@pytest.fixture
def model(made, case):
    return made.model(case)


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    return RUNTIMES[request.param]


@pytest.fixture
def directory(made, case, runtime):
    return made.directory(case, runtime.name)


def run_steps(runtime, directory, source, target, rows_per_source=1):
    """Decodes given targets step by step."""
    state = runtime.load(directory, "encoder")(source=source)
    for name in state:
        if name.startswith("self_attention"):
            state[name] = np.repeat(state[name], rows_per_source, axis=0)
    decoder_step = runtime.load(directory, "decoder_step")
    steps = []
    for index, token in enumerate(target.T):
        outputs = decoder_step(token=token, index=np.array(index, "int32"), **state)
        steps.append(outputs.pop("logits"))
        state |= {name.removeprefix("new_"): cache for name, cache in outputs.items()}
    return np.stack(steps, axis=1)


@pytest.mark.slow
def test_the_teacher_forced_graph(model, runtime, directory):
    source = source_rows(model.config, BATCH, SOURCE_LENGTH)
    target = target_rows(model.config, BATCH, MAX_LENGTH)
    target[1, 3:] = target[2, 8:] = model.config.pad_id
    expected = keras.ops.convert_to_numpy(model({"source": source, "target": target}))
    found = runtime.load(directory, "teacher_forced")(source=source, target=target)
    np.testing.assert_allclose(found["logits"], expected, atol=1e-4)
    assert np.ptp(expected) > 3


def test_the_cached_steps_are_the_teacher_forced_model(model, runtime, directory):
    source = source_rows(model.config, BATCH, SOURCE_LENGTH)
    target = target_rows(model.config, BATCH, MAX_LENGTH)
    expected = keras.ops.convert_to_numpy(model({"source": source, "target": target}))
    found = run_steps(runtime, directory, source, target)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def run_readme(directory, monkeypatch):
    monkeypatch.chdir(directory.parent)
    readme = (directory / "README.md").read_text(encoding="utf-8")
    names = {}
    exec(readme.split("```python\n")[1].split("```")[0], names)
    return names["greedy"]


def test_the_readmes_greedy_search_finds_our_tokens(made, case, model, directory, monkeypatch):
    source = source_rows(model.config, BATCH, SOURCE_LENGTH)
    found = run_readme(directory, monkeypatch)(source)
    expected = made.generated(case)
    used = found.shape[1]
    np.testing.assert_array_equal(found, expected[:, :used])
    assert np.all(expected[:, used:] == model.config.pad_id)
    assert np.all(found[-1] == model.config.pad_id)
    assert len({tuple(row) for row in found}) > 2


def test_the_card_says_what_the_graphs_take(model, runtime, directory):
    card = json.loads((directory / "model.json").read_text(encoding="utf-8"))
    assert set(card["graphs"]) == {"teacher_forced", "encoder", "decoder_step"}
    for name, graph in card["graphs"].items():
        assert (directory / graph["file"]).is_file()
        described = runtime.described(directory, name)
        for values, real in zip((graph["inputs"], graph["outputs"]), described, strict=True):
            said = {value["name"]: (value["shape"], value["dtype"]) for value in values}
            assert said == real
    names = ("pad_id", "start_id", "end_id")
    assert card["special_ids"] == {name: getattr(model.config, name) for name in names}
    assert card["never_generated"] == list(model.config.special_ids.never_generated)
    assert Seq2SeqConfig.from_dict(card["config"]) == model.config
    assert card["max_length"] == MAX_LENGTH


@pytest.fixture
def small(made):
    return made.model(FIRST)


@pytest.fixture
def small_onnx(made):
    return made.directory(FIRST, "onnx")


@pytest.fixture
def small_litert(made):
    return made.directory(FIRST, "litert")


def test_onnx_takes_other_sizes(small, small_onnx):
    source = source_rows(small.config, 3, 17)
    target = target_rows(small.config, 3, 19)
    expected = keras.ops.convert_to_numpy(small({"source": source, "target": target}))
    found = onnx_graph(small_onnx, "teacher_forced")(source=source, target=target)["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_onnx_steps_take_several_rows_for_a_source(small, small_onnx):
    """The hypotheses of a beam share what their cross-attention reads."""
    source = source_rows(small.config, 3, 5)
    target = target_rows(small.config, 6, 4)
    repeated = np.repeat(source, 2, axis=0)
    expected = keras.ops.convert_to_numpy(small({"source": repeated, "target": target}))
    found = run_steps(RUNTIMES["onnx"], small_onnx, source, target, rows_per_source=2)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_onnx_files_hold_each_weight_once(small, small_onnx):
    for name in ("teacher_forced", "encoder", "decoder_step"):
        graph = onnx.load(small_onnx / f"{name}.onnx").graph
        numbers = sum(np.prod(tensor.dims) for tensor in graph.initializer)
        # Besides the weights there are the frequencies of positions, shapes and indices.
        assert numbers < 1.1 * small.count_params(), name


def test_the_litert_file_has_built_in_operations_only_and_each_weight_once(small, small_litert):
    content = (small_litert / "model.tflite").read_bytes()
    model = litert_schema.ModelT.InitFromObj(litert_schema.Model.GetRootAs(content))
    # TensorFlow's own operations are custom ones with names such as b"FlexErf".
    assert [code.customCode for code in model.operatorCodes if code.customCode is not None] == []
    assert litert_schema.BuiltinOperator.CUSTOM not in {
        code.builtinCode for code in model.operatorCodes
    }
    assert len(model.operatorCodes) > 10
    size = sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None)
    # Besides the weights there is what follows from the fixed sizes: positions, masks, shapes.
    assert 4 * small.count_params() < size < 5.5 * small.count_params()


def test_litert_is_for_one_source_of_any_length_by_default(small, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_addnorm.interop.litert._convert", lambda graphs: b"")
    card = json.loads((export_litert(small, tmp_path / "model") / "model.json").read_text())
    inputs = card["graphs"]["teacher_forced"]["inputs"]
    assert [(value["name"], value["shape"]) for value in inputs] == [
        ("source", [1, 13]),
        ("target", [1, 13]),
    ]
    assert card["max_length"] == 13


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("onnx", {"teacher_forced.onnx", "encoder.onnx", "decoder_step.onnx"}),
        ("litert", {"model.tflite"}),
    ],
)
def test_the_folders(name, files, made, tokenizers):
    directory = made.directory(FIRST, name)
    assert {path.name for path in directory.iterdir()} == {
        *("model.json", "README.md", "source.model", "target.model"),
        *(IN_EXPORTS, *files),
    }
    listed = {"model.json", "source.model", "target.model", *files}
    assert Manifest(directory, IN_EXPORTS).read().keys() == listed
    require_intact(directory)
    assert TokenizerPair.load(directory) == tokenizers
    assert list(directory.parent.iterdir()) == [directory], "a temporary folder was left"


def test_the_page_shows_the_readmes_code(small_onnx):
    readme = (small_onnx / "README.md").read_text(encoding="utf-8")
    code = readme.split("```python\n")[1].split("```")[0]
    assert code in (ROOT / "docs" / "runtimes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RUNTIMES)
def test_what_cannot_be_said_is_named(name, small, monkeypatch, tmp_path):
    """With a graph in place of the model's whose operation neither runtime knows."""
    x, y = (graphs.NamedTensor(name, (3, 5), "float32") for name in "xy")
    function = graphs._concrete(lambda x: {"y": keras.ops.erfinv(x)}, [x])
    graph = graphs.Graph("encoder", function, (x,), (y,))
    monkeypatch.setattr(f"keras_addnorm.interop.{name}.trace", lambda *_: (graph,))
    with pytest.raises(ValueError, match=r"cannot say this model.*Erfinv.*export_saved_model"):
        RUNTIMES[name].export(small, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_litert_has_no_error_function(tmp_path):
    model = make_model(small_config(norm="derf"))
    with pytest.raises(ValueError, match=r"LiteRT.*Erf.*export_saved_model"):
        export_litert(model, tmp_path / "model", **FIXED_SIZES)
    assert list(tmp_path.iterdir()) == []


def test_f1_the_graphs_have_what_lora_learned():
    config = small_config(num_decoder_layers=1)
    model, rng = make_model(config), np.random.default_rng(3)
    enable_lora(model, 2)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(scale=0.3, size=tuple(weight.shape)))
    (teacher_forced, *_) = graphs.trace(model, graphs.Sizes(max_length=MAX_LENGTH))
    assert not [v.name for v in teacher_forced.function.variables if "lora" in v.name]
    source, target = source_rows(config, 3, 5), target_rows(config, 3, 4)
    inputs = {name: tf.constant(ids) for name, ids in {"source": source, "target": target}.items()}
    expected = model({"source": source, "target": target})
    found = teacher_forced.function(**inputs)["logits"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_f9_a_quantised_model_has_no_graphs():
    model = make_model(small_config())
    model.quantize("int8", filters="query")
    with pytest.raises(ValueError, match="quantise last"):
        graphs.trace(model, graphs.Sizes(max_length=MAX_LENGTH))


@pytest.fixture(scope="module")
def half():
    return Seq2SeqTransformer(small_config(), dtype="mixed_float16")


@pytest.fixture(scope="module")
def learned():
    return Seq2SeqTransformer(small_config(positions="learned"))


@pytest.mark.parametrize("name", RUNTIMES)
def test_errors(name, small, half, learned, tmp_path, monkeypatch):
    export = RUNTIMES[name].export
    target = tmp_path / "model"
    with pytest.raises(TypeError, match=r"Expected a Seq2SeqTransformer.*Received: a int"):
        export(3, target)
    with pytest.raises(FileExistsError, match="it exists"):
        export(small, tmp_path)
    tokenizer = Tokenizer.train(["ab"], vocabulary_size=7)
    with pytest.raises(ValueError, match=r"a source vocabulary of 19 pieces. Received: 7"):
        export(small, target, tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"max_length.*positive.*Received: 0"):
        export(small, target, max_length=0)
    with pytest.raises(ValueError, match=r"compute in float32.*'mixed_float16'"):
        export(half, target)
    with pytest.raises(ValueError, match=r"learned positions. Expected max_length <= 13"):
        export(learned, target, max_length=14)
    monkeypatch.setattr(graphs.keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match=r"'jax'.*KERAS_BACKEND=tensorflow"):
        export(small, target)
    assert list(tmp_path.iterdir()) == []


def test_onnx_says_what_to_install(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r"tf2onnx.*pip install .*\[onnx\]"):
        export_onnx(small, tmp_path / "model")


@pytest.mark.parametrize("module", ["onnx", "litert"])
def test_a_failure_leaves_nothing(module, small, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("full")

    monkeypatch.setattr(f"keras_addnorm.interop.{module}._convert", full)
    with pytest.raises(OSError, match="full"):
        RUNTIMES[module].export(small, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
