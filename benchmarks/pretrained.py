"""What a pretrained model costs: its import, its searches beside other programs, its fine-tuning.

    python benchmarks/pretrained.py import                       # also --backends tensorflow jax
    python benchmarks/pretrained.py import --size nllb           # the last line is the command's
    python benchmarks/pretrained.py search                       # transformers and CTranslate2
    python benchmarks/pretrained.py fine-tuning                  # all weights, and LoRA

The models are random, and of the sizes of OPUS-MT and NLLB-600M. An import is measured in a fresh
process, whose memory counts from what importing the package took. Searches go from strings to
strings, all programs in turn, with as many threads as there are cores: our SavedModel, loaded as
any client would load it, `generate` of transformers on torch, and CTranslate2. No hypothesis ends
before its last step; how many translations are those of ours is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure
import numpy as np

from keras_addnorm.interop.random_folder import make_random_folder
from keras_addnorm.runs.process_startup import allocator_settings

LENGTH = 32  # tokens of a source with its end, and of a translation
BATCH_SIZES = (1, 32)
SEARCHES = {"greedy": 1, "beam 4": 4}
OURS, OURS_NO_XLA = "keras-addnorm, XLA", "keras-addnorm, no XLA"
TRANSFORMERS, CTRANSLATE2 = "transformers on torch", "CTranslate2 float32"
RANK = 8
ALL_WEIGHTS, LORA = "all weights", f"LoRA of rank {RANK}"


@dataclasses.dataclass(frozen=True)
class Size:
    """A model, and the batch that it is fine-tuned with."""

    kind: str
    fields: Mapping[str, int]
    languages: tuple[str, ...] = ()
    batch_size: int = 32

    def make(self, folder: Path) -> Path:
        """Make the folder of such a model, with a piece for each id."""
        make_random_folder(self.kind, folder, **self.fields)
        path = folder / "vocab.json"
        if path.is_file():  # Else the pieces are those of a small model of pieces.
            ids = json.loads(path.read_text(encoding="utf-8"))
            more = range(len(ids), self.fields["vocabulary_size"])
            path.write_text(json.dumps({**ids, **{f"w{number}": number for number in more}}))
        return folder


def fields(layers: int, width: int, inner: int, heads: int, vocabulary_size: int) -> dict[str, int]:
    """Sizes by the names of a config."""
    return {
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
        "hidden_dim": width,
        "intermediate_dim": inner,
        "num_heads": heads,
        "head_dim": width // heads,
        "vocabulary_size": vocabulary_size,
    }


SIZES = {
    "opus": Size("marian", fields(6, 512, 2048, 8, 58_101)),
    "nllb": Size("nllb", fields(12, 1024, 4096, 16, 256_206), ("eng_Latn", "deu_Latn")),
    "miniature": Size("marian", fields(1, 16, 32, 2, 120), batch_size=2),
}


def warm_backend() -> None:
    """Import the backend, and have it allocate what it needs once."""
    import keras

    import keras_addnorm.interop

    assert keras_addnorm.interop
    variable = keras.Variable(np.ones((3, 3), "float32"))
    variable.assign(keras.ops.matmul(variable, variable))


def import_once(size: Size, folder: Path) -> dict[str, Any]:
    """Import a model, and translate a sentence."""
    warm_backend()
    from keras_addnorm.interop import load_pretrained

    before, start = measure.memory_mb("VmRSS"), time.perf_counter()
    pretrained = load_pretrained(folder)
    seconds, peak = time.perf_counter() - start, measure.memory_mb("VmHWM")
    after = measure.memory_mb("VmRSS")
    start = time.perf_counter()
    pretrained.translate(["A dog runs."], *size.languages, max_length=LENGTH)
    weights_mb = 4 * pretrained.model.count_params() / 1e6
    return {
        "seconds": seconds,
        "weights_mb": weights_mb,
        "before_mb": before,
        "peak_mb": peak - before,
        "peak_of_weights": (peak - before) / weights_mb,
        "after_mb": after - before,
        "first_translation_seconds": time.perf_counter() - start,
        "peak_of_all_mb": measure.memory_mb("VmHWM"),
    }


_PEAK = "print(int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]))"
_COMMAND = f"import re; from keras_addnorm import cli; assert cli.main() == 0; {_PEAK}"
_IMPORTS = f"import re, tensorflow, keras_addnorm.runs.pretrained_run; {_PEAK}"


def import_by_command(size: Size, folder: Path) -> dict[str, float]:
    """Import with `keras-addnorm import`; memory counts from what its imports take."""
    languages = [
        f"--{side}-language={name}"
        for side, name in zip(("source", "target"), size.languages, strict=False)
    ]
    arguments = ["import", str(folder), "--run-dir", str(folder / "run"), *languages]

    def peak_mb(code: str, *arguments: str) -> float:
        command = [sys.executable, "-c", code, *arguments]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return int(said.split()[-1]) * 1024 / 1e6

    before, start = peak_mb(_IMPORTS), time.perf_counter()
    peak = peak_mb(_COMMAND, *arguments) - before
    return {"seconds": time.perf_counter() - start, "before_mb": before, "peak_mb": peak}


def measure_imports(arguments: argparse.Namespace, size: Size, folder: Path) -> dict[str, Any]:
    """Import in a fresh process for each backend and round."""
    size.make(folder / "model")
    found: dict[str, Any] = {}
    for _ in range(arguments.rounds):
        for backend in arguments.backends:
            said = run_worker("import", arguments.size, folder / "model", KERAS_BACKEND=backend)
            found.setdefault(backend, []).append(json.loads(said.splitlines()[-1]))
    medians = {
        backend: {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
        for backend, runs in found.items()
    }
    print(
        "| backend | import, s | weights, MB | peak, MB | peak / weights | first translation, s |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for backend, row in medians.items():
        print(
            f"| {backend} | {row['seconds']:.1f} | {row['weights_mb']:.0f} "
            f"| {row['peak_mb']:.0f} | {row['peak_of_weights']:.2f} "
            f"| {row['first_translation_seconds']:.1f} |"
        )
    command = import_by_command(size, folder / "model")
    print(f"| the command | {command['seconds']:.1f} | | {command['peak_mb']:.0f} | | |")
    return {**medians, "command": command}


def never_ending(folder: Path, new: Path) -> Any:
    """Write and return a model whose outputs never end and hold pieces alone."""
    from keras_addnorm.interop import load_pretrained, save_pretrained
    from keras_addnorm.interop.folders import never_generated

    pretrained = load_pretrained(folder)
    config = pretrained.model.config
    never = [*never_generated(config, pretrained.tokenizers), config.end_id]
    bias = np.zeros(config.target_vocabulary_size, "float32")
    bias[never] = -1e4
    pretrained.model.decoder_embedding.logits_bias.assign(bias)
    save_pretrained(pretrained, new)
    return pretrained


def source_texts(pretrained: Any, batch_size: int) -> list[str]:
    """Texts of words that are one piece each."""
    tokenizer = pretrained.tokenizers.source
    words = {piece.text[1:] for piece in tokenizer.pieces if piece.text.startswith("\u2581")}
    words = sorted(word for word in words if word and len(tokenizer.encode(word)) == 1)
    rng = np.random.default_rng(3)
    return [" ".join(rng.choice(words, LENGTH - 1)) for _ in range(batch_size)]


def our_export(pretrained: Any, folder: Path) -> Any:
    """Our SavedModel with a signature for each search."""
    import tensorflow as tf

    from keras_addnorm.decoding import Beam, Greedy
    from keras_addnorm.serving import export_saved_model

    path = export_saved_model(
        pretrained.model,
        pretrained.tokenizers,
        folder,
        strategies={
            name.replace(" ", "_"): Greedy() if n == 1 else Beam(n) for name, n in SEARCHES.items()
        },
        max_length=LENGTH,
        batch_buckets=BATCH_SIZES,
        length_buckets=[LENGTH],
        splitting="none",
    )
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return tf.saved_model.load(str(path)), size


def transformers_translation(folder: Path) -> Callable[[list[str], int], list[str]]:
    """Return how transformers translates."""
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count() or 1)
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def run(texts: list[str], num_beams: int) -> list[str]:
        with torch.inference_mode():
            batch = tokenizer(texts, return_tensors="pt", padding=True)
            found = model.generate(
                **batch, num_beams=num_beams, max_new_tokens=LENGTH, do_sample=False
            )
            return tokenizer.batch_decode(found, skip_special_tokens=True)

    return run


def measure_searches(arguments: argparse.Namespace, size: Size, folder: Path) -> dict[str, Any]:
    """Time each search and batch size, all programs in turn."""
    import shutil

    import tensorflow as tf
    from ctranslate2_peer import Peer, Translation

    from keras_addnorm.interop import export_ctranslate2

    pretrained = never_ending(size.make(folder / "model"), folder / "endless")
    start = time.perf_counter()
    saved_model, export_size = our_export(pretrained, folder / "saved_models")
    figures: dict[str, Any] = {
        "export": {"seconds": time.perf_counter() - start, "mb": export_size / 1e6}
    }
    print(f"export: {figures['export']['seconds']:.0f} s, {figures['export']['mb']:.0f} MB")
    export_ctranslate2(pretrained.model, pretrained.tokenizers, folder / "ctranslate2")
    # Both sides of this folder have the same pieces.
    shutil.copy(folder / "endless" / "source.spm", folder / "ctranslate2" / "tokenizer.model")
    by_transformers = transformers_translation(folder / "endless")

    def ours(signature: Any, texts: list[str]) -> list[str]:
        found = signature(texts=tf.constant(texts))["translations"]
        return [text.decode() for text in found.numpy()]

    rows = []
    with Peer(folder / "ctranslate2", "float32", os.cpu_count() or 1) as peer:
        for batch_size in arguments.batch_sizes:
            texts = source_texts(pretrained, batch_size)
            for search, num_beams in SEARCHES.items():
                name = search.replace(" ", "_")
                signatures = saved_model.signatures
                translation = Translation(texts, num_beams, LENGTH)
                runs: dict[str, Callable[[], list[str]]] = {
                    OURS: functools.partial(ours, signatures[f"{name}_xla"], texts),
                    OURS_NO_XLA: functools.partial(ours, signatures[name], texts),
                    TRANSFORMERS: functools.partial(by_transformers, texts, num_beams),
                }
                found = {contender: run() for contender, run in runs.items()}
                found[CTRANSLATE2] = peer.translate(translation)["translations"]
                equal = {
                    contender: sum(map(str.__eq__, translations, found[OURS]))
                    for contender, translations in found.items()
                }
                timings = measure.in_turn(
                    {**runs, CTRANSLATE2: peer.contender(translation)},
                    rounds=arguments.rounds,
                    warm_up=1,
                )
                cell = f"{batch_size} × {search}"
                print(cell, "translations as ours:", equal)
                print(measure.table(timings, OURS), flush=True)
                figures[cell] = {**timings, "equal": equal}
                speeds = {
                    contender: 1000 * batch_size / timing.median_ms
                    for contender, timing in timings.items()
                }
                rows.append(
                    f"| {cell} | "
                    + " | ".join(f"{speed:.2f}" for speed in speeds.values())
                    + f" | {speeds[OURS] / speeds[TRANSFORMERS]:.2f} "
                    f"| {speeds[OURS] / speeds[CTRANSLATE2]:.2f} |"
                )
    print(
        f"| sentences a second | {OURS} | {OURS_NO_XLA} | {TRANSFORMERS} | {CTRANSLATE2} "
        "| XLA × transformers | XLA × CTranslate2 |"
    )
    print("|---" * 7 + "|", *rows, sep="\n")
    return figures


def train_when_asked(size: Size, folder: Path, lora: bool) -> None:
    """Train one step for each line of input, and say how long it took."""
    warm_backend()
    before = measure.memory_mb("VmRSS")
    from keras_addnorm.interop import load_pretrained
    from keras_addnorm.models import enable_lora
    from keras_addnorm.training import Adam, MaskedSparseCategoricalCrossentropy
    from keras_addnorm.training.checkpoint_file import TrainingState, save_checkpoint

    model = load_pretrained(folder, tokenizers=None).model
    if lora:
        enable_lora(model, RANK)
    loss = MaskedSparseCategoricalCrossentropy(pad_id=model.config.pad_id)
    model.compile(Adam(1e-4), loss, jit_compile=True)
    high = model.config.target_vocabulary_size
    ids = np.random.default_rng(0).integers(4, high, (3, size.batch_size, LENGTH)).astype("int32")
    ids[ids == model.config.pad_id] = 4
    batch = {"source": ids[0], "target": ids[1]}, ids[2]
    model.train_on_batch(*batch)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "last.weights.h5"
        for _ in sys.stdin:
            wall, cpu = time.perf_counter(), time.process_time()
            float(model.train_on_batch(*batch))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(json.dumps({"wall_s": wall, "cpu_s": cpu}), flush=True)
        peak = measure.memory_mb("VmHWM") - before
        save_checkpoint(model, path, TrainingState(0))
        found = {
            "peak_mb": peak,
            "trained": sum(int(np.prod(weight.shape)) for weight in model.trainable_weights),
            "checkpoint_mb": path.stat().st_size / 1e6,
        }
    print(json.dumps(found), flush=True)


def measure_fine_tuning(arguments: argparse.Namespace, size: Size, folder: Path) -> dict[str, Any]:
    """Time training steps of all weights and of LoRA, each in a process, in turn."""
    size.make(folder / "model")
    workers = {
        name: start_worker(kind, arguments.size, folder / "model", **allocator_settings())
        for name, kind in ((ALL_WEIGHTS, "all_weights"), (LORA, "lora"))
    }

    def step(worker: subprocess.Popen[str]) -> tuple[float, float]:
        assert worker.stdin and worker.stdout
        worker.stdin.write("\n")
        worker.stdin.flush()
        found = json.loads(worker.stdout.readline())
        return found["wall_s"], found["cpu_s"]

    timings = measure.in_turn(
        {n: measure.OwnClock(functools.partial(step, worker)) for n, worker in workers.items()},
        rounds=arguments.rounds,
    )
    figures: dict[str, Any] = {}
    for name, worker in workers.items():
        said, _ = worker.communicate()
        figures[name] = timings[name].to_dict() | json.loads(said)
    print(f"a batch of {size.batch_size} pairs of {LENGTH} tokens\n")
    print(
        "| | step, ms | memory, MB | weights trained | checkpoint, MB |\n|---|---:|---:|---:|---:|"
    )
    for name, row in figures.items():
        print(
            f"| {name} | {row['median_ms']:.0f} | {row['peak_mb']:.0f} | {row['trained']:,} "
            f"| {row['checkpoint_mb']:.0f} |"
        )
    return figures


WORKERS: dict[str, Callable[[Size, Path], Any]] = {
    "import": lambda size, folder: print(json.dumps(import_once(size, folder))),
    "all_weights": lambda size, folder: train_when_asked(size, folder, lora=False),
    "lora": lambda size, folder: train_when_asked(size, folder, lora=True),
}


def start_worker(kind: str, size: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start this script as one of its workers."""
    command = [sys.executable, __file__, "worker", kind, "--size", size, "--folder", str(folder)]
    pipe = subprocess.PIPE
    environment = {**os.environ, **environment}
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def run_worker(kind: str, size: str, folder: Path, **environment: str) -> str:
    """Return what a worker says until its end."""
    worker = start_worker(kind, size, folder, **environment)
    said, _ = worker.communicate()
    if worker.returncode:
        raise SystemExit(f"{kind} of {size} failed")
    return said


PARTS = {"import": measure_imports, "search": measure_searches, "fine-tuning": measure_fine_tuning}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "worker"])
    parser.add_argument("worker", nargs="?", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=SIZES, default="opus")
    parser.add_argument("--rounds", type=int, default=3, help="timed calls of each contender")
    parser.add_argument("--backends", nargs="+", default=["tensorflow", "jax", "torch"])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=BATCH_SIZES)
    parser.add_argument("--smoke", action="store_true", help="one round of a miniature")
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.size, arguments.rounds = "miniature", 1
    size = SIZES[arguments.size]
    if arguments.worker:
        WORKERS[arguments.worker](size, arguments.folder)
        return
    with tempfile.TemporaryDirectory() as scratch:
        figures = PARTS[arguments.part](arguments, size, Path(scratch))
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
