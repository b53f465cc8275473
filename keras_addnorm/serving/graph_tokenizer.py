"""Applies a tokenizer's vocabulary inside a TensorFlow graph.

It uses core TensorFlow operations only, so a saved model with it loads wherever TensorFlow does.
Texts are normalised (`GraphNormalizer`) and split at spaces, and only the *distinct* words of the
batch are segmented, all at once:

1. **Match.** `matches[e, W - n]` is the number of the string of `n` characters that ends at
   character `e`, 0 if the string is part of no piece. A string longer than 1, 2, 4, ... characters
   is looked up by the numbers of its two parts, so that all lengths take log2(W) steps.
2. **Cut.** Where no match spans the gap between two characters, the two sides do not depend on
   each other. The characters between two such gaps are a *segment*.
3. **Solve.** Unigram: the Viterbi recurrence, one step for each position in the longest segment.
   BPE: merge the best-ranked pair of every segment, until no pair is left.

Memory grows with the number of characters (times the longest piece), never with words times the
longest word. Time grows with the longest *segment*, which is no longer than `LONGEST_WORD`: a word
of more characters is split in parts of that many.

Where pieces can go on over a space, a "word" is a whole text. So it is, and one segment, where the
sums of a unigram vocabulary's scores are rounded: a segmentation then depends on the text before.

Shape letters: C characters of the distinct words, G segments, W characters of the longest piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_addnorm.basics.errors import ArgumentTypeError
from keras_addnorm.data import Piece, Tokenizer
from keras_addnorm.data.long_words import LONGEST_WORD
from keras_addnorm.data.sentencepiece_model import is_symbol
from keras_addnorm.data.sentencepiece_training import SCORE_STEPS_PER_UNIT
from keras_addnorm.data.strings import describe
from keras_addnorm.data.vocabulary import SPACE_MARK
from keras_addnorm.serving.graph_bpe import NEVER, look_up, merge
from keras_addnorm.serving.graph_normalizer import GraphNormalizer
from keras_addnorm.serving.graph_vocabulary import TEXTS, GraphVocabulary, traced
from keras_addnorm.serving.ragged_characters import expand, lower_bounds, row_ids, to_characters
from keras_addnorm.serving.string_numbers import StringNumbers, match

# Ends a word where a piece could go on into the next one. No text holds it.
_SEPARATOR = 0x110000
# SentencePiece scores an unknown character this much below the lowest score of a unigram piece.
_UNKNOWN_PENALTY = 10.0
# The id of a character that is no piece, before runs of them become one id. Where the id of a run
# depends on its characters, it is this minus the code point.
_UNKNOWN_CHARACTER = -1
# matches (C, W), segment of each character (C,) -> (last character, length) of each token.
_Solver = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class GraphTokenizer(GraphVocabulary):
    """A `Tokenizer` inside a TensorFlow graph.

    `tokenize` and `detokenize` have the results of `Tokenizer.encode` and `Tokenizer.decode` for
    every text. Invalid UTF-8 becomes U+FFFD.

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
        TypeError: If `tokenizer` is something else.
        ValueError: If the vocabulary has pieces of types that `Tokenizer.train` does not make.

    Reference:
        Kudo 2018, "Subword Regularization", arXiv:1804.10959 (unigram); Sennrich et al. 2016,
        "Neural Machine Translation of Rare Words with Subword Units", arXiv:1508.07909 (BPE).
    """

    def __init__(self, tokenizer: Tokenizer, name: str | None = None) -> None:
        if not isinstance(tokenizer, Tokenizer):
            raise ArgumentTypeError(expected="a Tokenizer", received=describe(tokenizer))
        super().__init__(tokenizer, name)
        pieces = tokenizer.model_pieces
        _check_pieces(pieces, tokenizer.kind)
        strings = _Strings(tokenizer)
        self._normalizer = GraphNormalizer(tokenizer.normalizer)
        self.table = strings.table(self._normalizer.numbers)
        self.tables = [*self.added_tables, self.table, *self._normalizer.tables]
        self._longest = int(strings.lengths.max())
        # A piece that has no id is an unknown one by itself; other characters are, run by run.
        unknown = tokenizer.unknown_id
        ids = [unknown if token < 0 else token for token in tokenizer.model_ids]
        self._id_of_string = strings.of_pieces(ids, _UNKNOWN_CHARACTER, np.int32)
        self._span_of_string = np.where(strings.is_piece, strings.lengths, 1)
        self._solve: _Solver = _SOLVERS[tokenizer.kind](pieces, strings)
        self._unknown_id = unknown
        self._runs = _table_of_runs(tokenizer)
        if self._runs is not None:
            self.tables.append(self._runs)
        self._layout = tokenizer.layout
        # Else a mark begins or ends every word, and no piece goes on over it.
        self._adds_exactly = tokenizer.kind == "bpe" or _are_exact(pieces)
        self._keeps_texts_whole = self._layout.joins_words or not self._adds_exactly
        self._separates = not self._layout.has_outer_mark or self._keeps_texts_whole
        self._byte_ids = np.array(tokenizer.byte_ids, np.int32)

    def _normalize(self, texts: tf.Tensor) -> tf.Tensor:
        texts = self._normalizer.without_end(self._normalized(texts))
        texts = tf.strings.regex_replace(texts, r"\s+", " ")
        return self._normalizer.with_symbols(tf.strings.regex_replace(texts, "^ | $", ""))

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenize_normal(self._normalized(texts))

    def _tokenize_prepared(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenize_normal(self._finished(texts))

    def _tokenize_normal(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts that are normalised."""
        texts = self._normalizer.without_end(texts)
        words = tf.raw_ops.StringSplitV2(input=texts, sep="")
        row_splits = _row_splits(words.indices[:, 0], words.shape[0])
        marked, row_splits = self._with_marks(words.values, row_splits)
        distinct, index = tf.unique(marked)
        ids = tf.gather(self._tokenize_words(distinct), index)
        row_splits = tf.gather(ids.row_splits, row_splits)
        if len(self._byte_ids):
            return tf.RaggedTensor.from_row_splits(ids.values, row_splits, validate=False)
        return self._merge_unknown(ids.values, row_splits)

    def _normalized(self, texts: tf.Tensor) -> tf.Tensor:
        return self._finished(self._prepare(texts))

    # Functions, so that the tables of characters stand in a file once for each vocabulary.
    @traced(TEXTS)
    def _prepare(self, texts: tf.Tensor) -> tf.Tensor:
        return self._normalizer.prepared(texts)

    @traced(TEXTS)
    def _finished(self, texts: tf.Tensor) -> tf.Tensor:
        return self._normalizer.finished(texts, self.table)

    def _with_marks(self, words: tf.Tensor, row_splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts the marks of spaces into words; one "word" a text where texts are kept whole."""
        layout = self._layout
        marked = [words, SPACE_MARK] if layout.is_suffix else [SPACE_MARK, words]
        marked = tf.strings.join(marked)
        if not layout.has_outer_mark:
            # The first word of each text, or the last one, stands without.
            first, last = row_splits[:-1], row_splits[1:] - 1
            outer = last if layout.is_suffix else first
            outer = tf.boolean_mask(outer, last >= first)[:, None]
            marked = tf.tensor_scatter_nd_update(marked, outer, tf.gather_nd(words, outer))
        if not self._keeps_texts_whole:
            return marked, row_splits
        rows = tf.RaggedTensor.from_row_splits(marked, row_splits, validate=False)
        texts = tf.strings.reduce_join(rows, axis=1)
        return texts, tf.range(tf.size(texts, tf.int64) + 1)

    def _tokenize_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Segments distinct words, (U,), independently of each other."""
        characters, ends = to_characters(words)
        if self._separates:
            characters, ends = _with_separators(characters, ends)
        matches = match(self.table, characters, self._longest)  # (C, W)
        longest = tf.reduce_max(ends[1:] - ends[:-1])
        matches, cuts = tf.cond(
            longest > LONGEST_WORD,
            lambda: _cut_long_words(matches, characters, ends),
            lambda: (tf.identity(matches), tf.zeros_like(characters)),
        )
        if self._adds_exactly:
            segment = _segments(tf.gather(tf.constant(self._span_of_string), matches))
        else:
            segment = row_ids(ends, tf.size(characters)) - 1 + cuts
        last, length = self._solve(matches, segment)
        if self._separates:
            is_token = tf.not_equal(tf.gather(characters, last), _SEPARATOR)
            last, length = tf.boolean_mask(last, is_token), tf.boolean_mask(length, is_token)
        ids = tf.gather(tf.constant(self._id_of_string), look_up(matches, last, length))
        if self._runs is not None:
            unknown = tf.equal(ids, _UNKNOWN_CHARACTER)
            ids = tf.where(unknown, _UNKNOWN_CHARACTER - tf.gather(characters, last), ids)
        row_splits = lower_bounds(last, tf.cast(ends, tf.int32))
        if len(self._byte_ids):
            ids, row_splits = self._unknown_as_bytes(ids, tf.gather(characters, last), row_splits)
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def _unknown_as_bytes(
        self, ids: tf.Tensor, characters: tf.Tensor, row_splits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Replaces each unknown character by the ids of its bytes."""
        limits = tf.constant([1 << 7, 1 << 11, 1 << 16])
        more = tf.reduce_sum(tf.cast(characters[:, None] >= limits, tf.int32), 1)
        unknown = tf.equal(ids, _UNKNOWN_CHARACTER)
        origin, place, row_splits = expand(tf.where(unknown, more + 1, 1), row_splits)
        more, character = tf.gather(more, origin), tf.gather(characters, origin)
        bits = tf.bitwise.right_shift(character, 6 * (more - place))
        first = tf.gather([0, 0xC0, 0xE0, 0xF0], more) + bits
        byte = tf.where(tf.equal(place, 0), first, 0x80 + bits % 0x40)
        is_byte = tf.gather(unknown, origin)
        byte_ids = tf.gather(tf.constant(self._byte_ids), tf.where(is_byte, byte, 0))
        return tf.where(is_byte, byte_ids, tf.gather(ids, origin)), row_splits

    def _merge_unknown(self, ids: tf.Tensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
        """Replaces each run of unknown characters by one id: its name's, or the unknown one."""
        row = row_ids(row_splits, tf.size(ids))
        unknown = ids <= _UNKNOWN_CHARACTER
        repeated = unknown[1:] & unknown[:-1] & tf.equal(row[1:], row[:-1])
        keep = tf.concat([tf.ones_like(unknown[:1]), tf.logical_not(repeated)], 0)
        kept = tf.concat([[0], tf.cumsum(tf.cast(keep, tf.int64))], 0)
        merged = tf.where(unknown, self._unknown_id, ids)
        if self._runs is not None:
            begins = unknown & keep
            number = tf.cumsum(tf.cast(begins, tf.int64)) - 1
            runs = tf.RaggedTensor.from_value_rowids(
                _UNKNOWN_CHARACTER - tf.boolean_mask(ids, unknown),
                tf.boolean_mask(number, unknown),
                tf.reduce_sum(tf.cast(begins, tf.int64)),
                validate=False,
            )
            found = self._runs.lookup(tf.strings.unicode_encode(runs, "UTF-8"))
            merged = tf.tensor_scatter_nd_update(merged, tf.where(begins), found)
        ids = tf.gather(merged, tf.where(keep)[:, 0])
        return tf.RaggedTensor.from_row_splits(ids, tf.gather(kept, row_splits), validate=False)


def _row_splits(row_ids: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """The row splits of a ragged tensor, (rows + 1,), from the row of each value."""
    return lower_bounds(row_ids, tf.range(num_rows + 1))


def _with_separators(characters: tf.Tensor, row_splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Ends each word with a character that is in no piece, so that none goes on over its end."""
    rows = tf.RaggedTensor.from_row_splits(characters, row_splits, validate=False)
    separators = tf.fill(tf.stack([rows.nrows(), 1]), _SEPARATOR)
    rows = tf.concat([rows, separators], 1)
    return rows.values, rows.row_splits


def _cut_long_words(
    matches: tf.Tensor, characters: tf.Tensor, row_splits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Divides words of more than `LONGEST_WORD` characters in parts of that many.

    Args:
        matches: What ends at each character, (C, W).
        characters: The characters, (C,), with the marks of spaces.
        row_splits: Where rows of words begin.

    Returns:
        The matches that go on over no cut, and the number of cuts up to each character, (C,).
    """
    size, window = tf.size(characters), matches.shape[1]
    index, zero = tf.range(size), tf.zeros_like(characters)
    is_mark = tf.equal(characters, ord(SPACE_MARK)) | tf.equal(characters, _SEPARATOR)
    starts = tf.cast(row_splits[:-1], tf.int32)[:, None]
    is_first = tf.tensor_scatter_nd_update(zero, starts, tf.ones_like(starts[:, 0])) > 0
    is_first |= tf.concat([[True], is_mark[:-1]], 0)
    place = index - _last(is_first, index)
    is_cut = ~is_mark & (place > 0) & tf.equal(place % LONGEST_WORD, 0)
    room = index + 1 - _last(is_cut, index)
    lengths = window - tf.range(window)
    matches = tf.where(lengths <= room[:, None], matches, 0)
    return matches, tf.cumsum(tf.cast(is_cut, tf.int32))


def _last(chosen: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """The last chosen place up to each, (C,); 0 where there is none."""
    places = tf.concat([[0], tf.boolean_mask(index, chosen)], 0)
    return tf.gather(places, tf.cumsum(tf.cast(chosen, tf.int32)))


class _Strings(StringNumbers):
    """Numbers for the pieces and for the strings that they are composed of.

    A piece with a space where no word has one is left out. The private character of a user-defined
    symbol is the symbol's piece.

    Args:
        tokenizer: The vocabulary.

    Attributes:
        is_piece: Whether each string is a piece.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        layout, marks = tokenizer.layout, tokenizer.normalizer.marks
        inner = slice(None, -1) if layout.is_suffix else slice(1, None)
        self._piece = {}
        for index, piece in enumerate(tokenizer.model_pieces):
            if is_symbol(piece):
                self._piece[self.add(marks[piece.text])] = index
            elif piece.type in ("normal", "user_defined") and (
                layout.joins_words or SPACE_MARK not in piece.text[inner]
            ):
                self._piece[self.add(piece.text)] = index
        self.is_piece = self.of_pieces([True] * len(tokenizer.model_pieces), False, bool)

    def of_pieces(
        self, values: Sequence[Any] | np.ndarray, otherwise: Any, dtype: Any
    ) -> np.ndarray:
        """The value of each string's piece; `otherwise` for a string that is no piece."""
        out = np.full(len(self.texts), otherwise, dtype)
        for number, piece in self._piece.items():
            out[number] = values[piece]
        return out


def _segments(spans: tf.Tensor) -> tf.Tensor:
    """Numbers the independent segments of the text, (C,), from the lengths of pieces, (C, W)."""
    longest = tf.reduce_max(spans, 1)
    size = tf.size(longest)
    end = tf.range(size)
    # Each match opens a span after its first character and closes it after its last one.
    opened = tf.math.unsorted_segment_sum(tf.ones_like(end), end - longest + 2, size + 1)
    closed = tf.concat([[0], tf.ones_like(end)], 0)
    spanned = tf.cumsum(opened - closed)[:size]
    return tf.cumsum(tf.cast(tf.equal(spanned, 0), tf.int32)) - 1


def _unigram_solver(pieces: Sequence[Piece], strings: _Strings) -> _Solver:
    """Viterbi search for the segmentation with the highest sum of scores."""
    string_scores = strings.of_pieces([piece.score for piece in pieces], -np.inf, np.float32)
    lowest = min(piece.score for piece in pieces if piece.type == "normal")
    unknown = ~strings.is_piece & (strings.lengths == 1)
    string_scores[unknown] = np.float32(lowest - _UNKNOWN_PENALTY)

    def solve(matches: tf.Tensor, segment: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scores = tf.gather(tf.constant(string_scores), matches)
        sizes = tf.math.segment_sum(tf.ones_like(segment), segment)
        ends = tf.cumsum(sizes)
        place = tf.range(tf.size(segment)) - tf.gather(ends - sizes, segment)
        length = _best_last_tokens(scores, segment, sizes, place)
        return _trace_back(length, ends - 1, place)

    return solve


def _best_last_tokens(
    scores: tf.Tensor, segment: tf.Tensor, sizes: tf.Tensor, place: tf.Tensor
) -> tf.Tensor:
    """The length of the best token that ends at each character, (C,).

    All segments advance by one character a step. They are sorted by size, so the unfinished
    segments are a prefix.

    Args:
        scores: The score of the piece of each length, the longest first, that ends at each
            character, (C, W).
        segment: The segment of each character, (C,).
        sizes: The number of characters of each segment, (G,).
        place: The position of each character in its segment, from 0, (C,).
    """
    window = scores.shape[1]
    order = tf.argsort(sizes, direction="DESCENDING", stable=True)
    steps = tf.maximum(tf.reduce_max(sizes), 0)
    running = tf.math.unsorted_segment_sum(tf.ones_like(place), place, steps)
    # The index of each character when characters are sorted by step, then by segment.
    index = tf.gather(tf.cumsum(running, exclusive=True), place) + tf.gather(
        tf.math.invert_permutation(order), segment
    )
    by_step = tf.TensorArray(tf.float32, 0, infer_shape=False, element_shape=[None, window])
    by_step = by_step.split(tf.gather(scores, tf.math.invert_permutation(index)), running)
    # Best scores of the text that ends 1 ... W characters earlier, the shortest text first.
    before = tf.zeros([tf.size(sizes), 1])
    before = tf.pad(before, [[0, 0], [window - 1, 0]], constant_values=-np.inf)

    def step(
        index: tf.Tensor, before: tf.Tensor, columns: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        scores = by_step.read(index)
        before = tf.slice(before, [0, 0], tf.shape(scores))
        # Of equal sums, SentencePiece takes the longest last piece: the first column.
        best, column = tf.math.top_k(before + scores, 1)
        before = tf.concat([before[:, 1:], best], 1)
        return index + 1, before, columns.write(index, column)

    columns = tf.TensorArray(tf.int32, steps, infer_shape=False, element_shape=[None, 1])
    *_, columns = tf.while_loop(
        lambda index, *_: index < steps,
        step,
        (tf.constant(0), before, columns),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, window]), None),
    )
    return window - tf.gather(columns.concat()[:, 0], index)


def _trace_back(
    length: tf.Tensor, last: tf.Tensor, place: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Follows the best tokens of all segments from their ends to their beginnings.

    Args:
        length: The length of the best token that ends at each character, (C,).
        last: The last character of each segment, (G,).
        place: The position of each character in its segment, from 0, (C,).
    """
    earlier = tf.where(length > place, -1, tf.range(tf.size(length)) - length)

    def step(
        index: tf.Tensor, end: tf.Tensor, ends: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        left = tf.raw_ops.ListDiff(x=tf.gather(earlier, end), y=[-1]).out
        return index + 1, left, ends.write(index, end)

    ends = tf.TensorArray(tf.int32, 0, dynamic_size=True, infer_shape=False, element_shape=[None])
    *_, ends = tf.while_loop(
        lambda index, end, ends: tf.size(end) > 0,
        step,
        (tf.constant(0), last, ends),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), None),
    )
    end = tf.sort(ends.concat())
    return end, tf.gather(length, end)


def _bpe_solver(pieces: Sequence[Piece], strings: _Strings) -> _Solver:
    """BPE merges: in each segment, the neighbours that form the best-ranked piece come first."""
    ranks, all_at_once = _merge_ranks(pieces)
    string_ranks = strings.of_pieces(ranks, NEVER, np.int32)
    at_once = strings.of_pieces(all_at_once, False, bool)

    def solve(matches: tf.Tensor, segment: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def merges(last: tf.Tensor, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            merged = length[:-1] + length[1:]
            string = look_up(matches, last[1:], merged)
            rank = tf.gather(tf.constant(string_ranks), string)
            rank = tf.where(merged <= matches.shape[1], rank, NEVER)
            return rank, tf.gather(tf.constant(at_once), string)

        return merge(segment, merges)

    return solve


def _merge_ranks(pieces: Sequence[Piece]) -> tuple[np.ndarray, np.ndarray]:
    """The rank of each piece, and whether all merges into it may be done at once.

    BPE merges the pairs of one piece from left to right. Merging all at once has the same result,
    unless a merge makes a better-ranked pair possible, which would come next. That pair forms a
    piece which begins or ends with this one.
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


def _table_of_runs(tokenizer: Tokenizer) -> tf.lookup.StaticHashTable | None:
    """The ids of runs of characters that the model lacks and a list of ids names; None without."""
    runs = tokenizer.ids_of_runs
    if not runs:
        return None
    entries = tf.lookup.KeyValueTensorInitializer(
        np.array([name.encode("utf-8") for name in runs], dtype=object),
        np.array(list(runs.values()), np.int32),
        tf.string,
        tf.int32,
    )
    return tf.lookup.StaticHashTable(entries, tokenizer.unknown_id)


def _are_exact(pieces: Sequence[Piece]) -> bool:
    """Whether sums of scores are not rounded, as of all vocabularies that `Tokenizer` trains."""
    return all((piece.score * SCORE_STEPS_PER_UNIT).is_integer() for piece in pieces)


def _check_pieces(pieces: Sequence[Piece], kind: str) -> None:
    if kind == "bpe" and any(p.type == "user_defined" and not is_symbol(p) for p in pieces):
        raise ValueError(
            "The vocabulary has user-defined symbols with the mark of a space, which are no merges "
            "of BPE. Expected symbols without it in a BPE vocabulary. Translate in Python."
        )
    if any(piece.type == "unused" for piece in pieces):
        raise ValueError(
            "The vocabulary has pieces of type unused, which the graph tokenizer does not know. "
            "Expected pieces of other types only. Train the vocabulary with Tokenizer.train."
        )


_SOLVERS: dict[str, Callable[[Sequence[Piece], _Strings], _Solver]] = {
    "unigram": _unigram_solver,
    "bpe": _bpe_solver,
}
