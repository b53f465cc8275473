"""What the programs of the engines do not do: transpose, tile or reorder what does not change."""

import functools
import re
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.decoding import Beam, decode
from keras_addnorm.decoding.engine import TFGraphEngine, XLAEngine, engine_for, xla
from keras_addnorm.decoding.engine.tf_ops import transpose
from keras_addnorm.decoding.engine.views import ListedTokens
from keras_addnorm.decoding.generate import run_search
from keras_addnorm.decoding.search import Search
from keras_addnorm.decoding.tensor_ops import IMPOSSIBLE
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.serving.optimize_graph import function_definitions

B, S, D, H, V, T = 3, 5, 14, 2, 23, 4
K = D // H
SOURCE = np.array([[4, 5, 6, 7, 2], [8, 9, 2, 0, 0], [10, 2, 0, 0, 0]], "int32")


def make_model(hidden_dim=D, intermediate_dim=13, **settings):
    config = Seq2SeqConfig(
        target_vocabulary_size=V,
        num_encoder_layers=1,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        num_heads=H,
        **{"source_vocabulary_size": 11, "num_decoder_layers": 1, "max_length": T, **settings},
    )
    return Seq2SeqTransformer(config)


@pytest.fixture(scope="module")
def model():
    return make_model()


def lines_of_the_loop(model, num_beams, source=SOURCE, traced_as=SOURCE.shape):
    """The instructions that XLA's program runs at each step."""
    spec = tf.TensorSpec(traced_as, tf.int32)

    @tf.function(input_signature=[spec], jit_compile=True, autograph=False)
    def compiled(ids):
        return decode(model, ids, num_beams=num_beams, max_length=T)

    hlo = compiled.experimental_get_compiler_ir(tf.constant(source))(stage="optimized_hlo")
    parts = {part.split(" ", 1)[0]: part for part in re.split(r"\n+(?=%|ENTRY)", hlo)}
    (body,) = {name for part in parts.values() for name in re.findall(r"body=(%[^,\s]+)", part)}
    names, lines = [body], []
    for name in names:
        lines += parts[name].splitlines()
        called = re.findall(r"(?:calls|to_apply)=(%[^,\s]+)", parts[name])
        names += [other for other in called if other not in names]
    return lines


def made_by(lines, operations):
    """The sorted sizes of all that these operations make."""
    pattern = re.compile(rf"= \w+\[([\d,]+)\]\S* (?:{'|'.join(operations)})\(")
    found = (pattern.search(line) for line in lines)
    return [sorted(map(int, match[1].split(","))) for match in found if match]


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_loop_moves_no_cache_and_no_table(model, num_beams):
    lines = lines_of_the_loop(model, num_beams)
    moved = made_by(lines, ("copy", "transpose", "gather", "concatenate"))
    own, memory, table = [B * H, T * num_beams, K], [B * H, S, K], [V, D]
    # They are there, as the products read them, and the memory's not once a hypothesis,
    for shape in (own, memory, [B * H, K, T * num_beams], [B * H, K, S]):
        assert any(f"[{','.join(map(str, shape))}]" in line for line in lines)
    # but nothing moves them.
    assert moved and not [s for s in moved if s in (sorted(own), sorted(memory), sorted(table))]
    # A step writes one position of the keys and of the values where they lie, and no other.
    assert made_by(lines, ("dynamic-update-slice",)).count(sorted(own)) == 2
    assert sorted(own) not in made_by(lines, ("select",))


ENGINES = [XLAEngine(), TFGraphEngine()]


def logits_of(model, engine, x, tokens=None):
    """Logits by the view that an engine makes for rows of one hypothesis."""
    listed = None if tokens is None else ListedTokens(tokens, V)
    return engine.view(model, 1, 1, listed).decoder_embedding.logits(x)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
