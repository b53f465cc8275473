"""The scripts under benchmarks/ run; what they count is checked, what they time is not."""

import functools
import json
import re
import types
from pathlib import Path

import new_process
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


# With the benchmarks at hand.
run_on = functools.partial(new_process.run_on, folders=[ROOT / "benchmarks"])


def sentences(count):
    generator = np.random.default_rng(5)
    lengths = generator.integers(1, 60, (count, 2))
    return [tuple([4 + n] * n for n in pair) for pair in lengths.tolist()]


def test_every_sentence_is_in_one_token_batch_and_no_batch_is_too_large(epochs):
    pairs = sentences(531)
    batches = epochs.token_batches(pairs)
    assert sorted(index for batch in batches for index in batch) == list(range(531))
    longest = [1 + max(len(side) for index in batch for side in pairs[index]) for batch in batches]
    positions = [len(batch) * length for batch, length in zip(batches, longest, strict=True)]
    assert max(positions) <= epochs.TOKENS_PER_BATCH
    # Of like length: sorting leaves little padding.
    assert sum(max(map(len, pair)) + 1 for pair in pairs) > 0.85 * sum(positions)


def test_the_guides_pipeline_cuts_and_pads_to_one_length(epochs):
    (inputs, labels), *rest = epochs.fixed_length([([7, 8], [9]), ([5] * 50, [6] * 50)])
    assert not rest
    order = np.argsort(-inputs["source"].numpy()[:, 0])  # The data set is shuffled.
    expected = np.zeros((3, 2, 40), int)
    expected[0, 0, :3], expected[0, 1] = (7, 8, 2), 5
    expected[1, 0, :3], expected[1, 1] = (1, 9, 2), 6
    expected[1, 1, 0] = 1
    expected[2, 0, :2], expected[2, 1] = (9, 2), 6
    for array, wanted in zip((inputs["source"], inputs["target"], labels), expected, strict=True):
        np.testing.assert_array_equal(array.numpy()[order], wanted)


@pytest.mark.slow
def test_torch_trains_on_all_target_tokens(epochs):
    peers = epochs.peers
    size = peers.Size(1, 6, 10, 2, 70)
    pairs = sentences(11)
    with pytest.warns(UserWarning, match="nested_tensor"):
        training = epochs.TorchTraining(size, pairs)
    assert training.tokens == sum(len(target) + 1 for _, target in pairs)
    training.epoch()
    loss = training._step((np.array([[4, 2]]), np.array([[1, 4]]), np.array([[4, 2]])))
    assert 0.5 < loss / np.log(size.vocabulary_size) < 2  # It knows nothing yet.


def test_the_losses_of_the_contenders_are_one(epochs):
    import torch

    peers = epochs.peers
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(3, 5, 11)).astype("float32")
    labels = rng.integers(0, 11, (3, 5)).astype("int32")
    labels[1, 2:] = 0  # Padding.
    in_torch = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=peers.SMOOTHING)
    expected = in_torch(torch.tensor(logits).flatten(0, 1), torch.tensor(labels).flatten().long())
    _, ours = peers.our_training()
    for loss in (ours, peers.smoothed_cross_entropy):
        np.testing.assert_allclose(loss(labels, logits), expected, rtol=1e-6)


def test_torch_drops_where_the_others_do(epochs):
    import torch

    with pytest.warns(UserWarning, match="nested_tensor"):
        model = epochs.peers.torch_model(epochs.peers.Size(2, 6, 10, 2, 70))
    rates = [part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)]
    # Of the embeddings; of two sublayers and three, of two layers each.
    assert rates.count(0.1) == 1 + 2 * (2 + 3)
    of_scores = [m.dropout for m in model.modules() if isinstance(m, torch.nn.MultiheadAttention)]
    assert of_scores == 6 * [0.0]


