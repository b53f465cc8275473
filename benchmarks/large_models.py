"""What a large model costs: build, import, save, load, export, quantise, first answer.

The folders have random weights, of the sizes of base, big and NLLB-600M, in float32 and in
float16. Time is processor time; memory is the most that a step holds above what the process held
before it, as a multiple of the weights in float32 too. Steps that begin with nothing, and those
that change the model, have processes of their own.

    python benchmarks/large_models.py                        # big, on TensorFlow
    python benchmarks/large_models.py --sizes base big nllb --backends tensorflow jax
    python benchmarks/large_models.py --sizes nllb --keep models    # keeps the folders
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure
import pretrained

from keras_addnorm.runs.process_startup import allocator_settings

SIZES = {
    "base": pretrained.Size("marian", pretrained.fields(6, 512, 2048, 8, 32_000)),
    "big": pretrained.Size("marian", pretrained.fields(6, 1024, 4096, 16, 32_000)),
    "nllb": pretrained.SIZES["nllb"],
    "miniature": pretrained.SIZES["miniature"],
}
WEIGHTS = "model.safetensors"


def in_half_precision(folder: Path, new: Path) -> Path:
    """Copies a folder, with its weights in float16."""
    from keras_addnorm.interop.tensor_files import read_tensors

    shutil.copytree(folder, new, ignore=shutil.ignore_patterns(WEIGHTS, "manifest.json"))
    tensors = read_tensors(folder / WEIGHTS)
    header, place = {}, 0
    for name, tensor in tensors.items():
        end = place + 2 * math.prod(tensor.shape)
        header[name] = {"dtype": "F16", "shape": tensor.shape, "data_offsets": (place, end)}
        place = end
    text = json.dumps(header).encode()
    with (new / WEIGHTS).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.read().astype("<f2").data)
    return new


class Steps:
    """The steps of one size; each returns what is done, and is to be measured.

    Args:
        size: The size.
        folder: Where its folders and files are.
    """

    def __init__(self, size: pretrained.Size, folder: Path) -> None:
        self.size, self.folder = size, folder
        self.found: Any = None

    def build(self) -> Any:
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

        config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        return Seq2SeqTransformer(Seq2SeqConfig.from_dict(config))

    def import_float32(self) -> None:
        self._import("model")

    def import_float16(self) -> None:
        self._import("half")

    def import_float16_as_float16(self) -> None:
        self._import("half", dtype="float16")

    def _import(self, name: str, **options: Any) -> None:
        from keras_addnorm.interop import load_pretrained

        self.found = load_pretrained(self.folder / name, **options)

    def first_translation(self) -> None:
        self.found.translate(["A dog runs."], *self.size.languages, max_length=8)

    def save_weights(self) -> None:
        self.found.model.save_weights(self.folder / "model.weights.h5")

    def load_weights(self) -> None:
        self.found.model.load_weights(self.folder / "model.weights.h5")

    def save(self) -> None:
        self.found.model.save(self.folder / "model.keras")

    def load(self) -> Any:
        import keras

        return keras.models.load_model(self.folder / "model.keras")

    def quantize(self) -> None:
        self.found.model.quantize("int8")

    def export(self) -> None:
        from keras_addnorm.serving import export_saved_model

        languages = zip(("source_language", "target_language"), self.size.languages, strict=False)
        shutil.rmtree(self.folder / "export", ignore_errors=True)
        export_saved_model(
            self.found.model, self.found.tokenizers, self.folder / "export", **dict(languages)
        )

    def load_export(self) -> Any:
        from keras_addnorm.serving import load_translator

        translator = load_translator(self.folder / "export")
        translator(["A dog runs."])
        return translator


# What is done in one process, one after the other. The first of each begins with nothing.
PROCESSES = {
    "build": ("build",),
    "model": ("import_float32", "save_weights", "load_weights", "save", "first_translation"),
    "load": ("load",),
    "export": ("import_float32", "export"),
    "load_export": ("load_export",),
    "quantize": ("import_float32", "quantize"),
    "half": ("import_float16", "first_translation"),
    "float16": ("import_float16_as_float16", "first_translation"),
}
ON_TENSORFLOW = ("export", "load_export")


def run_steps(size: str, folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Does some steps in this process; their figures."""
    pretrained.warm_backend()
    steps, rows = Steps(SIZES[size], folder), []
    for name in names:
        cost, result = measure.cost_of(getattr(steps, name))
        del result
        rows.append({"step": name, **dataclasses.asdict(cost)})
    return rows


def prepare(size: str, folder: Path) -> None:
    """Makes the folders of a size, where they are not there."""
    if (folder / "half").exists():
        return
    from keras_addnorm.interop import load_pretrained

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    SIZES[size].make(folder / "model")
    config = load_pretrained(folder / "model", tokenizers=None).model.config
    (folder / "config.json").write_text(json.dumps(config.to_dict()), encoding="utf-8")
    in_half_precision(folder / "model", folder / "half")


def _in_a_process(backend: str, *arguments: str) -> str:
    command = [sys.executable, __file__, "--only", *arguments]
    environment = {**os.environ, **allocator_settings(), "KERAS_BACKEND": backend}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return done.stdout


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["big"])
    parser.add_argument("--processes", nargs="+", choices=PROCESSES, default=list(PROCESSES))
    parser.add_argument("--backends", nargs="+", default=["tensorflow"])
    parser.add_argument("--keep", type=Path, help="folder for the models, which stay there")
    parser.add_argument("--smoke", action="store_true", help="a miniature")
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--only", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.only:
        size, folder, step = options.only
        if step == "prepare":
            prepare(size, Path(folder))
        else:
            print(json.dumps(run_steps(size, Path(folder), PROCESSES[step])))
        return
    rows: list[dict[str, Any]] = []
    print("| size | backend | step | CPU s | peak MB | of the weights | stays MB |")
    print("|---|---|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as temporary:
        for size in ["miniature"] if options.smoke else options.sizes:
            folder = (options.keep or Path(temporary)) / size
            _in_a_process("tensorflow", size, str(folder), "prepare")
            weights = (folder / "model" / WEIGHTS).stat().st_size / 1e6
            for backend in options.backends:
                for name in options.processes:
                    if name in ON_TENSORFLOW and backend != "tensorflow":
                        continue
                    said = _in_a_process(backend, size, str(folder), name)
                    for row in json.loads(said.splitlines()[-1]):
                        rows.append({"size": size, "backend": backend, "process": name, **row})
                        print(
                            f"| {size} | {backend} | {row['step'].replace('_', ' ')} "
                            f"| {row['cpu_s']:.1f} | {row['peak_mb']:,.0f} "
                            f"| {row['peak_mb'] / weights:.2f} | {row['stays_mb']:,.0f} |",
                            flush=True,
                        )
            print(f"{size}: weights {weights:,.0f} MB in float32", flush=True)
    if options.json:
        measure.write_json(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
