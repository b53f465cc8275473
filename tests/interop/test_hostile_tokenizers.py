"""Files of tokenizers with very many tokens of one kind, which nothing is repeated for."""

import json

import pytest
from counted_comparisons import counting

from keras_addnorm.basics.suggestions import did_you_mean, near_names
from keras_addnorm.data import AddedToken, PieceIds
from keras_addnorm.data.added_tokens import require_added
from keras_addnorm.interop.families import huggingface, tokenizer_json
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.tokenizer_json import _Reader, _scores_of_merges
from keras_addnorm.interop.families.tokenizer_settings import WHOLE, TokenizerSettings


def test_the_files_of_a_token_are_named_once(tmp_path):
    """A token 20,000 times, and then with other ids, made eight gigabytes of messages."""
    tokens = [{"id": 7, "content": "a"}] * 2000 + [{"id": 8, "content": "a"}]
    (tmp_path / WHOLE).write_text(json.dumps({"added_tokens": tokens}))
    with pytest.raises(ValueError, match="'a' has the id 8, and 7 in") as error:
        TokenizerSettings(tmp_path, "T5Tokenizer")
    assert str(error.value).count(WHOLE) == 2


def test_added_tokens_that_stand_twice_are_named():
    Text = counting(str)
    tokens = [AddedToken(Text(f"t{number}")) for number in (*range(500), 3)]
    with pytest.raises(ValueError, match=r"Received: \['t3'\]"):
        require_added(tokens, [token.text for token in tokens], ())
    assert Text.compared < 20 * len(tokens)


def test_steps_are_read_in_their_order():
    inner = [{"type": name} for name in "bcd"]
    steps = [{"type": "a"}, {"type": "Sequence", "all": inner}, 5, {}, {"type": "e"}]
    reader = _Reader({"normalizer": {"type": "Sequence", "all": steps}})
    assert [step["type"] for step in reader._steps("normalizer", "all")] == list("abcde")
    assert reader.problems == ["all = 5; expected objects"]


def test_a_long_piece_is_cut_where_others_end():
    class Name(str):
        """One that counts how often it is cut."""

        cut = 0
        __hash__ = str.__hash__

        def __getitem__(self, key):
            Name.cut += 1
            return str.__getitem__(self, key)

    long = Name("ab" * 5000)
    ids = {"a": 0, "b": 1, Name("ab"): 2, long: 3}
    assert _scores_of_merges(ids, [("a", "b")], frozenset()) == (-1.0, -1.0, 0.0, -1.0)
    assert Name.cut < 20
    ids = {"a": 0, "b": 1, "ab": 2, "aba": 3}
    assert _scores_of_merges(ids, [("a", "b")], frozenset()) is None


def test_few_names_are_compared_letter_by_letter():
    known = ["scheme", "norm"]
    assert did_you_mean((f"schem{number}" for number in range(1000)), known).count("scheme") == 3
    assert near_names("schemes", [*(f"x{number}" for number in range(10_000)), "scheme"]) == []
    assert near_names("schemes", ["x" * 10_000] * 3000 + ["scheme"]) == ["scheme"]


# Whole numbers that have one hash all together.
ALIKE = [number * (2**61 - 1) for number in range(1, 400)]


Number = counting(int)


@pytest.mark.parametrize("sign", [1, -1])
def test_ids_that_have_one_hash_are_not_compared_with_each_other(sign):
    Number.compared = 0
    ids = {f"x{number}": Number(sign * number) for number in ALIKE}
    with pytest.raises(ValueError, match=r"few gaps|an id of its own, from 0.*Received: the id -"):
        PieceIds.of_mapping(ids)
    assert Number.compared < 20 * len(ids)


def test_ids_of_added_tokens_are_bounded_before_they_are_compared(tmp_path):
    tokens = [{"id": number, "content": f"x{number}"} for number in ALIKE]
    (tmp_path / WHOLE).write_text(json.dumps({"added_tokens": tokens}))
    with pytest.raises(ValueError, match=r"a whole number from 0 to 9007199254740992"):
        TokenizerSettings(tmp_path, "T5Tokenizer")


@pytest.mark.parametrize("name", ["bad_words_ids", "suppress_tokens"])
def test_forbidden_tokens_are_bounded_before_they_are_compared(name):
    given = [[number] for number in ALIKE] if name == "bad_words_ids" else ALIKE
    with pytest.raises(ValueError, match=f"{name} = .*expected token ids"):
        GenerationSettings.of({name: given}, 9)


def test_many_special_ids_are_not_looked_for_in_each_other(monkeypatch):
    monkeypatch.setattr(huggingface, "_ids", lambda name, value: value)
    said, settings = ({"eos_token_id": [*map(Number, numbers)]} for numbers in (range(500),) * 2)
    Number.compared = 0
    with pytest.raises(ValueError, match="with one token here") as error:
        huggingface._chosen("eos_token_id", said, settings)
    assert Number.compared < 5 * 500
    assert len(str(error.value)) < 600
    monkeypatch.undo()
    with pytest.raises(ValueError, match="whole number of at most"):
        huggingface._chosen("eos_token_id", {"eos_token_id": ALIKE}, {})


def test_long_pieces_of_all_lengths_are_refused_before_they_are_cut(monkeypatch):
    """Half a megabyte of them took a second, and as many seconds as the square of more."""
    monkeypatch.setattr(tokenizer_json, "_scores_of_merges", pytest.fail)
    ids = {"a" * number: number for number in range(1, 1000)}
    model = {"type": "BPE", "vocab": ids, "merges": [], "fuse_unk": True}
    reader = _Reader({})
    reader._bpe(model, False, frozenset())
    assert "very many long pieces" in reader.problems[0]
