"""Files of word alignments: what is written is read, and what is no link is named."""

import tracemalloc

import numpy as np
import pytest

from keras_addnorm.alignment import parse_links, read_pharaoh, write_pharaoh
from keras_addnorm.basics.errors import ArgumentError


def test_what_is_written_is_read(tmp_path):
    links = [np.array(rows, "int32").reshape(-1, 2) for rows in ([(0, 1), (2, 0)], [], [(5, 3)])]
    write_pharaoh(tmp_path / "links", links)
    assert (tmp_path / "links").read_text() == "0-1 2-0\n\n5-3\n"
    found = read_pharaoh(tmp_path / "links")
    assert [row.tolist() for row in found] == [row.tolist() for row in links]
    assert {row.dtype for row in found} == {np.dtype("int32")}


def test_links_are_in_order_and_each_once():
    assert parse_links("3-1\t0-2 3-1  0-0\r\n").tolist() == [[0, 0], [0, 2], [3, 1]]


@pytest.mark.parametrize(
    "word", ["1", "1-", "-1-2", "1-2-3", "1?2", "a-b", "1-2.0", "9999999999-0", "１-2", "\x00", "é"]
)
def test_what_is_no_link_is_named_with_its_line(tmp_path, word):
    path = tmp_path / "links"
    path.write_bytes(f"0-0\n1-1 {word}\n".encode())
    with pytest.raises(ArgumentError) as caught:
        read_pharaoh(path)
    assert f"Line 2 of '{path}' is not in Pharaoh's format." in str(caught.value)
    assert "0-0 1-2" in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "links").write_bytes(b"\xff\xfe0\x00-\x000\x00")
    with pytest.raises(ArgumentError, match="Line 1"):
        read_pharaoh(tmp_path / "links")


def test_a_file_of_empty_lines_is_no_bomb(tmp_path):
    (tmp_path / "links").write_bytes(b"\n" * 10**5)
    tracemalloc.start()
    found = read_pharaoh(tmp_path / "links")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 10**5 and found[-1].shape == (0, 2)
    assert size < 2 * 10**6  # a pointer for each line


def test_what_could_not_be_read_is_not_written(tmp_path):
    with pytest.raises(ArgumentError, match="positions from 0"):
        write_pharaoh(tmp_path / "links", [[(0, 0)], [(-1, 0)]])
    assert not list(tmp_path.iterdir())
