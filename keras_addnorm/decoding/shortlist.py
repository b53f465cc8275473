"""A vocabulary shortlist: the target tokens that are likely for a batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.arrays import to_tensor
from keras_addnorm.decoding.argument_checks import require_type
from keras_addnorm.decoding.lexicon import Lexicon
from keras_addnorm.decoding.special_ids import SpecialIds

Tensor = Any

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
            raise ValueError(
                "A shortlist has the special tokens and others of the vocabulary. Expected a size "
                f"from 4 to {vocabulary_size}. Received: {self.size!r}"
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
        received = (self.lexicon.candidates.shape[0], self.lexicon.frequencies.shape[0])
        known = (config.source_vocabulary_size, config.target_vocabulary_size)
        expected = tuple(
            size if size is not None else own for size, own in zip(known, received, strict=True)
        )
        if received != expected:
            raise ValueError(
                "The shortlist does not belong to the model. Expected a lexicon of "
                f"{expected[0]} source and {expected[1]} target tokens. Received: {received[0]} "
                f"and {received[1]}. Estimate it with the tokenizer of the model."
            )
        largest = max(config.pad_id, config.start_id, config.end_id)
        if largest >= self.vocabulary_size:
            raise ValueError(
                "The special ids are in every shortlist. Expected ids of the vocabulary, below "
                f"{self.vocabulary_size}. Received: {largest}"
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
        """Return where the special ids stand in a list: in their own place, if it has that.

        Args:
            ids: The special ids.

        Returns:
            Their places, as different as the ids. Those of ids beyond the size are the last ones.
        """
        place = self._places(ids)
        return SpecialIds(place[ids.pad_id], place[ids.start_id], place[ids.end_id])

    def _places(self, ids: SpecialIds) -> dict[int, int]:
        special = sorted({ids.pad_id, ids.start_id, ids.end_id})
        last = iter([i for i in reversed(range(self.size)) if i not in special])
        return {token: token if token < self.size else next(last) for token in special}


def require_one(shortlist: Shortlist | None, prefix: Any) -> None:
    """Raise a `ValueError` if there are both a shortlist and a prefix, which may hold any token."""
    if shortlist is not None and prefix is not None:
        raise ValueError(
            "A target prefix may hold any token, a shortlist leaves most of them out. Expected one "
            "of the two. Received both: leave `shortlist` out where outputs have to begin so."
        )
