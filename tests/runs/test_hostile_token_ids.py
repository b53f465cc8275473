"""Token ids on the disk that somebody has changed: mapped, or refused in a sentence."""

import dataclasses
import json
import os
import random
import shutil
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from keras_addnorm.basics.printing import printable_lines
from keras_addnorm.data import LineReport
from keras_addnorm.data.token_rows import FileRows
from keras_addnorm.runs.training_ids import _read

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import hostile_bytes

sys.path.pop(0)

ROWS = [[4, 5, 6], [], [7, 4], [5] * 11]
LONGEST_SENTENCE = 2100
MEGABYTES = 200


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    for side, dtype in {"source": np.uint16, "target": np.int32}.items():
        writer = FileRows(folder, side, np.dtype(dtype))
        writer.add(ROWS)
        writer.finish()
    contents = {
        "made_of": {"version": 1},
        "faults": {"empty": 1},
        "lines": [dataclasses.asdict(LineReport("train", kept=3, first_bad_lines=(4,)))],
    }
    (folder / "contents.json").write_text(json.dumps(contents))
    return folder


def answer(folder):
    """Reads all that is there as a training does; what it says, if it is refused."""
    tracemalloc.start()
    try:
        made_of, found = _read(folder)
        lengths = [side.lengths.sum() for side in (found.pairs.source, found.pairs.target)]
        assert all(0 <= one < 10**6 for one in lengths)
        for side in (found.pairs.source, found.pairs.target):
            assert sum(map(len, side.part(0, len(side)))) == side.lengths.sum()
        assert isinstance(made_of, dict)
        assert sum(found.faults.values()) >= 0
        for line in found.lines:
            assert str(line)
        return None
    except (ValueError, OSError) as error:
        said = str(error)
        assert len(said) <= LONGEST_SENTENCE and printable_lines(said) == said, said[:300]
        return said
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most <= MEGABYTES * 10**6


def test_what_was_written_is_read(original):
    assert answer(original) is None


@pytest.mark.parametrize(
    "seeds", [range(100), pytest.param(range(100, 10_000), marks=pytest.mark.release)]
)
def test_changed_token_ids_are_mapped_or_refused(original, tmp_path, seeds):
    names = sorted(path.name for path in original.iterdir())
    assert len(names) == 5
    refused = 0
    for seed in seeds:
        folder = tmp_path / "token_ids"
        shutil.copytree(original, folder)
        chance = random.Random(seed)
        path = folder / chance.choice(names)
        path.write_bytes(hostile_bytes.mutated(path.read_bytes(), chance))
        try:
            refused += answer(folder) is not None
        except Exception as error:
            pytest.fail(f"{seed}: {path.name}: {type(error).__name__}: {error}")
        shutil.rmtree(folder)
    assert refused > len(seeds) / 3


@pytest.mark.parametrize("name", ["contents.json", "source.npy", "target_offsets.npy"])
def test_a_pipe_in_their_place_is_refused_at_once(original, tmp_path, name):
    folder = shutil.copytree(original, tmp_path / "token_ids")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert "is a pipe, which is read once" in answer(folder)
