"""Work in portions: every result once, in order, whatever was killed before."""

import json
import os

import pytest

from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import DamagedFileError
from keras_addnorm.runs.portions import Portions, Share

TEXTS = [f"{'ab' * (number * 5 % 7)}{number}" for number in range(17)]


class KilledError(Exception):
    """In the place of a signal."""


class Work:
    """Turns texts round; is killed after some batches."""

    def __init__(self, folder, killed_after=None):
        self.portions = Portions(folder, len(TEXTS), size=5)
        self.batches = []
        self.killed_after = killed_after

    def compute(self, batch):
        if len(self.batches) == self.killed_after:
            raise KilledError
        self.batches.append(list(batch))
        return [text[::-1] for text in batch]

    def run(self, share=(0, 1)):
        self.portions.fill(
            self.compute,
            lambda numbers: [TEXTS[number] for number in numbers],
            len,
            batch_size=2,
            share=Share(*share),
        )


def test_results_stand_in_order_and_similar_lengths_share_a_batch(tmp_path):
    work = Work(tmp_path)
    work.run()
    assert list(work.portions) == [text[::-1] for text in TEXTS]
    assert [len(batch) for batch in work.batches] == [2, 2, 1] * 3 + [2]
    in_portion = [text for batch in work.batches[:3] for text in batch]
    assert in_portion == sorted(TEXTS[:5], key=len)


@pytest.mark.parametrize("killed_after", [0, 1, 4, 9])
def test_a_killed_work_goes_on_at_its_batch(tmp_path, killed_after):
    first = Work(tmp_path, killed_after)
    with pytest.raises(KilledError):
        first.run()
    assert first.portions.count_done() == sum(map(len, first.batches))
    assert not first.portions.is_full
    second = Work(tmp_path)
    second.run()
    assert list(second.portions) == [text[::-1] for text in TEXTS]
    whole = Work(tmp_path / "whole")
    whole.run()
    # Nothing twice, and in the batches of a work that was not killed: sums are rounded as there.
    assert first.batches + second.batches == whole.batches


@pytest.mark.parametrize("cut", [1, 9])
def test_half_a_line_is_cut_off_and_its_batch_computed_again(tmp_path, cut):
    first = Work(tmp_path, killed_after=2)
    with pytest.raises(KilledError):
        first.run()
    (part,) = tmp_path.glob("*.part")
    part.write_bytes(part.read_bytes()[:-cut])
    second = Work(tmp_path)
    second.run()
    assert second.batches[0] == first.batches[1]
    assert list(second.portions) == [text[::-1] for text in TEXTS]


def test_a_portion_belongs_to_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_addnorm.runs.portions._SECONDS_OF_ENDING", 0.0)
    said = []

    def other_process(batch):
        # A lock belongs to the open file: a second one is as of another process.
        with pytest.raises(UserError, match=r"at work on '.*0000000.part'. Wait for it") as error:
            Work(tmp_path).run((0, 4))
        said.append(error)
        return batch

    work = Work(tmp_path)
    work.compute = other_process
    work.run((0, 4))
    assert len(said) == 3
    assert work.portions.read(0) == TEXTS[:5]


def test_parts_of_a_share_are_the_share():
    third = Share(1, 3)
    parts = [third.part(number, 4) for number in range(4)]
    numbers = [number for part in parts for number in range(60)[part.number :: part.count]]
    assert sorted(numbers) == list(range(60)[third.number :: third.count])


def test_shares_are_all_portions_once(tmp_path):
    works = [Work(tmp_path) for _ in range(3)]
    for number, work in enumerate(works):
        work.run((number, 3))
    together = [text for work in works for batch in work.batches for text in batch]
    assert sorted(together) == sorted(TEXTS)
    assert list(works[0].portions) == [text[::-1] for text in TEXTS]


@pytest.mark.parametrize("number, count", [(3, 3), (-1, 2), (0, 0), (0.0, 1)])
def test_a_share_is_one_of_several(number, count):
    with pytest.raises(ValueError, match="A share is one of several"):
        Share(number, count)


def _changed(content):
    return content.replace(b"0", b"1", 1)


def _shorter(content):
    lines = content.splitlines()
    return b"\n".join([lines[0], lines[-1]])


@pytest.mark.parametrize(
    "damage", [_changed, _shorter, lambda content: b"", lambda content: b"\xff"]
)
def test_a_damaged_portion_is_named(tmp_path, damage):
    work = Work(tmp_path)
    work.run()
    path = tmp_path / "0000001.jsonl"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedFileError, match=r"0000001.jsonl' cannot be read.*Remove the file"):
        list(work.portions)
    path.unlink()
    work.run()
    assert list(work.portions) == [text[::-1] for text in TEXTS]


def test_what_is_no_result_in_a_part_is_computed_again(tmp_path):
    # Of the first batch, the two shortest texts.
    lines = [[0, "known"], [3, "as well"], [7, "outside"], [1, "behind it"]]
    (tmp_path / "0000000.part").write_bytes(
        b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    )
    work = Work(tmp_path)
    work.run()
    expected = [text[::-1] for text in TEXTS]
    assert list(work.portions) == ["known", *expected[1:3], "as well", *expected[4:]]


@pytest.mark.parametrize("name", ["0000000.jsonl", "0000000.part"])
def test_a_pipe_in_the_place_of_results_is_refused_at_once(tmp_path, name):
    os.mkfifo(tmp_path / name)
    work = Work(tmp_path)
    with pytest.raises(ValueError, match=f"{name}.*is a pipe"):
        work.portions.read(0) if name.endswith("l") else work.run()
