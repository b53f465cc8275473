"""A tokenizer's vocabulary, applied inside a TensorFlow graph.

Core TensorFlow operations only, so that a saved model which contains it loads wherever TensorFlow
does. Texts are split at spaces and only the *distinct* words of the batch are segmented, all at
once:

1. **Match.** A trie of the reversed pieces is walked backwards from every character at the same
   time: `matches[e, W - n]` is the piece of `n` characters that ends at character `e`, or -1.
2. **Cut.** Where no match spans the gap between two characters, the two sides do not depend on
   each other; a *segment* is what lies between two such gaps.
3. **Solve.** Unigram: the Viterbi recurrence, one step for each position in the longest segment.
   BPE: in every segment merge the best-ranked pair, until none is left.

Memory grows with the number of characters (times the longest piece), never with words times the
longest word. Time grows with the longest *segment*: a single word of 10,000 equal letters takes as
many steps.

Shape letters: C characters of the distinct words, G segments, W characters of the longest match.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_addnorm.data import Piece, Tokenizer
from keras_addnorm.data.pieces import SPACE_MARK

_INVALID = 0xFFFD
_CODE_POINT_BITS = 21
# A unigram model reads a character that it lacks at this distance below its least likely piece.
_UNKNOWN_PENALTY = 10.0
_NEVER = np.iinfo(np.int32).max
# All that Python takes for white space, and the mark that stands for it. `tf.strings.split` knows
# the ASCII ones only.
_SPACES = "[{}]".format(
    "".join(
        rf"\x{{{code:x}}}"
        for code in range(sys.maxunicode + 1)
        if chr(code).isspace() or chr(code) == SPACE_MARK
    )
)

# matches (C, W), segment of each character (C,) -> (last character, length) of every token, in
# order.
_Solver = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class GraphTokenizer(tf.Module):
    """Does what a `Tokenizer` does, in a graph.

    `tokenize` and `detokenize` give what `Tokenizer.encode` and `Tokenizer.decode` give, for text
    in Unicode form NFKC. Other text is taken as it is, since no core operation normalises: a
    ligature or a full-width letter may then be unknown. Invalid UTF-8 reads as U+FFFD.

    Args:
        tokenizer: The vocabulary: unigram or BPE.
        name: Name of the module.

    Example:
        ```python
        import tensorflow as tf

        from keras_addnorm.data import Tokenizer
        from keras_addnorm.serving import GraphTokenizer

        tokenizer = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
        graph_tokenizer = GraphTokenizer(tokenizer)
        ids = graph_tokenizer.tokenize(tf.constant(["a small house", ""]))
        assert ids.to_list() == [tokenizer.encode("a small house"), []]
        assert graph_tokenizer.detokenize(ids.to_tensor()).numpy()[0] == b"a small house"
        ```

    Raises:
        ValueError: If the vocabulary has pieces of types that `Tokenizer.train` does not make.

    Reference:
        Kudo 2018, "Subword Regularization", arXiv:1804.10959 (unigram); Sennrich et al. 2016,
        "Neural Machine Translation of Rare Words with Subword Units", arXiv:1508.07909 (BPE).
    """

    def __init__(self, tokenizer: Tokenizer, name: str | None = None) -> None:
        super().__init__(name=name)
        _check_pieces(tokenizer.pieces)
        edges, pieces = _reversed_trie(tokenizer.pieces)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                np.fromiter(edges.keys(), np.int64, len(edges)),
                np.fromiter(edges.values(), np.int64, len(edges)),
            ),
            default_value=-1,
        )
        self._piece_of_node = np.array(pieces, np.int32)
        self._solve: _Solver = _SOLVERS[tokenizer.kind](tokenizer.pieces)
        self._unknown_id = tokenizer.unknown_id
        self._end_id = tokenizer.end_id
        self._pad_id = tokenizer.pad_id
        self._surfaces = np.array(tokenizer.surfaces, dtype=object)
        self._pieces = np.array([piece.text for piece in tokenizer.pieces], dtype=object)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts into the ids of their pieces, without start or end.

        Args:
            texts: Strings, of shape (B,).

        Returns:
            The ids: a ragged tensor (B, tokens of each), int32.
        """
        words = tf.raw_ops.StringSplitV2(
            input=tf.strings.regex_replace(texts, _SPACES, " "), sep=""
        )
        distinct, index = tf.unique(words.values)
        ids = tf.gather(self._tokenize_words(distinct), index)
        words_before = _row_splits(words.indices[:, 0], words.shape[0])
        return self._merge_unknown(ids.values, tf.gather(ids.row_splits, words_before))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def detokenize(self, ids: tf.Tensor) -> tf.Tensor:
        """Joins the pieces of each row up to the first end id.

        Args:
            ids: Token ids, of shape (B, T); padding and start ids are left out.

        Returns:
            The texts, of shape (B,), without spaces at their ends.
        """
        before_end = tf.equal(tf.cumsum(tf.cast(tf.equal(ids, self._end_id), tf.int32), axis=1), 0)
        surfaces = tf.where(before_end, tf.gather(tf.constant(self._surfaces), ids), "")
        return tf.strings.regex_replace(tf.strings.reduce_join(surfaces, 1), "^ +| +$", "")

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Names the piece of each id, as it stands in the vocabulary: U+2581 is a space.

        Args:
            ids: Token ids, of shape (B, T).

        Returns:
            The pieces, of shape (B, T); empty strings at padding.
        """
        return tf.where(tf.equal(ids, self._pad_id), "", tf.gather(tf.constant(self._pieces), ids))

    def _tokenize_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Segments words, of shape (U,), each by itself."""
        characters = tf.strings.unicode_decode(
            tf.strings.join([SPACE_MARK, words]), "UTF-8", replacement_char=_INVALID
        )
        matches = self._match(characters.values)  # (C, W)
        last, length = self._solve(matches, _segments(matches))
        piece = _lookup(matches, last, length)
        ids = tf.where(piece < 0, self._unknown_id, piece)
        ends = tf.cast(characters.row_splits, tf.int32)
        return tf.RaggedTensor.from_row_splits(ids, _lower_bounds(last, ends), validate=False)

    def _match(self, characters: tf.Tensor) -> tf.Tensor:
        """Finds all pieces in the text, as (C, W): the longest in the first column.

        No walk leaves its word, since no edge follows the mark of a word's beginning.
        """
        size = tf.size(characters)
        characters = tf.cast(characters, tf.int64)
        piece_of_node = tf.constant(self._piece_of_node)
        nothing = tf.fill([size], -1)

        def step(
            depth: tf.Tensor, last: tf.Tensor, node: tf.Tensor, found: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
            character = tf.gather(characters, tf.maximum(last - depth, 0))
            node = self.table.lookup(node * 2**_CODE_POINT_BITS + character)
            walking = tf.where(node >= 0)[:, 0]
            last, node = tf.gather(last, walking), tf.gather(node, walking)
            row = tf.tensor_scatter_nd_update(
                nothing, last[:, None], tf.gather(piece_of_node, node)
            )
            return depth + 1, last, node, found.write(depth, row)

        *_, found = tf.while_loop(
            lambda depth, last, node, found: tf.logical_or(depth == 0, tf.size(last) > 0),
            step,
            (
                tf.constant(0),
                tf.range(size),
                tf.zeros([size], tf.int64),
                tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[None]),
            ),
            shape_invariants=(
                tf.TensorShape([]),
                tf.TensorShape([None]),
                tf.TensorShape([None]),
                None,
            ),
        )
        return tf.reverse(tf.transpose(found.stack()), [1])

    def _merge_unknown(self, ids: tf.Tensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
        """Leaves one unknown id of a run of them."""
        row = _row_ids(row_splits, tf.size(ids))
        unknown = tf.equal(ids, self._unknown_id)
        repeated = unknown[1:] & unknown[:-1] & tf.equal(row[1:], row[:-1])
        keep = tf.concat([tf.ones_like(unknown[:1]), tf.logical_not(repeated)], 0)
        kept = tf.concat([[0], tf.cumsum(tf.cast(keep, tf.int64))], 0)
        ids = tf.gather(ids, tf.where(keep)[:, 0])
        return tf.RaggedTensor.from_row_splits(ids, tf.gather(kept, row_splits), validate=False)


def _lower_bounds(rising: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Counts for each value the numbers below it, as int64."""
    return tf.raw_ops.LowerBound(
        sorted_inputs=rising[None], values=values[None], out_type=tf.int64
    )[0]


def _row_splits(row_ids: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Returns where rows begin and the last one ends, (rows + 1,), of the row of each value."""
    return _lower_bounds(row_ids, tf.range(num_rows + 1))


def _row_ids(row_splits: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns the row of each of `size` values, counted from 1."""
    index = tf.range(tf.cast(size, tf.int64))
    return tf.raw_ops.UpperBound(sorted_inputs=row_splits[None], values=index[None])[0]


def _reversed_trie(pieces: Sequence[Piece]) -> tuple[dict[int, int], list[int]]:
    """Builds a trie of the pieces, last character first.

    A piece with a space inside is left out: no word has one.

    Args:
        pieces: The vocabulary.

    Returns:
        The edges, from `node * 2**21 + code point` to node (the root is 0), and for each node the
        piece that it spells or -1.
    """
    edges: dict[int, int] = {}
    piece_of_node = [-1]
    for index, piece in enumerate(pieces):
        if piece.type != "normal" or SPACE_MARK in piece.text[1:]:
            continue
        node = 0
        for character in reversed(piece.text):
            key = node * 2**_CODE_POINT_BITS + ord(character)
            node = edges.setdefault(key, len(piece_of_node))
            if node == len(piece_of_node):
                piece_of_node.append(-1)
        piece_of_node[node] = index
    return edges, piece_of_node


def _segments(matches: tf.Tensor) -> tf.Tensor:
    """Numbers the independent parts of the text, as (C,) rising from 0."""
    size, window = tf.unstack(tf.shape(matches))
    end = tf.range(size)
    longest = tf.reduce_max(tf.where(matches >= 0, tf.range(window, 0, -1), 1), 1)
    # Each match opens a span after its first character and closes it after its last one.
    opened = tf.math.unsorted_segment_sum(tf.ones_like(end), end - longest + 2, size + 1)
    closed = tf.concat([[0], tf.ones_like(end)], 0)
    spanned = tf.cumsum(opened - closed)[:size]
    return tf.cumsum(tf.cast(tf.equal(spanned, 0), tf.int32)) - 1


def _lookup(matches: tf.Tensor, last: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Returns the piece of `length` characters that ends at `last`, or -1."""
    window = tf.shape(matches)[1]
    return tf.gather(tf.reshape(matches, [-1]), (last + 1) * window - length)


def _unigram_solver(pieces: Sequence[Piece]) -> _Solver:
    """Viterbi: of all segmentations the one with the highest sum of scores."""
    piece_scores = np.array([piece.score for piece in pieces], np.float32)
    lowest = min(piece.score for piece in pieces if piece.type == "normal")
    unknown_score = np.float32(lowest - _UNKNOWN_PENALTY)

    def solve(matches: tf.Tensor, segment: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scores = tf.where(
            matches < 0, -np.inf, tf.gather(tf.constant(piece_scores), tf.maximum(matches, 0))
        )
        single = tf.where(matches[:, -1:] < 0, unknown_score, scores[:, -1:])
        scores = tf.concat([scores[:, :-1], single], 1)
        first, size = _segment_bounds(segment)
        length = _best_last_tokens(scores, first, size)
        return _trace_back(length, first, first + size - 1)

    return solve


def _segment_bounds(segment: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns first character and size of each segment, as (G,)."""
    size = tf.math.segment_sum(tf.ones_like(segment), segment)
    return tf.cumsum(size, exclusive=True), size


def _best_last_tokens(scores: tf.Tensor, first: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """For each character the length of the token that best ends there, as (C,).

    All segments advance by one character a step. They are sorted by size, so the ones that still
    run are a prefix.
    """
    total, window = tf.unstack(tf.shape(scores))
    order = tf.argsort(size, direction="DESCENDING", stable=True)
    first = tf.gather(first, order)
    sizes = tf.math.bincount(size)
    running = tf.size(size) - tf.cumsum(sizes)  # by step: segments larger than it
    steps = tf.maximum(tf.size(sizes) - 1, 0)
    # Best score of the text up to 1 ... W characters ago, the farthest in the first column.
    nothing = tf.fill([tf.size(first), window - 1], -np.float32(np.inf))
    before = tf.concat([nothing, tf.zeros([tf.size(first), 1])], 1)

    def step(
        index: tf.Tensor, before: tf.Tensor, ends: tf.TensorArray, lengths: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray, tf.TensorArray]:
        count = running[index]
        end = first[:count] + index
        totals = before[:count] + tf.gather(scores, end)
        # Of equal sums SentencePiece takes the longest last piece: the first column.
        lengths = lengths.write(index, window - tf.argmax(totals, 1, tf.int32))
        before = tf.concat([before[:count, 1:], tf.reduce_max(totals, 1, keepdims=True)], 1)
        return index + 1, before, ends.write(index, end), lengths

    *_, ends, lengths = tf.while_loop(
        lambda index, *_: index < steps,
        step,
        (tf.constant(0), before, _growing(steps), _growing(steps)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None]), None, None),
    )
    return tf.scatter_nd(ends.concat()[:, None], lengths.concat(), [total])


def _trace_back(
    length: tf.Tensor, first: tf.Tensor, last: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Follows the best tokens of all segments from their ends to their beginnings."""

    def step(
        index: tf.Tensor, first: tf.Tensor, last: tf.Tensor, ends: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
        ends = ends.write(index, last)
        last = last - tf.gather(length, last)
        left = tf.where(last >= first)[:, 0]
        return index + 1, tf.gather(first, left), tf.gather(last, left), ends

    vector = tf.TensorShape([None])
    *_, ends = tf.while_loop(
        lambda index, first, last, ends: tf.size(last) > 0,
        step,
        (tf.constant(0), first, last, _growing(0)),
        shape_invariants=(tf.TensorShape([]), vector, vector, None),
    )
    end = tf.sort(ends.concat())
    return end, tf.gather(length, end)


def _growing(size: int | tf.Tensor) -> tf.TensorArray:
    """Makes an array of vectors of unlike sizes."""
    return tf.TensorArray(
        tf.int32, size, dynamic_size=True, element_shape=[None], infer_shape=False
    )


def _bpe_solver(pieces: Sequence[Piece]) -> _Solver:
    """Merges: of all neighbours in a segment those that make the best-ranked piece come first."""
    ranks, all_at_once = _merge_ranks(pieces)

    def solve(matches: tf.Tensor, segment: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        window = tf.shape(matches)[1]

        def step(
            index: tf.Tensor,
            last: tf.Tensor,
            length: tf.Tensor,
            ends: tf.TensorArray,
            lengths: tf.TensorArray,
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray, tf.TensorArray]:
            group = tf.gather(segment, last)
            joined = length + _next(length, 0)
            possible = tf.logical_and(tf.equal(group, _next(group, -1)), joined <= window)
            piece = _lookup(matches, _next(last, 0), tf.minimum(joined, window))
            possible = tf.logical_and(possible, piece >= 0)
            piece = tf.maximum(piece, 0)
            rank = tf.where(possible, tf.gather(tf.constant(ranks), piece), _NEVER)
            best = tf.gather(tf.math.segment_min(rank, group), group)

            done = tf.where(tf.equal(best, _NEVER))[:, 0]
            ends = ends.write(index, tf.gather(last, done))
            lengths = lengths.write(index, tf.gather(length, done))

            candidate = tf.logical_and(possible, tf.equal(rank, best))
            merge = tf.where(
                tf.gather(tf.constant(all_at_once), piece),
                _every_other(candidate),
                _leftmost(candidate, group),
            )
            taken = tf.where(_previous(merge, False), _previous(length, 0), 0)
            left = tf.where(tf.logical_and(best < _NEVER, tf.logical_not(merge)))[:, 0]
            return index + 1, tf.gather(last, left), tf.gather(length + taken, left), ends, lengths

        vector = tf.TensorShape([None])
        *_, ends, lengths = tf.while_loop(
            lambda index, last, *_: tf.size(last) > 0,
            step,
            (
                tf.constant(0),
                tf.range(tf.size(segment)),
                tf.ones_like(segment),
                _growing(0),
                _growing(0),
            ),
            shape_invariants=(tf.TensorShape([]), vector, vector, None, None),
        )
        last = ends.concat()
        order = tf.argsort(last)
        return tf.gather(last, order), tf.gather(lengths.concat(), order)

    return solve


def _merge_ranks(pieces: Sequence[Piece]) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each piece its rank, and whether all of its merges may be done at once.

    Merges of one piece come from left to right. Doing them at once is the same, unless one of them
    makes a better-ranked pair possible, which then comes first: a piece that begins or ends with
    this one.
    """
    scores = {piece.text: piece.score for piece in pieces if piece.type == "normal"}
    all_at_once = dict.fromkeys(scores, True)
    for text, score in scores.items():
        for cut in range(1, len(text)):
            for part in (text[:cut], text[cut:]):
                if scores.get(part, np.inf) <= score:
                    all_at_once[part] = False
    order = {score: rank for rank, score in enumerate(sorted(set(scores.values()), reverse=True))}
    return (
        np.array([order.get(piece.score, 0) for piece in pieces], np.int32),
        np.array([all_at_once.get(piece.text, False) for piece in pieces]),
    )


def _next(values: tf.Tensor, after: int) -> tf.Tensor:
    return tf.concat([values[1:], tf.fill([1], after)], 0)


def _previous(values: tf.Tensor, before: int | bool) -> tf.Tensor:
    return tf.concat([tf.fill([1], before), values[:-1]], 0)


def _every_other(candidate: tf.Tensor) -> tf.Tensor:
    """Keeps the first, third, ... of each run of neighbours: the ones that do not overlap."""
    index = tf.range(tf.size(candidate))
    begins = tf.logical_and(candidate, tf.logical_not(_previous(candidate, False)))
    run = tf.cumsum(tf.cast(begins, tf.int32))
    first = tf.gather(tf.math.segment_min(index, run), run)
    return tf.logical_and(candidate, tf.equal((index - first) % 2, 0))


def _leftmost(candidate: tf.Tensor, group: tf.Tensor) -> tf.Tensor:
    """Keeps the first candidate of each group."""
    index = tf.where(candidate, tf.range(tf.size(group)), _NEVER)
    first = tf.gather(tf.math.segment_min(index, group), group)
    return tf.logical_and(candidate, tf.equal(index, first))


def _check_pieces(pieces: Sequence[Piece]) -> None:
    types = {piece.type for piece in pieces} - {"normal", "control", "unknown"}
    if types:
        raise ValueError(
            f"The vocabulary has pieces of type {', '.join(sorted(types))}, which the graph "
            "tokenizer does not know. Expected normal, control and unknown pieces only. Train the "
            "vocabulary with Tokenizer.train."
        )


_SOLVERS: dict[str, Callable[[Sequence[Piece]], _Solver]] = {
    "unigram": _unigram_solver,
    "bpe": _bpe_solver,
}
