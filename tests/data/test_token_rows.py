"""Token ids in memory and in files: what is written is what is read, and damage is found."""

import itertools

import numpy as np
import pytest

from keras_addnorm.data import ByteTokenizer, TokenizerPair, make_training_batches, token_rows
from keras_addnorm.data import corpus as corpus_module
from keras_addnorm.data.corpus import TokenizedPairs
from keras_addnorm.data.token_rows import FileRows, MemoryRows, TokenRows, map_rows, type_of_ids

ROWS = [[5, 2, 7], [], [65_535], [3, 3], [11, 13, 17, 19, 23]]


def random_pairs(count, seed=1):
    generator = np.random.default_rng(seed)
    return [
        tuple("".join(generator.choice([*"abcdefg"], size)) for size in sizes)
        for sizes in generator.integers(0, 14, (count, 2)).tolist()
    ]


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_files_hold_the_rows_that_were_added(tmp_path, dtype, at_once, monkeypatch):
    monkeypatch.setattr(token_rows, "_ROWS_AT_ONCE", 2)
    writers = FileRows(tmp_path, "source", np.dtype(dtype)), MemoryRows(np.dtype(dtype))
    for start in range(0, len(ROWS), at_once):
        for writer in writers:
            writer.add(ROWS[start : start + at_once])
    for rows in (*(writer.finish() for writer in writers), map_rows(tmp_path, "source")):
        assert rows.ids.dtype == dtype and len(rows) == len(ROWS)
        np.testing.assert_array_equal(rows.ids, list(itertools.chain(*ROWS)))
        np.testing.assert_array_equal(rows.lengths, [3, 0, 1, 2, 5])
        assert rows.part(0, 5) == ROWS and rows.part(2, 4) == ROWS[2:4]
    # Anybody's NumPy reads them.
    np.testing.assert_array_equal(np.load(tmp_path / "source_offsets.npy"), [0, 3, 3, 4, 6, 11])


def test_no_sentence_at_all_is_rows_too(tmp_path):
    FileRows(tmp_path, "a", np.dtype(np.uint16)).finish()
    assert len(map_rows(tmp_path, "a")) == 0


def test_ids_take_two_bytes_where_they_fit():
    assert [type_of_ids(size) for size in (65_536, 65_537)] == [np.uint16, np.int32]
    with pytest.raises(OverflowError):
        MemoryRows(np.dtype(np.uint16)).add([[65_536]])


def test_a_digest_does_not_depend_on_the_type():
    class Digest(bytearray):
        update = bytearray.extend

    wide = TokenRows.from_rows(ROWS)
    narrow = TokenRows(wide.ids.astype(np.uint16), wide.offsets)
    digests = Digest(), Digest()
    wide.update(digests[0])
    narrow.update(digests[1])
    assert digests[0] == digests[1] == wide.offsets.tobytes() + wide.ids.tobytes()
    assert wide.ids.dtype == np.int32


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def longer(path):
    path.write_bytes(path.read_bytes() + b"12")


def other(path):
    path.write_bytes(b"no array")


def objects(path):
    np.save(path, np.array([{}]), allow_pickle=True)


def falling(path):
    np.save(path, np.array([0, 3, 2, 4, 6, 11]))


def huge(path):
    """A header that promises more than the file holds: nothing is made of that size."""
    content = path.read_bytes()
    count = b"(11,), }" if b"(11,)" in content else b"(6,), } "
    path.write_bytes(content.replace(count[:-2], b"(999999999999,), }"[:-2], 1)[: len(content)])


@pytest.mark.parametrize("damage", [cut, longer, other, objects, falling, huge])
@pytest.mark.parametrize("name", ["a.npy", "a_offsets.npy"])
def test_damaged_files_are_named(tmp_path, name, damage):
    writer = FileRows(tmp_path, "a", np.dtype(np.int32))
    writer.add(ROWS)
    writer.finish()
    damage(tmp_path / name)
    with pytest.raises(ValueError, match=r"The token ids '.*a.npy'.*(cannot be read|are damaged)"):
        map_rows(tmp_path, "a")


def test_sides_of_unequal_length_are_refused(tmp_path):
    for side, rows in (("source", ROWS), ("target", ROWS[1:])):
        writer = FileRows(tmp_path, side, np.dtype(np.int32))
        writer.add(rows)
        writer.finish()
    with pytest.raises(ValueError, match="5 sources and 4 targets"):
        TokenizedPairs.mapped(tmp_path)


def flat(batch):
    inputs, *rest = batch
    return [inputs["source"], inputs["target"], *rest]


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_each_process_reads_its_rows_of_mapped_ids_none_twice_none_lost(
    tmp_path, processes, monkeypatch
):
    """Every pair is in one row of one process, in each epoch, and the batches are those of text."""
    monkeypatch.setattr(corpus_module, "_PAIRS_AT_ONCE", 13)
    pairs = [(f"{n:03d} {a}", f"{b} {n:03d}") for n, (a, b) in enumerate(random_pairs(211))]
    tokenizers = TokenizerPair.joint(ByteTokenizer())
    TokenizedPairs.of(pairs, tokenizers, tmp_path)
    options = {
        "tokens_per_batch": 190, "shuffle_seed": 7, "rows_multiple_of": 4, "num_buckets": 3,
    }  # fmt: skip
    whole = make_training_batches(pairs, tokenizers, **options)
    shares = [
        make_training_batches(
            TokenizedPairs.mapped(tmp_path), tokenizers, **options, row_share=(n, processes)
        )
        for n in range(processes)
    ]
    expected = sorted(tokenizers.target.encode(target) for _, target in pairs)
    for epoch in range(2):
        found = []
        for number, batch in enumerate(whole.batches(epoch)):
            parts = [next(share.batches(epoch, number)) for share in shares]
            for array, *pieces in zip(flat(batch), *map(flat, parts), strict=True):
                np.testing.assert_array_equal(np.concatenate(pieces), array)
            labels = [row for part in parts for row in part[1].tolist() if any(row)]
            found += [row[: row.index(tokenizers.target.end_id)] for row in labels]
        assert sorted(found) == expected
    assert {share.plan for share in shares} == {whole.plan}
    # Each starts in the middle of an epoch with the rows that it would have come to.
    shares[-1].start_at(1, 3)
    after = next(one for n, one in enumerate(whole.batches(1)) if n == 3)
    own = [array[len(array) // processes * (processes - 1) :] for array in flat(after)]
    for array, mine in zip(flat(shares[-1][0]), own, strict=True):
        np.testing.assert_array_equal(array, mine)
