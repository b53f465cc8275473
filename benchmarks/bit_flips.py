"""Flips single bits of the files of a run, an import and exports: what do their readers say?

A bit is flipped, the folder is read, and the bit is put back. What the reader said is one of

    named       it refuses, and its message names the file
    not named   it refuses with a message that does not
    raw error   an error that is no answer (one of C++, say), the end of the process, or no end
    silent      it reads something else than was written, without a word
    harmless    it reads what was written

    python benchmarks/bit_flips.py                       # 40 bits of each file
    python benchmarks/bit_flips.py --bits 300 --of run --only tokenizer.model
    python benchmarks/bit_flips.py --no-verify           # without the digests
    PYTHONPATH=../older python benchmarks/bit_flips.py   # another checkout

The exit status is 1 if something was silent, or neither named nor harmless.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import hashlib
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

KINDS = ("run", "checkpoint", "import", "export", "pretrained")
OUTCOMES = ("named", "not named", "raw error", "silent", "harmless")
WORDS = {"red": "rot", "green": "grün", "blue": "blau", "big": "groß", "small": "klein"}
TEXTS = ["red green blue", "small big red", ""]
# TensorFlow keeps much of the memory of a loaded export: a process loads so many.
LOADS_OF_A_PROCESS = 12
PATIENCE = 180  # seconds for one reading


@dataclasses.dataclass(frozen=True)
class Subject:
    """A file that is read as a part of a folder.

    Attributes:
        kind: What the folder is: "run", "import", "export", "pretrained" for what
            `save_pretrained` writes, or "checkpoint" for a single file.
        folder: The folder.
        file: The file's path in it.
    """

    kind: str
    folder: str
    file: str

    @property
    def path(self) -> Path:
        return Path(self.folder, self.file)


def make(folder: Path, kinds: Sequence[str]) -> list[Subject]:
    """Trains a small run, exports it and imports a model; returns the files that are read."""
    from keras_addnorm.interop import load_pretrained, make_random_folder, save_pretrained
    from keras_addnorm.runs import RunConfig
    from keras_addnorm.runs.evaluate import evaluate
    from keras_addnorm.runs.export import export
    from keras_addnorm.runs.pretrained_run import import_pretrained
    from keras_addnorm.runs.train import train

    subjects, places = [], {}
    if {*kinds} - {"import", "pretrained"}:
        config = RunConfig.from_dict(run_settings(write_corpus(folder / "corpus")))
        run = train(config, folder / "run", say=lambda line: None, verbose=0)
        evaluate(run, "test")  # writes scores and the lexicon of the shortlist
        places["run"] = folder / "run"
        checkpoint = max((folder / "run" / "checkpoints").iterdir())
        if "checkpoint" in kinds:
            subjects.append(Subject("checkpoint", str(checkpoint.parent), checkpoint.name))
    if {*kinds} & {"import", "pretrained"}:
        marian = make_random_folder("marian", folder / "marian")
    if "import" in kinds:
        places["import"] = folder / "import"
        import_pretrained(marian, places["import"])
    if "pretrained" in kinds:
        places["pretrained"] = save_pretrained(load_pretrained(marian), folder / "pretrained")
    if "export" in kinds:
        places["export"] = export(run, folder / "exports")
    for kind in places.keys() & {*kinds}:
        place = places[kind]
        subjects += [Subject(kind, str(place), name) for name in sorted(files_of(place))]
    return sorted(subjects, key=lambda subject: kinds.index(subject.kind))


def files_of(place: Path) -> Iterator[str]:
    """The files that a reader of ours needs: no pictures, logs for people, settings of others."""
    left_out = {"curves.png", "translations.txt", "README.md", "models.config", "batching.config"}
    for path in place.rglob("*"):
        folders = {"checkpoints", "tensorboard"} & {*path.relative_to(place).parts}
        if path.is_file() and path.name not in left_out and not folders:
            yield path.relative_to(place).as_posix()


def write_corpus(folder: Path) -> str:
    folder.mkdir()
    pairs = [
        (f"{a} {b} {c}", f"{WORDS[c]} {WORDS[b]} {WORDS[a]}")
        for a in WORDS
        for b in WORDS
        for c in WORDS
    ]
    for split, some in {"train": pairs[::2], "val": pairs[1::4], "test": pairs[3::4]}.items():
        for index, language in enumerate(("en", "de")):
            text = "".join(f"{pair[index]}\n" for pair in some)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return str(folder)


def run_settings(corpus: str) -> dict[str, Any]:
    size = {"num_encoder_layers": 1, "num_decoder_layers": 1, "hidden_dim": 8, "num_heads": 2}
    return {
        "data": corpus,
        "tokenizer": {"vocabulary_size": 43},
        "model": {**size, "intermediate_dim": 12, "max_length": 13},
        "training": {
            "epochs": 2,
            "tokens_per_batch": 13 * 16,
            "bucket_lengths": [13],
            "average_last": 2,
            "jit_compile": False,
        },
        "evaluation": {"num_beams": 2, "shortlist": 20},
    }


def read(subject: Subject, verify: bool) -> str:
    """Reads what a file is a part of, as the commands do; returns a digest of what was read."""
    options = {} if verify else {"verify": False}  # Earlier checkouts know no such argument.
    readers = {
        "checkpoint": _read_checkpoint,
        "export": _read_export,
        "pretrained": _read_pretrained,
    }
    parts = readers.get(subject.kind, _read_run)(subject, options)
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def _read_run(subject: Subject, options: dict[str, Any]) -> Iterator[object]:
    from keras_addnorm.runs import RunDirectory
    from keras_addnorm.runs.trained_run import load_run

    run = load_run(RunDirectory(subject.folder, **options))
    yield from (run.config, run.model.config, run.tokenizers.text_format)
    for side in (run.tokenizers.source, run.tokenizers.target):
        yield side.to_bytes()
    for weight in run.model.get_weights():
        yield weight.tobytes()
    if run.shortlist is not None:
        for name, array in sorted(vars(run.shortlist.lexicon).items()):
            yield name, array.tobytes()
    yield run.directory.read_log()
    yield run.directory.read_scores()


def _read_checkpoint(subject: Subject, options: dict[str, Any]) -> Iterator[object]:
    import h5py

    from keras_addnorm.training.checkpoint_file import read_checkpoint, read_unverified

    yield (read_unverified if options else read_checkpoint)(subject.path)
    found: list[object] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found.append((name, item[()].tobytes(), dict(item.attrs)))

    with h5py.File(subject.path) as file:
        file.visititems(visit)
    yield from found


def _read_export(subject: Subject, options: dict[str, Any]) -> Iterator[object]:
    from keras_addnorm.serving import load_translator

    translator = load_translator(subject.folder, **options)
    yield translator.card
    for text, score in translator(TEXTS):
        yield text, score.hex()


def _read_pretrained(subject: Subject, options: dict[str, Any]) -> Iterator[object]:
    from keras_addnorm.interop import load_pretrained

    found = load_pretrained(subject.folder, **options)
    yield from (found.model.config, found.generation, found.tokenizers.text_format)
    for side in (found.tokenizers.source, found.tokenizers.target):
        yield side.to_bytes()
    for weight in found.model.get_weights():
        yield weight.tobytes()


def judge(subject: Subject, expected: str, verify: bool) -> tuple[str, str]:
    """Reads a folder in which a bit is flipped: one of `OUTCOMES`, and what was said."""
    from keras_addnorm.basics.errors import UserError

    try:
        found = read(subject, verify)
    except (UserError, ValueError, FileNotFoundError) as error:
        said = f"{type(error).__name__}: {error}"
        # Whoever resumes says which checkpoint it is.
        is_named = subject.file.startswith("checkpoints/") or Path(subject.file).name in str(error)
        return ("named" if is_named else "not named"), said
    except Exception as error:
        return "raw error", f"{type(error).__name__}: {error}"
    return ("harmless" if found == expected else "silent"), ""


def work() -> None:
    """Answers jobs on the standard input, a line each: the life of a process of its own."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What libraries print is no answer.

    def answer(value: object) -> None:
        print(json.dumps(value), file=out, flush=True)

    for line in sys.stdin:
        job = json.loads(line)
        if job["do"] == "make":
            made = make(Path(job["folder"]), job["kinds"])
            answer([dataclasses.astuple(subject) for subject in made])
            continue
        subject = Subject(*job["subject"])
        if job["do"] == "read":
            answer(read(subject, job["verify"]))
            continue
        whole = subject.path.read_bytes()
        content = bytearray(whole)
        content[job["byte"]] ^= 1 << job["bit"]
        subject.path.write_bytes(content)
        try:
            answer(judge(subject, job["expected"], job["verify"]))
        finally:
            subject.path.write_bytes(whole)