def test_an_epoch_is_shuffled_as_well_as_a_uniform_permutation(shuffling):
    epochs = shuffling.epochs_of(3001)
    first, second = (shuffling.order_of(epochs, epoch) for epoch in (0, 1))
    found = shuffling.figures(first, second)
    sizes = [len(batch) for batch in first]
    chance = shuffling.figures(*(shuffling.uniform(sizes, seed) for seed in (1, 2)))
    for figures in (found, chance):
        assert abs(figures["drift"]) < 4
        assert figures["neighbours"] == pytest.approx(1, abs=0.05)
        assert figures["spread"] == pytest.approx(1, abs=0.05)
    # Pairs move a batch at a time, which are few here; the same order again would be 55.
    assert abs(found["again"]) < 20 and abs(chance["again"]) < 4
    # Only pairs of like length meet.
    assert 1.5 < found["mates"] < 12 and chance["mates"] == pytest.approx(1, abs=0.2)
    # What is measured tells another order from it.
    buffered = [shuffling.buffered(sizes, seed, 100) for seed in (1, 2)]
    worse = shuffling.figures(*buffered)
    assert worse["drift"] > 40 and worse["neighbours"] < 0.2 and worse["spread"] < 0.3
    as_it_is = [np.arange(3001)]
    same = shuffling.figures(as_it_is, as_it_is)
    assert (same["drift"], same["mates"]) == (pytest.approx(3000**0.5), pytest.approx(1))


SAME_WORK = """
import json
import warnings

import jax
import peers
import training_step

warnings.simplefilter("ignore")
counts, shares = {}, {}
for name, job in training_step.JOBS.items():
    in_torch = sum(weight.numel() for weight in peers.torch_model(job.size).parameters())
    models = {peer: make(job.size) for peer, make in peers.KERAS_MODELS.items()}
    counts[name] = [in_torch, *(model.count_params() for model in models.values())]
source, target, _ = job.batch  # Of the last and smallest, the miniature.
for peer, model in models.items():
    variables = (model.trainable_variables, model.non_trainable_variables)
    values = [[variable.value for variable in kind] for kind in variables]
    call = jax.jit(lambda *arguments: model.stateless_call(*arguments, training=True))
    program = call.lower(*values, {"source": source, "target": target}).as_text(dialect="hlo")
    shares[peer] = training_step.flops_of_products(program) / (job.flops / 3)
print(json.dumps([counts, shares]))
"""


@pytest.mark.release
def test_the_contenders_have_as_many_weights_and_products():
    counts, shares = json.loads(run_on("jax", "-c", SAME_WORK).splitlines()[-1])
    assert {"tiny", "base", "base 6+6"} < set(counts)
    assert {size: len(set(found)) for size, found in counts.items()} == dict.fromkeys(counts, 1)
    # Ours computes the sums of its norms as products, too.
    assert shares.pop("keras-addnorm") == pytest.approx(1, abs=0.05)
    assert shares == {"Keras layers": 1, "keras-hub": 1}


def test_the_watch_sees_the_time_of_the_step_alone(epochs):
    model = types.SimpleNamespace(train_function=list, make_train_function=lambda: None)
    watch = epochs.StepWatch(model)
    assert model.train_function is watch
    assert watch(iter("ab")) == ["a", "b"]
    first = watch.wall_ms
    assert first > 0
    watch(iter("c"))
    assert watch.wall_ms > first >= 0 <= watch.thread_ms


GROWTH_AND_GPU = """
import sys

for name in ("tensorflow", "tensorflow_datasets"):
    sys.modules[name] = None  # Importing it now fails: machines with a GPU may not have it.

import gpu
import gpu_check
import growth

growth.main(["--smoke", "--rounds", "1", "--plot", sys.argv[1]])
fast, even = (1.0, 8.0), (1.0, 2.0)
for program, time in ((growth.TRAINING, even), (growth.DECODING, fast)):
    curve = growth.Curve((1, 2), time, megabytes=even, operations=fast, compile_ms=even)
    print(*growth.table({(program, "batch"): curve}, growth.AXES), sep=" -> ")
gpu.main(["--smoke", "--contenders", "keras-addnorm"])
small = "--preset micro --layers 1 --vocabularies 53 --chunk 11 --rows 2 --length 8 --steps 2"
gpu_check.main(small.split())
"""