def test_the_prepared_logits_are_the_embeddings(model, engine):
    x = np.random.default_rng(1).normal(size=(2, D)).astype("float32")
    expected = np.asarray(model.decoder_embedding(x[:, None], reverse=True))[:, 0]
    np.testing.assert_allclose(logits_of(model, engine, x), expected, rtol=1e-5, atol=1e-5)
    tokens = tf.constant([7, 0, 22])
    logits = logits_of(model, engine, x, tokens)
    np.testing.assert_allclose(logits, expected[:, tokens], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
def test_the_prepared_logits_have_their_bias(engine):
    biased = make_model(logits_bias=True)
    x = np.random.default_rng(1).normal(size=(2, D)).astype("float32")
    plain = logits_of(biased, engine, x)
    bias = np.random.default_rng(2).normal(size=V)
    biased.decoder_embedding.logits_bias.assign(bias)
    np.testing.assert_allclose(logits_of(biased, engine, x), plain + bias, rtol=1e-5, atol=1e-5)
    tokens = tf.constant([7, 0, 22])
    expected = (plain + bias).numpy()[:, [7, 0, 22]]
    found = logits_of(biased, engine, x, tokens)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_rows", [1, 2, 16, 17])
def test_xla_chooses_the_table_for_rows_that_nobody_knew_while_tracing(model, num_rows):
    @tf.function(input_signature=[tf.TensorSpec([None, D])], jit_compile=True, autograph=False)
    def project(x):
        return logits_of(model, XLAEngine(), x)

    x = np.random.default_rng(1).normal(size=(num_rows, D)).astype("float32")
    expected = model.decoder_embedding(x[:, None], reverse=True)[:, 0]
    np.testing.assert_allclose(project(x), expected, rtol=1e-5, atol=1e-5)
    hlo = project.experimental_get_compiler_ir(tf.constant(x))(stage="optimized_hlo")
    assert "conditional" not in hlo


@pytest.mark.parametrize("kind", [XLAEngine, TFGraphEngine])
@pytest.mark.parametrize("is_there", [False, True])
def test_the_table_is_transposed_if_nobody_has_it_transposed(kind, is_there):
    model = make_model(share_embeddings=True, source_vocabulary_size=V)
    embeddings = model.decoder_embedding.embeddings
    table = tf.transpose(embeddings.value)

    @tf.function(autograph=False)
    def prepare():  # All that comes before the loop.
        engine = kind(lambda found: table if is_there and found is embeddings else None)
        engine.view(model, 1, 1)

    operations = prepare.get_concrete_function().graph.get_operations()
    made = [op.outputs[0].shape for op in operations if op.type == "Transpose"]
    assert made == [(D, V)] * (not is_there)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_rows", "is_known", "is_transposed"),
    [(1, True, 0), (1, False, 0), (2, False, 1), (16, True, 1), (17, False, 0)],
)
def test_the_table_is_transposed_before_the_loop_for_a_few_rows(
    model, num_rows, is_known, is_transposed
):
    source = np.resize(SOURCE, (num_rows, S))
    lines = lines_of_the_loop(model, 1, source, [num_rows if is_known else None, S])
    carried = re.findall(r"= f32\[([\d,]+)\]\S* get-tuple-element", "\n".join(lines))
    tables = {shape for shape in carried if sorted(map(int, shape.split(","))) == [D, V]}
    assert (f"{D},{V}" in tables) == is_transposed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_rows", "num_beams", "is_known", "count"),
    [(1, 1, True, 4), (1, 1, False, 4), (2, 1, True, 1), (1, 2, False, 1)],
)
def test_large_kernels_are_cut_for_one_row_alone(monkeypatch, num_rows, num_beams, count, is_known):
    model = make_model(hidden_dim=12, intermediate_dim=20, tie_embeddings=False)
    source = SOURCE[:num_rows]
    expected = decode(model, source, num_beams=num_beams, max_length=T)
    # The six kernels of (12, 12) stay whole; of (12, 20), (20, 12) and (12, V) there is one each.
    monkeypatch.setattr(xla, "_SMALLEST_KERNEL", 200)
    shape = [num_rows if is_known else None, S]
    read = "\n".join(lines_of_the_loop(model, num_beams, source, shape))
    cut = [f"f32[4,{width // 4},{units}]" in read for width, units in ((12, 20), (20, 12), (12, V))]
    assert cut == [count == 4] * 3
    assert "f32[4,3,12]" not in read
    found = decode(model, source, num_beams=num_beams, max_length=T)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


