"""Texts that others wrote: whatever is wrong with them is one kind of error."""

import pytest

from keras_addnorm.basics.text import parse_json, read_text


@pytest.mark.parametrize(
    "content",
    ["", "[", b"\xff\xfe\xfd", "[" * 100_000, b'{"a":' * 100_000, "1" * 5000],
    ids=["empty", "cut off", "no text", "lists", "objects", "digits"],
)
def test_what_is_no_json(content):
    with pytest.raises(ValueError):
        parse_json(content)


@pytest.mark.parametrize("begin, end", [("[", "]"), ('{"a":', "}")])
def test_json_is_nested_no_deeper_than_a_message_can_show(begin, end):
    # What is read in one call can be too deep for the next one.
    assert repr(parse_json(f'[1, "[", {begin * 90}1{end * 90}]'))
    for deep in (101, 400, 900, 990):
        with pytest.raises(ValueError, match="it is nested too deeply"):
            parse_json(f"{begin * deep}1{end * deep}")


def test_json_is_what_it_says():
    assert parse_json(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert parse_json('["\u00e9"]') == ["é"]


def test_a_text_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("schön\r\n".encode())
    assert read_text(path) == "schön\n"
    path.write_bytes("schön".encode("latin-1"))
    with pytest.raises(ValueError, match=r"words.txt' is no text in UTF-8: .* at byte 3\. Copy or"):
        read_text(path)