SMALL = """
import runpy
import sys

for script, *arguments in (
    ("add_norm", "--shape", "2,3,8", "--rounds", "1"),
    ("attention", "--rounds", "1"),
    ("graph_tokenizer", "--text", sys.argv[1], "--vocabulary-size", "200", "--rounds", "1"),
    ("residual_monitor", *"--every 2 --rounds 1 --rows 2 --length 5 --probe-rows 3".split()),
):
    sys.argv[1:] = arguments
    runpy.run_module(script, run_name="__main__", alter_sys=True)
"""


@pytest.mark.release
def test_the_scripts_about_a_part_run():
    said = run_on("tensorflow", "-c", SMALL, str(ROOT / "README.md"))
    assert "layer_norm [2, 3, 8]" in said
    assert "tensorflow, short" in said
    assert "bpe, batches of 256" in said
    assert "The monitor costs" in said


@pytest.mark.release
def test_growth_and_gpu_run_without_tensorflow(tmp_path):
    said = run_on("jax", "-c", GROWTH_AND_GPU, str(tmp_path / "growth.png"))
    assert "| decoding, length | 8, 16 |" in said
    # Time is only marked: what is counted decides.
    assert re.search(r"training step, batch .*\*\*exceeded: operations\*\* .* -> False", said)
    assert re.search(r"decoding, batch .* \| – \| 1 \*\*exceeded: time\*\* .* -> True", said)
    assert "| keras-addnorm |" in said
    assert "| 2 | 2 |" in said  # The search with two beams.
    assert re.search(r"\| 53 \| whole .*bf16·bf16→f32.*\n\| 53 \| 11 .* \d+\.\d\d \|", said)
    assert (tmp_path / "growth.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.release
def test_startup_runs_and_nothing_imports_tensorflow(tmp_path):
    script = str(ROOT / "benchmarks" / "startup.py")
    said = run_on("jax", script, "--smoke", "--keep-programs", str(tmp_path))
    assert any("train_step" in path.name for path in tmp_path.iterdir())
    assert "| imports | import keras (jax) |" in said
    assert "| imports | and its layers, models, training and decoding |" in said
    for contender in ("keras-addnorm", "Keras layers"):
        assert f"| {contender}, 1+1, XLA | first step |" in said


@pytest.mark.release
def test_lengths_and_large_models_are_measured(tmp_path):
    scripts = (ROOT / "benchmarks" / name for name in ("lengths.py", "large_models.py"))
    lengths, models = map(str, scripts)
    path = tmp_path / "figures.json"
    run_on("tensorflow", lengths, "--smoke", "--json", str(path))
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert len(rows) == 5 * 2 and all(row["us_a_token"] > 0 for row in rows)
    short, long = (row for row in rows if row["what"] == "training, JAX")
    assert 1 < long["gflop"] / short["gflop"] < 2  # Of as many tokens.
    arguments = ("--smoke", "--processes", "half", "export", "load_export")
    run_on("tensorflow", models, *arguments, "--json", str(path))
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    steps = ("import_float16", "first_translation", "import_float32", "export", "load_export")
    assert tuple(row["step"] for row in rows) == steps


@pytest.mark.release
def test_a_second_start_of_a_large_corpus_maps_the_ids_of_the_first(tmp_path):
    script, path = str(ROOT / "benchmarks" / "large_corpora.py"), tmp_path / "figures.json"
    run_on("jax", script, "--smoke", "--json", str(path), "--keep", str(tmp_path / "corpora"))
    (row,) = json.loads(path.read_text(encoding="utf-8"))
    assert row["pairs"] == 3000 and row["second_peak_mib"] > 100
    assert row["array_record_mib"] > row["ids_mib"]
    (ids,) = (tmp_path / "corpora").glob("run-3000-*/token_ids/source.npy")
    # Sentences of 13 words on the mean, of which most are several pieces.
    assert 13 * 3000 < len(np.load(ids)) < 130 * 3000


@pytest.mark.release
def test_decoding_translates_the_same_texts_as_ctranslate2(tmp_path):
    path = tmp_path / "figures.json"
    arguments = ("--smoke", "--rounds", "1", "--cells", "miniature 1 ", "--json", str(path))
    # The script fails where translations differ without a tie.
    said = run_on("tensorflow", str(ROOT / "benchmarks" / "decoding.py"), *arguments)
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert set(figures) == {"miniature 1 × greedy", "miniature 1 × beam 4"}
    for cell, timings in figures.items():
        assert f"| {cell} |" in said
        assert {"keras-addnorm, XLA", "keras-addnorm, no XLA"} < set(timings)


@pytest.mark.release
def test_two_checkouts_are_compared_cell_by_cell(tmp_path):
    path = tmp_path / "figures.json"
    arguments = ("--smoke", "--rounds", "1", "--cells", "miniature 1 × greedy", "--json", str(path))
    script = str(ROOT / "benchmarks" / "compare_checkouts.py")
    # The same code on both sides: the same translations and losses, and files but for random names.
    said = run_on("tensorflow", script, str(ROOT), str(ROOT), *arguments)
    assert "DIFFER" not in said and "other losses" not in said
    (change,) = re.findall(r"export of miniature: [\d,]+ -> [\d,]+ bytes \(([\d.]+)\)", said)
    assert float(change) == pytest.approx(1, abs=0.01)
    figures = json.loads(path.read_text(encoding="utf-8"))
    kinds = ("XLA", "no XLA")
    assert [*figures] == [
        *(f"miniature 1 × greedy, {kind}" for kind in kinds),
        *(f"training step miniature, {kind.lower()}" for kind in kinds),
    ]
    assert all(row["ratio"] > 0 and row["old"]["median_ms"] > 0 for row in figures.values())


@pytest.mark.release
def test_shortlists_are_timed_beside_the_whole_vocabulary(tmp_path):
    path = tmp_path / "figures.json"
    arguments = ("--smoke", "--rounds", "1", "--cells", "miniature 1 × beam", "--sizes", "16")
    script = str(ROOT / "benchmarks" / "shortlist.py")
    said = run_on("tensorflow", script, *arguments, "--json", str(path))
    timings = json.loads(path.read_text(encoding="utf-8"))["miniature 1 × beam 4"]
    assert set(timings) == {"all, XLA", "16, XLA", "all, no XLA", "16, no XLA"}
    assert re.search(r"\| miniature 1 × beam 4 \| [\d.]+ \| [\d.]+ \([\d.]+ ×\) \|", said)


@pytest.mark.release
def test_caches_are_timed_whole_and_growing(tmp_path):
    path = tmp_path / "figures.json"
    arguments = ("--smoke", "--rounds", "1", "--cells", "miniature 1 × beam", "--room", "130")
    said = run_on("tensorflow", str(ROOT / "benchmarks/caches.py"), *arguments, "--json", str(path))
    kinds = [f"{kind}, {room}" for kind in ("XLA", "no XLA") for room in ("whole", "growing")]
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert list(figures["miniature 1 × beam 4"]) == kinds
    assert re.search(r"\| miniature 1 × beam 4 (\| [\d.]+ ){4}\|", said)


@pytest.mark.release
def test_training_step_runs_and_writes_its_figures(tmp_path):
    script, path = ROOT / "benchmarks" / "training_step.py", tmp_path / "figures.json"
    contenders = ("keras-addnorm", "torch")
    said = run_on("jax", str(script), "--smoke", "--json", str(path), "--contenders", *contenders)
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert figures["backend"] == "jax, XLA"
    assert tuple(figures["contenders"]) == contenders
    for name, row in figures["contenders"].items():
        assert f"| {name} |" in said
        assert row["share_of_peak"] == pytest.approx(figures["floor_ms"] / row["ms"])
        assert row["peak_mib"] > row["peak_beyond_imports_mib"] > 0
    assert len(figures["rounds"]["torch"]["wall_ms"]) == 2


@pytest.mark.release
def test_serving_asks_a_server_and_writes_what_it_saw(tmp_path):
    path = tmp_path / "figures.json"
    run_on("tensorflow", str(ROOT / "benchmarks" / "serving.py"), "--smoke", "--json", str(path))
    figures = json.loads(path.read_text(encoding="utf-8"))
    rows = figures["throughput"]
    assert [(row["signature"], row["clients"]) for row in rows] == [
        (signature, clients)
        for signature in ("serving_default", "translate_xla")
        for clients in (1, 8, 64)
    ]
    for row in rows:
        assert row["requests_per_second"] > 0 and row["cpu_ms"] > 0
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
    (first,) = figures["first"]
    assert first["warm_up"] and first["start_s"] > 0 and first["first_ms"] > 0
    calm, *attacked = figures["attacks"]
    assert calm["beside"] == "nobody" and not calm["answers"]
    assert [row["beside"] for row in attacked] == ["each for a second", "a long word"]
    for row in (calm, *attacked):
        assert row["requests"] > 0 and row["lost"] == 0
    assert all(row["answers"].keys() == {"413"} for row in attacked)
    mixed = figures["mixed"]
    assert len(mixed["megabytes"]) == 1 + len(mixed["rows"]) == 3
    # Each kind of client has had an answer.
    kinds = {answer.partition(":")[0] for answer in mixed["answers"]}
    assert kinds >= {"other names", "other models", "malformed", "packed", "lengths", "leaving"}


@pytest.mark.release
def test_an_imported_model_translates_alike_everywhere(tmp_path):
    figures = run_pretrained("search", tmp_path, "--batch-sizes", "1")
    assert figures["export"]["mb"] > 0
    for search in ("greedy", "beam 4"):
        assert set(figures[f"1 × {search}"].pop("equal").values()) == {1}
        assert len(figures[f"1 × {search}"]) == 4


@pytest.mark.release
def test_imports_and_fine_tuning_are_measured(tmp_path):
    figures = run_pretrained("import", tmp_path, "--backends", "torch")
    imported, command = figures["torch"], figures["command"]
    assert 0 < command["peak_mb"] < command["before_mb"]
    assert imported["peak_of_all_mb"] > imported["before_mb"] > imported["weights_mb"] > 0
    tuned = run_pretrained("fine-tuning", tmp_path)
    all_weights, lora = (tuned[name] for name in ("all weights", "LoRA of rank 8"))
    assert all_weights["trained"] > lora["trained"] > 0
    assert all_weights["checkpoint_mb"] > 0


def run_pretrained(part, folder, *arguments):
    path = folder / "figures.json"
    script = str(ROOT / "benchmarks" / "pretrained.py")
    run_on("tensorflow", script, part, "--smoke", "--json", str(path), *arguments)
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.release
def test_kinds_of_self_attention_are_timed_beside_attention(tmp_path):
    path = tmp_path / "figures.json"
    script = str(ROOT / "benchmarks" / "self_attention.py")
    run_on("tensorflow", script, "--smoke", "--only", "training", "beam", "--json", str(path))
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert list(figures) == [
        *("training", "training, without XLA", "beam", "beam, without XLA"),
    ]
    for part in figures.values():
        assert list(part) == ["multi_head_attention", "ssru", "average_attention"]
        assert part["multi_head_attention"]["ratio"] == 1.0 and part["ssru"]["cpu_ratio"] > 0


@pytest.mark.release
def test_schemes_are_timed_beside_pre_ln(tmp_path):
    path = tmp_path / "figures.json"
    script = str(ROOT / "benchmarks" / "schemes.py")
    run_on("tensorflow", script, "--smoke", "--schemes", "resi_dual", "--json", str(path))
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert list(figures) == ["training", "search"]
    for part in figures.values():
        assert list(part) == ["pre_ln", "resi_dual"]
        assert part["pre_ln"]["ratio"] == 1.0 and part["resi_dual"]["ratio"] > 0
