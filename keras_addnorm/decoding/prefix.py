"""What outputs begin with: forced tokens, and what they cost."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.decoding.indexing import take
from keras_addnorm.decoding.log_probabilities import IMPOSSIBLE

Tensor = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Prefix:
    """Tokens that outputs begin with.

    They are part of the output, and of its length. A token that is forced in any case, as the
    target language of a multilingual model is, says nothing about how good an output is, but with
    a length penalty its log-probability changes which one is the best: `is_free` leaves it out.

    Args:
        tokens: Integers, `(B, P)`, padded behind: a row for each sentence; or `(P,)`, the same for
            all. No start, end or padding in between. In traced code a tensor.
        is_free: Whether each token has the log-probability 0, as the `forced_bos_token_id` of
            Hugging Face's `generate`; else the model's own.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.decoding import Prefix
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

    config = Seq2SeqConfig.preset("micro", max_length=1)
    model, source = Seq2SeqTransformer(config), np.array([[5, 6, 2], [7, 2, 0]])
    ids, scores = model.generate(source, target_prefix=Prefix([9], is_free=True))
    assert ids.tolist() == [[9], [9]] and scores.tolist() == [0, 0]
    ```
    """

    tokens: Any
    is_free: bool = False

    @classmethod
    def of(cls, prefix: Any) -> Prefix:
        """Return a prefix as it is, and of tokens alone one that costs what they cost."""
        return prefix if isinstance(prefix, cls) else cls(prefix)

    def rows(self, batch_size: int | Tensor) -> Prefix:
        """Return the prefix with int32 tokens `(B, P)`, of `(P,)` the same for each sentence."""
        tokens = ops.cast(self.tokens, "int32")
        if len(tokens.shape) == 1:
            tokens = ops.broadcast_to(tokens, (batch_size, *tokens.shape))
        return dataclasses.replace(self, tokens=tokens)

    def of_sentences(self, sentences: Tensor) -> Prefix:
        """Return the rows of some sentences, by their places in the batch, `(b,)` int32."""
        return dataclasses.replace(self, tokens=take(self.tokens, sentences))

    def repeated(self, count: int) -> Prefix:
        """Return each row `count` times, side by side."""
        return dataclasses.replace(self, tokens=ops.repeat(self.tokens, count, axis=0))

    def force(self, own: Tensor, log_p: Tensor, index: Tensor, pad_id: int) -> Tensor:
        """Return what a search reads at a step: the prefix's token where there is one.

        Args:
            own: The model's log-probabilities, `(N, V)`, for N rows of tokens.
            log_p: Those of what may come where nothing is forced.
            index: The step.
            pad_id: The padding.

        Returns:
            `(N, V)`.
        """
        length = self.tokens.shape[1]
        token = ops.take(self.tokens, ops.minimum(index, ops.cast(length - 1, "int32")), axis=1)
        is_forced = ops.logical_and(index < length, ops.not_equal(token, pad_id))
        is_token = ops.equal(ops.arange(own.shape[-1], dtype="int32"), ops.expand_dims(token, -1))
        cost = ops.zeros_like(own) if self.is_free else own
        forced = ops.where(is_token, cost, IMPOSSIBLE)
        return ops.where(ops.expand_dims(is_forced, -1), forced, log_p)

    def costs_nothing(self, shape: tuple[int, ...], pad_id: int) -> np.ndarray:
        """Return which tokens of outputs are forced and free.

        Args:
            shape: That of the outputs, `(B, N, T)`.
            pad_id: The padding.

        Returns:
            Booleans that broadcast to the shape.
        """
        is_free = np.zeros((shape[0], 1, shape[-1]), bool)
        if self.is_free:
            tokens = np.asarray(self.tokens)[:, : shape[-1]]
            is_free[:, 0, : tokens.shape[1]] = tokens != pad_id
        return is_free