def step_of(find):
    """The only function of a search without XLA that writes into caches."""
    functions = function_definitions(find.get_concrete_function().graph.as_graph_def())
    writes = [{"TensorStridedSliceUpdate"} & {n.op for n in f.node_def} for f in functions]
    (body,) = [function for function, has in zip(functions, writes, strict=True) if has]
    return body


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [1, 3])
def test_without_xla_one_loop_serves_all_stages_and_layers_ask_for_its_size_once(num_beams):
    counts = []
    for num_layers in (1, 3):
        model = make_model(num_decoder_layers=num_layers, max_length=300)
        search = Search(Search(num_beams=num_beams).chosen, max_length=300)
        ids = tf.TensorSpec([2, 5], tf.int32)
        find = functools.partial(run_search, model, search=search, engine=TFGraphEngine())
        body = step_of(tf.function(find, [ids]))
        operations = Counter(node.op for node in body.node_def)
        # An export merges those that ask for the size of the same.
        asked = {node.input[0] for node in body.node_def if node.op == "Shape"}
        counts.append((len(asked), operations["Range"]))
        # The keys and values of each layer; and padding and start are written over.
        assert operations["TensorStridedSliceUpdate"] == 2 * num_layers + 2
    assert counts[0] == counts[1]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_without_xla_a_step_writes_in_place_and_asks_for_no_size(model, num_beams):
    search = Search(Search(num_beams=num_beams).chosen, max_length=T)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def find(ids):
        return run_search(model, ids, search, TFGraphEngine())

    body = step_of(find)
    made = [node.op for node in body.node_def if "self_attention" in node.name]
    assert made.count("TensorStridedSliceUpdate") == 2  # The keys and values of one layer.
    assert made.count("BatchMatMulV3") == 2
    assert not {"ConcatV2", "Tile"} & set(made)
    # The number of slots, which all layers share.
    asked = {n.input[0] for n in body.node_def if n.op == "Shape" and "self_attention" in n.name}
    assert len(asked) == 1
    # Queries, keys and values are one product, besides that of the output and the two of the norm.
    assert made.count("BiasAdd") == 2 and made.count("Split") == 1
    # The best token is found in one pass.
    assert [n.op for n in body.node_def].count("ArgMax") == (num_beams == 1)
    # The table is transposed before the loop: oneDNN would do it again in each product.
    products = [n for n in body.node_def if n.op == "MatMul"]
    assert products and not any(n.attr["transpose_b"].b for n in products)
    assert "Einsum" not in {n.op for n in body.node_def}
    # What oneDNN would hand to other threads, however small it is.
    assert not {"BatchMatMul", "BatchMatMulV2", "Softmax"} & {n.op for n in body.node_def}
    # Heads of one position are swapped by a reshape, those of a beam as integers.
    moved = [n for n in body.node_def if n.op == "Transpose" and "attention" in n.name]
    kinds = Counter(tf.as_dtype(n.attr["T"].type) for n in moved)
    assert kinds == ({} if num_beams == 1 else {tf.int32: 6})
    # The source's length is in no shape of a head's own.
    sizes = [n for n in body.node_def if n.op == "Shape" and "cross_attention" in n.name]
    assert not sizes
    expected = decode(model, SOURCE, num_beams=num_beams, max_length=T)
    found = find(SOURCE)
    np.testing.assert_array_equal(found.ids[:, 0], expected[0])
    np.testing.assert_allclose(found.scores[:, 0], expected[1], rtol=1e-5)


@pytest.mark.parametrize("num_slots", [None, 5])
@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (0, 2, 3, 1)])
@pytest.mark.parametrize("width", [1, 3, 4, 6])
def test_numbers_are_moved_in_pairs_where_the_last_axis_stays(num_slots, axes, width):
    x = np.random.default_rng(0).normal(size=(2, 5, 3, width)).astype("float32")

    @tf.function(input_signature=[tf.TensorSpec([None, num_slots, 3, width])], autograph=False)
    def move(x):
        return transpose(x, axes)

    np.testing.assert_array_equal(move(x), np.transpose(x, axes))
    nodes = move.get_concrete_function().graph.get_operations()
    (kind,) = [node.get_attr("T") for node in nodes if node.type == "Transpose"]
    assert kind == (tf.int64 if axes[-1] == 3 and width % 2 == 0 else tf.int32)
    half = x.astype("float16")
    np.testing.assert_array_equal(transpose(tf.constant(half), axes), np.transpose(half, axes))


@pytest.mark.parametrize("columns", [(0, 1), (4, 2), (1, 0), (5, 6), (-1, 3)])
def test_engines_agree_on_columns(columns):
    """Of equal numbers the first one is the largest, and a zero has no sign."""
    x = [[3.0, 7.0, 7.0, 1.0, 7.0], [-1.0, -0.0, 0.0, -2.0, 0.0], [-5.0, -4.0, -1e9, -1e9, -3.0]]
    x = tf.constant(x, "float32")
    expected = np.array(x)
    expected[:, [column for column in columns if 0 <= column < 5]] = IMPOSSIBLE
    for engine in ENGINES:
        np.testing.assert_array_equal(engine.fill_columns(x + 0.0, columns, IMPOSSIBLE), expected)
        for numbers in (np.array(x), expected):
            found = engine.argmax(tf.constant(numbers))
            np.testing.assert_array_equal(found, np.argmax(numbers, axis=-1))
            assert found.dtype == tf.int32


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("under_xla", [True, False])
def test_sources_without_tokens_keep_their_number(model, under_xla):
    """A reshape finds out no size of an array without numbers."""
    search = Search(Beam(3), max_length=T)
    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[ids], jit_compile=under_xla, autograph=False)
    def find(ids):
        return run_search(model, ids, search, engine_for(under_xla))

    found = find(np.zeros((2, 0), "int32"))
    np.testing.assert_array_equal(found.ids, np.zeros((2, 1, T)))
    np.testing.assert_array_equal(found.scores, np.zeros((2, 1)))