class Worker:
    """A process that reads folders, and is begun anew when it has died or is large."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self.loads = 0

    def ask(self, job: dict[str, Any], patience: float = PATIENCE) -> Any:
        """The answer to a job; None if the process dies of it or does not answer."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=patience)
        except queue.Empty:
            line = ""
        if not line:
            self.end()
            return None
        return json.loads(line)

    def end(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process, self.loads = None, 0

    def _start(self) -> None:
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        lines: queue.Queue[str] = queue.Queue()

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")  # The process has ended.

        threading.Thread(target=listen, daemon=True).start()
        self._process, self._lines = process, lines


def flip(worker: Worker, subject: Subject, bits: int, seed: int, verify: bool) -> dict[str, Any]:
    """Flips some bits of a file, one after the other; returns counts, and what was not named."""
    whole = subject.path.read_bytes()
    chance = random.Random(f"{seed} {subject.kind} {subject.file}")
    expected = worker.ask({"do": "read", "subject": dataclasses.astuple(subject), "verify": verify})
    if expected is None:
        raise RuntimeError(f"{subject} cannot be read as it was written.")
    counts: collections.Counter[str] = collections.Counter()
    said = []
    for _ in range(bits):
        place = {"byte": chance.randrange(len(whole)), "bit": chance.randrange(8)}
        job = {"do": "flip", "subject": dataclasses.astuple(subject), "expected": expected, **place}
        outcome, text = worker.ask({**job, "verify": verify}) or ("raw error", "the process died")
        subject.path.write_bytes(whole)  # A process that died could not do it.
        counts[outcome] += 1
        if outcome not in ("named", "harmless"):
            said.append(f"{subject.kind} {subject.file} {place}: {outcome} {text[:200]}")
        if subject.kind == "export" and outcome != "named":
            worker.loads += 1
            if worker.loads >= LOADS_OF_A_PROCESS:
                worker.end()
    return {"counts": counts, "said": said, "bytes": len(whole)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, default=40, help="of each file (default: %(default)s)")
    parser.add_argument("--of", nargs="+", default=KINDS, choices=KINDS, metavar="KIND")
    parser.add_argument("--only", default="", metavar="TEXT", help="files with this in their path")
    parser.add_argument("--no-verify", dest="verify", action="store_false")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5, help="bad answers to show of a file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return 0
    worker = Worker()
    total: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        made = worker.ask({"do": "make", "folder": folder, "kinds": options.of}, patience=1800)
        if made is None:
            raise RuntimeError("No run could be made.")
        worker.end()
        print(f"| of | file | bytes | {' | '.join(OUTCOMES)} |")
        print(f"|---|---|---:|{len(OUTCOMES) * '---:|'}")
        bad = []
        for subject in (Subject(*one) for one in made):
            if options.only not in f"{subject.kind}/{subject.file}":
                continue
            found = flip(worker, subject, options.bits, options.seed, options.verify)
            total += found["counts"]
            bad += found["said"][: options.show]
            row = " | ".join(str(found["counts"][outcome]) for outcome in OUTCOMES)
            print(f"| {subject.kind} | `{subject.file}` | {found['bytes']:,} | {row} |", flush=True)
        print(f"| all | | | {' | '.join(str(total[outcome]) for outcome in OUTCOMES)} |")
        worker.end()
    for line in bad:
        print(line, file=sys.stderr)
    return int(any(total[outcome] for outcome in OUTCOMES if outcome not in ("named", "harmless")))


if __name__ == "__main__":
    sys.exit(main())
