"""The protocol of a decoder that can be searched, its special ids, and what is known of it."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.layers import positions

Tensor = Any


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """The special token ids of a search.

    The start may be the same id as padding (Marian, T5, Pegasus) or as the end (BART, M2M-100).

    Args:
        pad_id: Fills rows after their end; never generated.
        start_id: Read at the first step; never generated unless it is the end, too.
        end_id: Ends a sequence.

    Raises:
        ValueError: If padding is the end, or an id is no int, or negative.
    """

    pad_id: int = 0
    start_id: int = 1
    end_id: int = 2

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not is_whole(value, 0):
                raise ArgumentError(
                    "A special token is named by its id.", f"an int {name} >= 0", value=value
                )
        if self.pad_id == self.end_id:
            raise ArgumentError(
                "Padding, which is never generated, cannot be what ends a sequence.",
                "a `pad_id` other than `end_id`",
                "Name an id as padding that the model never reads.",
                received=f"{self.pad_id} for both",
            )

    @property
    def never_generated(self) -> tuple[int, ...]:
        """The ids that no output holds, rising: padding, and the start unless it is the end."""
        return tuple(sorted({self.pad_id, self.start_id} - {self.end_id}))


@runtime_checkable
class Decoder(Protocol):
    """A model that `decode`, `generate` and all strategies search: any object with three methods.

    It need be no Keras model. Everything is traced, so only Keras operations, or those of the
    backend, can be used. N is the number of rows that are decoded side by side: those of a sentence
    (the hypotheses of a beam) stand next to each other.

    `generate` keeps what it has compiled in the object's `__dict__`. On JAX the variables of a
    compiled search are those of `decoder.variables`, or, without it, of the object's attributes:
    numbers that are neither are constants of the program.

    A `TransformerDecoder` and a `PositionalEmbedding` of this package among the attributes are
    replaced for the search by faster ones with the same weights; if such stacks make all of the
    cache, the hypotheses of a beam share it. `Seq2SeqTransformer` is made so.

    Example:
    ```python
    import keras
    import numpy as np
    from keras_addnorm.decoding import Beam, generate

    class Bigrams:  # Knows which token follows which, and nothing of the source.
        def __init__(self, table):
            self.table = keras.ops.convert_to_tensor(table)  # (V, V) logits

        def encode(self, source_ids):
            return None, None

        def initial_cache(self, memory, batch_size, max_length):
            return ()

        def decode_step(self, token_ids, cache, index, memory_padding_mask=None):
            return keras.ops.take(self.table, token_ids, axis=0), cache

    table = np.zeros((5, 5), "float32")
    table[1, 3], table[3, 4], table[4, 2] = 9.0, 9.0, 9.0  # start (1), 3, 4, end (2)
    ids, scores = generate(Bigrams(table), np.array([[3]]), Beam(2), max_length=4)
    assert ids.tolist() == [[3, 4, 2, 0]]
    ```
    """

    def encode(self, source_ids: Tensor) -> tuple[Any, Tensor | None]:
        """Read the sources, once.

        Args:
            source_ids: `(B, S)` int32, padded.

        Returns:
            The memory, whatever `initial_cache` makes of it: a tensor or a structure of tensors
            whose first axis is B. And its padding mask `(B, S)`, True at real tokens. A
            decoder-only model returns `(None, None)`.
        """

    def initial_cache(self, memory: Any, batch_size: int | Tensor, max_length: int | Tensor) -> Any:
        """Return what the first step reads.

        Args:
            memory: From `encode`, each sentence repeated for each of its rows.
            batch_size: Number of rows, N.
            max_length: Number of positions that are decoded at most.

        Returns:
            Any structure (lists, tuples, dicts) of tensors whose first axis counts rows: when
            hypotheses are reordered, so are they.
        """

    def decode_step(
        self,
        token_ids: Tensor,
        cache: Any,
        index: Tensor,
        memory_padding_mask: Tensor | None,
    ) -> tuple[Tensor, Any]:
        """Decode one position.

        Args:
            token_ids: The tokens at this position, `(N,)` int32; at the first one, the start token.
            cache: From `initial_cache` or the step before.
            index: The position, from 0, a scalar.
            memory_padding_mask: From `encode`, `(N, S)`, or `None`.

        Returns:
            Logits of the next token, `(N, V)`, and the cache, of the structure that it came in.
        """


@dataclasses.dataclass(frozen=True)
class DecoderInfo:
    """What is known of a decoder besides its methods; `None` for what is not.

    Args:
        ids: Its special ids.
        max_length: Number of tokens to generate at most, unless another is asked for.
        num_positions: Number of positions, if it has learned positions.
        source_vocabulary_size: Number of source tokens.
        target_vocabulary_size: Number of target tokens.
        config: Its configuration.
    """

    ids: SpecialIds
    max_length: int | None = None
    num_positions: int | None = None
    source_vocabulary_size: int | None = None
    target_vocabulary_size: int | None = None
    config: Any = None

    @property
    def pad_id(self) -> int:
        """The padding token."""
        return self.ids.pad_id

    @property
    def start_id(self) -> int:
        """The start token."""
        return self.ids.start_id

    @property
    def end_id(self) -> int:
        """The end token."""
        return self.ids.end_id

    @classmethod
    def of(
        cls,
        decoder: Any,
        pad_id: int | None = None,
        start_id: int | None = None,
        end_id: int | None = None,
    ) -> DecoderInfo:
        """Read the `config` of a decoder, if it has one; the ids that are given go before its.

        Without either, padding, start and end are 0, 1 and 2.
        """
        config = getattr(decoder, "config", None)
        given = {"pad_id": pad_id, "start_id": start_id, "end_id": end_id}
        ids: dict[str, Any] = {
            name: getattr(config, name, default) if given[name] is None else given[name]
            for name, default in dataclasses.asdict(SpecialIds()).items()
        }
        is_learned = positions.is_learned(getattr(config, "positions", None))
        max_length = getattr(config, "max_length", None)
        return cls(
            SpecialIds(**ids),
            max_length,
            max_length if is_learned else None,
            getattr(config, "source_vocabulary_size", None),
            getattr(config, "target_vocabulary_size", None),
            config,
        )


def require_decoder(model: Any) -> Any:
    """Return the model, or raise a `TypeError` if it has not the methods of a `Decoder`."""
    methods = ("encode", "initial_cache", "decode_step")
    if isinstance(model, type) or not all(callable(getattr(model, name, None)) for name in methods):
        raise ArgumentTypeError(
            "A search needs a model that decodes step by step.",
            f"a Seq2SeqTransformer, or an object with the methods {', '.join(methods)}",
            value=model,
        )
    return model
