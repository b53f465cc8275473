"""A vocabulary shortlist, and the lexicon that says which target tokens are likely."""

from __future__ import annotations

import dataclasses
import errno
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.alignment.pharaoh import checked_links
from keras_addnorm.alignment.translation_table import MOST_PASSES, TranslationTable, ibm_model_1
from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import is_whole, require_int, to_file, to_path
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.basics.tensors import to_tensor
from keras_addnorm.decoding.checks import require_type
from keras_addnorm.decoding.decoder import SpecialIds

Tensor = Any

_MOST_COOCCURRENCES = 10_000_000
"""Largest number of token pairs, which take half a GiB; of larger texts, sentences are skipped."""
_LARGEST_VOCABULARY = 10_000_000  # a list or a count for each token is held
_LARGEST = np.finfo(np.float32).max
# The bytes of the arrays of a file, for each byte on the disk and in any case: most of a list of
# candidates may be empty.
_MOST_INFLATED, _ANY_SIZE = 100, 1 << 26


@dataclasses.dataclass(frozen=True, eq=False)
class Lexicon:
    """The most probable translations of each source token, by IBM's first model or by links.

    Args:
        candidates: `(V_source, C)` int32: target tokens, the most probable first.
        probabilities: `(V_source, C)` float32: p(target token | source token); 0 where a source
            token has fewer candidates.
        frequencies: `(V_target,)` float32: how often each target token stands in a sentence.

    Raises:
        ValueError: If the arrays have other shapes than these, a candidate lies outside of the
            vocabulary, or a number is negative or not finite in float32.
        TypeError: If they are no arrays of NumPy.

    Reference:
        Brown et al., "The Mathematics of Statistical Machine Translation", 1993, section 4.1.
    """

    candidates: Any
    probabilities: Any
    frequencies: Any

    def __post_init__(self) -> None:
        arrays = (self.candidates, self.probabilities, self.frequencies)
        # In the graph of an export they are tensors.
        if not all(hasattr(each, "shape") and not isinstance(each, np.ndarray) for each in arrays):
            _require_sound(*arrays)

    @classmethod
    def estimate(
        cls,
        pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
        *,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        num_candidates: int = 64,
        iterations: int = 5,
    ) -> Lexicon:
        """Estimate translation probabilities with expectation maximisation.

        The end token of the sources stands for the empty word: it can be translated with anything.

        Args:
            pairs: The training sentences as ids, each side with its end token. They are read once,
                and of a text with more than ten million pairs of tokens, only every second, fourth,
                ... sentence is kept. A sentence that alone has more is left out.
            source_vocabulary_size: Number of source tokens.
            target_vocabulary_size: Number of target tokens.
            num_candidates: Number of translations that are kept for each source token, C.
            iterations: Number of passes over the pairs.

        Returns:
            The lexicon.

        Raises:
            ValueError: If there is no pair, an id lies outside its vocabulary, or a number does not
                fit.

        Example:
            >>> pairs = [([5, 6, 2], [8, 9, 2]), ([5, 7, 2], [8, 10, 2])]
            >>> lexicon = Lexicon.estimate(
            ...     pairs, source_vocabulary_size=8, target_vocabulary_size=12
            ... )
            >>> lexicon.candidates[[6, 7], 0].tolist()
            [9, 10]
        """
        require_int(
            "A lexicon counts.",
            most=_LARGEST_VOCABULARY,
            source_vocabulary_size=source_vocabulary_size,
            target_vocabulary_size=target_vocabulary_size,
            num_candidates=num_candidates,
        )
        require_int("A lexicon counts.", most=MOST_PASSES, iterations=iterations)
        sources, targets = _sentences(pairs)
        _check("source", sources, source_vocabulary_size)
        _check("target", targets, target_vocabulary_size)
        table = ibm_model_1(sources, targets, target_vocabulary_size, iterations)
        return cls._of(table, targets, source_vocabulary_size, num_candidates)

    @classmethod
    def from_links(
        cls,
        pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
        links: Iterable[Any],
        *,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        num_candidates: int = 64,
    ) -> Lexicon:
        """Count translations of tokens: `p(t | s)` is the share of t among the tokens linked to s.

        Args:
            pairs: The training sentences as ids, each side with its end token.
            links: For each pair its links `(L, 2)`, positions in source and target, as
                `keras_addnorm.alignment.align` finds them.
            source_vocabulary_size: Number of source tokens.
            target_vocabulary_size: Number of target tokens.
            num_candidates: Number of translations that are kept for each source token, C.

        Returns:
            The lexicon.

        Raises:
            ValueError: If there is no link, there are more or fewer rows of links than pairs, a
                link or an id lies outside, or a number does not fit.

        Example:
            >>> pairs = [([5, 6, 2], [8, 9, 2]), ([5, 7, 2], [8, 10, 2])]
            >>> lexicon = Lexicon.from_links(
            ...     pairs,
            ...     [[(0, 0), (1, 1)], [(0, 0), (1, 1)]],
            ...     source_vocabulary_size=8,
            ...     target_vocabulary_size=12,
            ... )
            >>> lexicon.candidates[[6, 7], 0].tolist()
            [9, 10]
        """
        require_int(
            "A lexicon counts.",
            most=_LARGEST_VOCABULARY,
            source_vocabulary_size=source_vocabulary_size,
            target_vocabulary_size=target_vocabulary_size,
            num_candidates=num_candidates,
        )
        sides = [_ids_of(pair) for pair in _listed(pairs)]
        places = checked_links(links)
        if len(sides) != len(places):
            raise ArgumentError(
                "A lexicon is counted from sentence pairs and their links.",
                "as many rows of links as pairs",
                received=f"{len(places)} and {len(sides)}",
            )
        linked = [
            _linked_ids(pair, row) for pair, row in zip(sides, places, strict=True) if len(row)
        ]
        if not linked:
            raise ValueError("There are no links to count translations of tokens from.")
        sources, targets = ([side[n] for side in sides if side[n].size] for n in (0, 1))
        _check("source", sources, source_vocabulary_size)
        _check("target", targets, target_vocabulary_size)
        source, target = np.concatenate(linked).T
        keys, counts = np.unique(source * target_vocabulary_size + target, return_counts=True)
        table = TranslationTable(keys, target_vocabulary_size)
        table.set_counts(counts)
        return cls._of(table, targets, source_vocabulary_size, num_candidates)

    @classmethod
    def _of(
        cls,
        table: TranslationTable,
        targets: Sequence[np.ndarray],
        source_vocabulary_size: int,
        num_candidates: int,
    ) -> Lexicon:
        """Return the most probable translations in a table, and how often each token stands."""
        vocabulary_size = table.target_size
        frequencies = np.bincount(np.concatenate(targets), minlength=vocabulary_size)
        source, target, probability = table.source, table.target, table.probability
        # The most probable of each source token first, and its place among them.
        order = np.lexsort((target, -probability, source))
        source, target, probability = source[order], target[order], probability[order]
        place = np.arange(len(source)) - np.searchsorted(source, source)
        kept = place < min(num_candidates, vocabulary_size)
        shape = (source_vocabulary_size, place[kept].max() + 1)
        candidates, probabilities = np.zeros(shape, "int32"), np.zeros(shape, "float32")
        candidates[source[kept], place[kept]] = target[kept]
        probabilities[source[kept], place[kept]] = probability[kept]
        return cls(candidates, probabilities, (frequencies / len(targets)).astype("float32"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to a file, whole or not at all; a name gets the ending `.npz`."""
        path = to_path(path)
        if path.suffix != ".npz":
            path = path.with_name(f"{path.name}.npz")
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Lexicon:
        """Read what `save` wrote.

        Args:
            path: The file.

        Returns:
            The lexicon.

        Raises:
            ValueError: If it is another file.
        """
        path = to_file(path)
        try:
            _require_moderate(path)
            with path.open("rb") as file, np.load(file) as arrays:
                found = dict(arrays)
            return cls(**found)
        except Exception as error:  # What a zip without sense leads to, such as a place before it.
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            raise ArgumentError(
                expected="a file with a whole lexicon",
                remedy="Delete it, to have it estimated again.",
                received=f"{path}, which is none, or not whole",
            ) from error


def _require_sound(
    candidates: np.ndarray, probabilities: np.ndarray, frequencies: np.ndarray
) -> None:
    """Refuse arrays that are no lexicon: a search would take what lies outside for something."""
    arrays = (candidates, probabilities, frequencies)
    if not all(isinstance(each, np.ndarray) for each in arrays):
        raise ArgumentTypeError(
            "A lexicon consists of arrays.",
            "three of NumPy",
            received=", ".join(type(each).__name__ for each in arrays),
        )
    size = len(frequencies) if frequencies.ndim == 1 else 0
    are_listed = (
        candidates.ndim == 2
        and candidates.shape == probabilities.shape
        and candidates.shape[1] <= size
        and candidates.dtype.kind in "iu"
        and np.all((candidates >= 0) & (candidates < size))
    )
    are_weighed = all(
        each.dtype.kind in "fiu" and np.all((each >= 0) & (each <= _LARGEST))
        for each in (probabilities, frequencies)
    )
    if not are_listed or not are_weighed:
        raise ArgumentError(
            "The arrays are not those of a lexicon.",
            "`candidates` and `probabilities` (V_source, C) and `frequencies` (V_target,), "
            "ids below V_target, and numbers >= 0 that are finite in float32",
            "Estimate it with `Lexicon.estimate`.",
            received=", ".join(f"{each.dtype} {each.shape}" for each in arrays),
        )


def require_fit(lexicon: Lexicon, config: Any) -> None:
    """Raise unless the lexicon fits a model's vocabularies.

    Args:
        lexicon: The lexicon.
        config: The model's config, or the `DecoderInfo` of another decoder.

    Raises:
        ValueError: If it does not.
    """
    received = (lexicon.candidates.shape[0], lexicon.frequencies.shape[0])
    known = (config.source_vocabulary_size, config.target_vocabulary_size)
    expected = tuple(
        size if size is not None else own for size, own in zip(known, received, strict=True)
    )
    if received != expected:
        raise ArgumentError(
            "The shortlist does not belong to the model.",
            f"a lexicon of {expected[0]} source and {expected[1]} target tokens",
            "Estimate it with the tokenizer of the model.",
            received=f"{received[0]} and {received[1]}",
        )


def most_bytes(path: Path) -> int:
    """Return how many bytes the arrays of a lexicon may have that is read from a file."""
    return max(_ANY_SIZE, _MOST_INFLATED * path.stat().st_size)


def _require_moderate(path: Path) -> None:
    """Refuse a zip whose arrays are far larger than those of a lexicon of its size."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > most_bytes(path):
        raise ValueError("its arrays are far larger than the file")


def _sentences(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return both sides, thinned out evenly while there are too many."""
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    total, stride = 0, 1
    for number, pair in enumerate(_listed(pairs)):
        if number % stride:
            continue
        source, target = _ids_of(pair)
        # One alone above the limit would leave no room for any other.
        if not 0 < source.size * target.size <= _MOST_COOCCURRENCES:
            continue
        kept.append((source, target))
        total += len(source) * len(target)
        if total > _MOST_COOCCURRENCES:
            kept, stride = kept[::2], 2 * stride
            total = sum(source.size * target.size for source, target in kept)
    if not kept:
        raise ValueError("There are no sentence pairs to learn translations of tokens from.")
    sources, targets = zip(*kept, strict=True)
    return list(sources), list(targets)


def _listed(pairs: Any) -> Iterable[Any]:
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise ArgumentError(
            "A lexicon is estimated from sentence pairs.",
            "a list of two rows of ids each",
            value=pairs,
        )
    return pairs


def _ids_of(pair: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return both sides of a pair as arrays of ids."""
    try:
        source, target = (np.asarray(side) for side in pair)
        are_ids = all(
            ids.ndim == 1 and (not ids.size or ids.dtype.kind in "iu") for ids in (source, target)
        )
    except (TypeError, ValueError):
        are_ids = False
    if not are_ids:
        raise ArgumentError(
            "A lexicon is estimated from sentence pairs.", "two rows of integer ids", value=pair
        )
    return source.astype("int64"), target.astype("int64")


def _linked_ids(pair: tuple[np.ndarray, np.ndarray], links: np.ndarray) -> np.ndarray:
    """Return the ids of the linked tokens of a pair, `(L, 2)`."""
    sizes = np.array([side.size for side in pair])
    if (links < 0).any() or (links >= sizes).any():
        raise ArgumentError(
            "A link lies outside its sentences.",
            f"positions below {sizes.tolist()}",
            "Do the links belong to these pairs, split into these tokens?",
            received=str(links[((links < 0) | (links >= sizes)).any(1)][0].tolist()),
        )
    return np.stack([side[links[:, n]] for n, side in enumerate(pair)], 1)


def _check(side: str, sentences: Sequence[np.ndarray], vocabulary_size: int) -> None:
    low, high = min(map(np.min, sentences)), max(map(np.max, sentences))
    if low < 0 or high >= vocabulary_size:
        raise ArgumentError(
            f"A {side} id lies outside the vocabulary.",
            f"0 <= id < {vocabulary_size}",
            "Were the pairs encoded with another tokenizer?",
            received=f"ids from {low} to {high}",
        )


_SHARE_OF_FREQUENCIES = 0.1
"""How much the training text's own frequencies count beside what the source says."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shortlist:
    """Lets a search weigh a few target tokens for each batch, instead of the whole vocabulary.

    They are those that IBM's first translation model expects most in its translations: the sum,
    over the source tokens s of the batch, of p(t | s), plus, for each sentence, a tenth of how
    often t stands in a sentence of the training text. The search computes the logits of these
    tokens alone, which saves much of the time of a small model on a processor.

    What it finds is no longer exact. Greedy search finds the same tokens if all of them are in the
    list. Scores are log-probabilities among the tokens of the list, a little higher than over the
    whole vocabulary, so that a beam may also order its hypotheses otherwise. And a translation can
    depend on the other sentences of its batch.

    Args:
        lexicon: Which target tokens each source token is translated with.
        size: Number of target tokens, M; the special ones are always among them.

    Raises:
        ValueError: If the size is not from 4 to that of the vocabulary, or there is no lexicon.

    Example:
        ```python
        import numpy as np
        from keras_addnorm.decoding import Lexicon, Shortlist
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

        config = Seq2SeqConfig.preset(
            "micro", source_vocabulary_size=8, target_vocabulary_size=12, max_length=8
        )
        pairs = [([5, 6, 2], [8, 9, 2]), ([5, 7, 2], [8, 10, 2])]
        lexicon = Lexicon.estimate(pairs, source_vocabulary_size=8, target_vocabulary_size=12)
        ids, scores = Seq2SeqTransformer(config).generate(
            np.array([[5, 7, 2]]), shortlist=Shortlist(lexicon, size=6)
        )
        assert set(ids[0]) <= {0, 2, 8, 9, 10}
        ```

    Reference:
        Jean et al., "On Using Very Large Target Vocabulary for Neural Machine Translation", 2015,
        section 3.3; L'Hostis et al., "Vocabulary Selection Strategies for Neural Machine
        Translation", 2016.
    """

    lexicon: Lexicon
    size: int

    def __post_init__(self) -> None:
        require_type("A lexicon", self.lexicon, Lexicon)
        vocabulary_size = self.lexicon.frequencies.shape[0]
        if not is_whole(self.size, 4, vocabulary_size):
            raise ArgumentError(
                "A shortlist has the special tokens and others of the vocabulary.",
                f"a size from 4 to {vocabulary_size}",
                "To weigh all tokens, leave the shortlist out.",
                value=self.size,
            )

    @property
    def vocabulary_size(self) -> int:
        """Number of all target tokens, V."""
        return int(self.lexicon.frequencies.shape[0])

    def check(self, config: Any) -> None:
        """Raise unless the lexicon fits a model's vocabularies.

        Args:
            config: The model's config, or the `DecoderInfo` of another decoder.

        Raises:
            ValueError: If it does not.
        """
        require_fit(self.lexicon, config)
        largest = max(config.pad_id, config.start_id, config.end_id)
        if largest >= self.vocabulary_size:
            raise ArgumentError(
                "The special ids are in every shortlist.",
                f"ids of the vocabulary, below {self.vocabulary_size}",
                value=largest,
            )

    def tokens(self, source_ids: Tensor, ids: SpecialIds) -> Tensor:
        """Choose the tokens of a batch, in Keras operations only.

        Args:
            source_ids: `(B, S)`.
            ids: The special ids.

        Returns:
            `(M,)` int32, different from each other; the special ids stand at their `places`.
        """
        lexicon = self.lexicon
        is_token = ops.not_equal(source_ids, ids.pad_id)
        weights = ops.cast(ops.reshape(is_token, (-1, 1)), "float32")
        flat = ops.reshape(source_ids, (-1,))
        counts = ops.segment_sum(
            ops.reshape(ops.take(lexicon.probabilities, flat, axis=0) * weights, (-1,)),
            ops.reshape(ops.take(to_tensor(lexicon.candidates), flat, axis=0), (-1,)),
            num_segments=lexicon.frequencies.shape[0],
        )
        num_sentences = ops.sum(ops.cast(ops.any(is_token, axis=-1), "float32"))
        counts = counts + _SHARE_OF_FREQUENCIES * num_sentences * lexicon.frequencies
        special = self._places(ids)
        token = ops.arange(lexicon.frequencies.shape[0], dtype="int32")
        for each in special:
            counts = ops.where(ops.equal(token, each), -1.0, counts)
        _, others = ops.top_k(counts, self.size - len(special))
        # Special ids first; then each into its place, the others into what is left.
        tokens = ops.concatenate(
            [ops.convert_to_tensor([*special], "int32"), ops.cast(others, "int32")]
        )
        taken = [*special.values()]
        places = [*taken, *(i for i in range(self.size) if i not in taken)]
        return ops.take(tokens, to_tensor(np.argsort(places)))

    def places(self, ids: SpecialIds) -> SpecialIds:
        """Return where the special ids stand in a list: their own places, or the last ones."""
        place = self._places(ids)
        return SpecialIds(place[ids.pad_id], place[ids.start_id], place[ids.end_id])

    def _places(self, ids: SpecialIds) -> dict[int, int]:
        special = sorted({ids.pad_id, ids.start_id, ids.end_id})
        last = iter([i for i in reversed(range(self.size)) if i not in special])
        return {token: token if token < self.size else next(last) for token in special}
