"""Other ways to keep a tokenised corpus, measured on the corpus and vocabulary of a run.

Hugging Face `datasets` prepares the same text with the same SentencePiece model: the files are
loaded, `map` tokenises in batches, and the result lies in its cache. It checks no pair and trains
no tokenizer. ArrayRecord, which Grain reads, holds the run's own ids, a pair a record. Of each,
rows are then read in a random order, a batch at a time.

`large_corpora.py` runs these where `pip install datasets array_record` has been done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure
import numpy as np

ROWS, AT_ONCE = 50_000, 128


def _random_order(pairs: int) -> Iterator[np.ndarray]:
    order = np.random.default_rng(3).permutation(pairs)[:ROWS]
    yield from (order[start : start + AT_ONCE] for start in range(0, len(order), AT_ONCE))


def _seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    started = measure.cpu_seconds()
    result = work()
    return round(measure.cpu_seconds() - started, 2), result


def datasets(corpus: Path, run: Path) -> dict[str, float]:
    """The preparation by Hugging Face `datasets`; again, it finds its cache."""
    import datasets
    import sentencepiece

    datasets.disable_progress_bars()
    imports = measure.peak_mebibytes()
    places = [run / "tokenizer" / f"{name}.model" for name in ("tokenizer", "source", "target")]
    places = [place for place in places if place.is_file()]
    models = {
        side: sentencepiece.SentencePieceProcessor(model_file=str(place))
        for side, place in zip(("en", "de"), (places[0], places[-1]), strict=True)
    }

    def tokenize(rows: dict[str, list[str]]) -> dict[str, Any]:
        return {side: model.encode(rows[side], num_threads=1) for side, model in models.items()}

    def prepare() -> Any:
        sides = [
            datasets.load_dataset(
                "text",
                data_files={"train": str(corpus / f"train.{side}")},
                cache_dir=str(run / "datasets"),
                split="train",
            ).rename_column("text", side)
            for side in models
        ]
        both = datasets.concatenate_datasets(sides, axis=1)
        # The models cannot be hashed for the name of its cache.
        return both.map(tokenize, batched=True, new_fingerprint=f"ids-of-{run.name}")

    cpu, prepared = _seconds(prepare)
    rows_cpu, _ = _seconds(
        lambda: [prepared[some.tolist()] for some in _random_order(len(prepared))]
    )
    files = sum(path.stat().st_size for path in (run / "datasets").rglob("*.arrow"))
    return {
        "cpu": cpu,
        "rows_cpu": rows_cpu,
        "imports_mib": imports,
        "peak_mib": measure.peak_mebibytes(),
        "mib": round(files / 2**20, 1),
    }


def array_record(corpus: Path, run: Path) -> dict[str, float]:
    """The run's ids as records: a side's count, its ids, and those of the other side."""
    from array_record.python import array_record_module

    from keras_addnorm.data.corpus import TokenizedPairs

    del corpus
    pairs = TokenizedPairs.mapped(run / "token_ids")
    path = run / "ids.array_record"

    def write() -> None:
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for part in pairs.parts():
            sides = (rows.part(part.start, part.stop) for rows in (pairs.source, pairs.target))
            for source, target in zip(*sides, strict=True):
                writer.write(np.array([len(source), *source, *target], np.uint16).tobytes())
        writer.close()

    def read() -> None:
        reader = array_record_module.ArrayRecordReader(str(path), "readahead_buffer_size:0")
        for some in _random_order(len(pairs.source)):
            for record in reader.read(some.tolist()):
                np.frombuffer(record, np.uint16)

    def read_mapped() -> None:
        for some in _random_order(len(pairs.source)):
            for rows in (pairs.source, pairs.target):
                longest = int(rows.lengths_of(some).max())
                rows.padded(some, (AT_ONCE, longest), 0, (), ())

    cpu, _ = _seconds(write)
    return {
        "cpu": cpu,
        "rows_cpu": _seconds(read)[0],
        "rows_of_maps_cpu": _seconds(read_mapped)[0],
        "mib": round(path.stat().st_size / 2**20, 1),
    }


PEERS: dict[str, Callable[[Path, Path], dict[str, float]]] = {
    "datasets": datasets,
    "array_record": array_record,
}
# Each is started so often, under these names.
STARTS = {"datasets": ("", "_again"), "array_record": ("",)}
