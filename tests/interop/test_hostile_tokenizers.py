"""Files of tokenizers with very many tokens of one kind, which nothing is repeated for."""

import json

import pytest

from keras_addnorm.basics.suggestions import did_you_mean, near_names
from keras_addnorm.data import AddedToken
from keras_addnorm.data.added_tokens import require_added
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
    class Text(str):
        """One that counts how often it is compared."""

        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Text.compared += 1
            return str.__eq__(self, other)

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
