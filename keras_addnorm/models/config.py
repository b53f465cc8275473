"""`Seq2SeqConfig`: all choices about a model, in one frozen, serialisable object."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from keras_addnorm import norms
from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.arguments import checked, document
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.suggestions import did_you_mean
from keras_addnorm.basics.text import parse_json
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.attention import divide_heads
from keras_addnorm.layers.block_config import BlockConfig
from keras_addnorm.layers.embedding_side import SideArguments
from keras_addnorm.layers.pruned import require_sublayers
from keras_addnorm.layers.stacks import TransformerDecoder, TransformerEncoder

# Each layer is named, written and drawn: a number without sense would fill the memory.
_MOST_LAYERS = 10_000
_MOST_POSITIONS = 1 << 20

_START_EMBEDDINGS = ("learned", "zeros")

# What docs/add_and_norm.md recommends where nothing speaks for another. The constructor has the
# Post-LN of the paper, as layers by themselves have.
PRESET_SCHEME = "pre_ln"

# What students have in common: Marian's transformers, as the small models of Firefox and Bergamot
# are. One vocabulary, sines and then cosines, no dropout. The encoder is deep, since it runs once
# a sentence; the decoder, which runs once a token, is shallow.
_STUDENT: dict[str, Any] = {
    "scheme": "post_ln",
    "activation": "relu",
    "num_encoder_layers": 6,
    "num_decoder_layers": 2,
    "num_heads": 8,
    "dropout": 0.0,
    "positions": {"name": "sinusoidal", "layout": "halves", "timescales": "half_minus_one"},
    "start_embedding": "zeros",
    "share_embeddings": True,
    "logits_bias": True,
    "self_attention": "ssru",
}
_PRESETS: dict[str, dict[str, Any]] = {
    # For examples and tests: it alone has vocabularies.
    "micro": {
        "source_vocabulary_size": 100,
        "target_vocabulary_size": 100,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "hidden_dim": 32,
        "intermediate_dim": 64,
        "num_heads": 4,
        "max_length": 32,
    },
    "tiny": {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "hidden_dim": 128,
        "intermediate_dim": 256,
        "num_heads": 4,
    },
    "small": {
        "num_encoder_layers": 3,
        "num_decoder_layers": 3,
        "hidden_dim": 256,
        "intermediate_dim": 1024,
        "num_heads": 8,
    },
    "base": {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "hidden_dim": 512,
        "intermediate_dim": 2048,
        "num_heads": 8,
    },
    "big": {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "hidden_dim": 1024,
        "intermediate_dim": 4096,
        "num_heads": 16,
    },
    # For corpora of tens of thousands of pairs.
    "student-micro": {
        **_STUDENT,
        "hidden_dim": 128,
        "intermediate_dim": 512,
        "num_encoder_layers": 4,
        "num_heads": 4,
    },
    "student-tiny": {**_STUDENT, "hidden_dim": 256, "intermediate_dim": 1536},
    "student-base-memory": {
        **_STUDENT,
        "hidden_dim": 384,
        "intermediate_dim": 1536,
        "num_decoder_layers": 4,
    },
    "student-base": {**_STUDENT, "hidden_dim": 512, "intermediate_dim": 2048},
}


@dataclasses.dataclass(frozen=True)
class _Sizes:
    source_vocabulary_size: int
    target_vocabulary_size: int
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    hidden_dim: int = 512


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(BlockConfig, _Sizes):
    """The shape of a `Seq2SeqTransformer`: a `BlockConfig` and what is not in the blocks.

    Values are kept as plain ones, names, numbers and dicts. `dropout` drops from the embeddings
    too. `positions` may be a kind that the embeddings add, `"sinusoidal"` or `"learned"`, with
    fields as a dict: `{"name": "sinusoidal", "layout": "halves", "timescales": "half_minus_one",
    "offset": 2}`; see `keras_addnorm.layers.positions.SinusoidalPositions`.

    Args:
        source_vocabulary_size: Number of source tokens.
        target_vocabulary_size: Number of target tokens, V.
        num_encoder_layers: Depth of the encoder.
        num_decoder_layers: Depth of the decoder.
        hidden_dim: Width of the residual stream, D.
        **block: The fields of `BlockConfig`.
        max_length: Number of learned positions, and the default limit on generated tokens.
        tie_embeddings: Whether the output projection is the transposed target embedding.
        share_embeddings: Whether source and target use one token table (a joint vocabulary).
            Learned positions and an `embedding_norm` are of each side.
        pad_id: The id of padding, in both vocabularies.
        start_id: The id that starts a target. It may be that of padding or of the end: the first
            position of a target is read whatever its id.
        end_id: The id that ends a sequence.
        pruned_sublayers: Sublayers that are left out, `F(x) = 0` in their place, by the names in
            `sublayer_names`; see `keras_addnorm.diagnostics.prune`.
        gradient_checkpointing: Whether training computes the activations of each layer twice
            instead of keeping them. See `TransformerEncoder`.
        logits_bias: Whether logits have a learned bias; `None` for one of an own projection, and
            none of a tied one.
        embedding_scale: Factor on token embeddings; `None` for the square root of D.
        embedding_norm: A norm of the sum of token embedding and position, on each side one; as
            `norm`, a name, a dict or one for each side. `None` for none.
        start_embedding: The vector of the start token in the decoder: `"learned"`, its row of the
            table, or `"zeros"`, as Marian's decoders begin.

    Raises:
        ValueError: If a field does not fit, named with what was expected.
        TypeError: If a field is unknown or missing.

    Example:
    ```python
    from keras_addnorm.models import Seq2SeqConfig

    config = Seq2SeqConfig.preset("micro", scheme="pre_ln")
    assert Seq2SeqConfig.from_json(config.to_json()) == config
    ```
    """

    num_heads: int = 8
    intermediate_dim: int = 2048
    dropout: float = 0.1
    positions: str | dict[str, Any] = "sinusoidal"
    max_length: int = 256
    tie_embeddings: bool = True
    share_embeddings: bool = False
    pad_id: int = 0
    start_id: int = 1
    end_id: int = 2
    pruned_sublayers: tuple[str, ...] = ()
    gradient_checkpointing: bool = False
    logits_bias: bool | None = None
    embedding_scale: float | None = None
    embedding_norm: norms.NormLike | None = None
    start_embedding: str = "learned"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in super().to_dict().items():
            self._set(name, value)
        self._require_positive(*(f.name for f in dataclasses.fields(_Sizes)), "max_length")
        for name, most in (
            ("num_encoder_layers", _MOST_LAYERS),
            ("num_decoder_layers", _MOST_LAYERS),
            ("max_length", _MOST_POSITIONS),
        ):
            if (value := getattr(self, name)) > most:
                raise ArgumentError(f"`{name}` has to be at most {most}.", value=value)
        if self.head_dim is None:
            divide_heads(self.hidden_dim, self.num_heads)
        norms.for_side(self.norm, "decoder")
        position_kinds.check_width(self.positions, self.hidden_dim)
        self._check_embeddings()
        self._set("pruned_sublayers", require_sublayers(self.pruned_sublayers, self.sublayer_names))
        if self.share_embeddings and self.source_vocabulary_size != self.target_vocabulary_size:
            raise ArgumentError(
                "Source and target cannot share an embedding.",
                "one vocabulary size",
                "Use a joint tokenizer, or `share_embeddings=False`.",
                received=f"source {self.source_vocabulary_size}, target "
                f"{self.target_vocabulary_size}",
            )
        special = {"pad_id": self.pad_id, "start_id": self.start_id, "end_id": self.end_id}
        if self.pad_id == self.end_id or not all(
            is_whole(token, 0, self.target_vocabulary_size - 1) for token in special.values()
        ):
            raise ArgumentError(
                "The special ids have to lie in the target vocabulary, and padding cannot be the "
                "end.",
                f"ids in [0, {self.target_vocabulary_size}), `pad_id` other than `end_id`",
                value=special,
            )

    def _check_embeddings(self) -> None:
        """Check the choices of the embeddings, and that their tables have a row of padding."""
        SideArguments(scale=self.embedding_scale)  # checks it
        if self.start_embedding not in _START_EMBEDDINGS:
            raise ArgumentError(
                "Unknown vector of the start token.",
                f"one of {', '.join(map(repr, _START_EMBEDDINGS))}",
                start_embedding=self.start_embedding,
            )
        if self.embedding_norm is not None:
            for side in ("encoder", "decoder"):
                norms.for_side(self.embedding_norm, side)
        if is_whole(self.pad_id) and self.pad_id >= self.source_vocabulary_size:
            raise ArgumentError(
                "Sources are padded, too.",
                f"a `pad_id` in the source vocabulary, below {self.source_vocabulary_size}",
                pad_id=self.pad_id,
            )

    @property
    def special_ids(self) -> SpecialIds:
        """The special ids, and which of them are never generated."""
        return SpecialIds(self.pad_id, self.start_id, self.end_id)

    @property
    def has_logits_bias(self) -> bool:
        """Whether logits have a learned bias."""
        return not self.tie_embeddings if self.logits_bias is None else self.logits_bias

    @property
    def num_positions(self) -> int | None:
        """Number of positions, `max_length`, if they are learned; `None` if there is no end."""
        return self.max_length if position_kinds.is_learned(self.positions) else None

    @property
    def sublayer_names(self) -> tuple[str, ...]:
        """The names of all sublayers, `"encoder/0/self_attention"` and so on, in their order."""
        encoder = TransformerEncoder.sublayer_names(self.num_encoder_layers)
        decoder = TransformerDecoder.sublayer_names(self.num_decoder_layers)
        return (*(f"encoder/{name}" for name in encoder), *(f"decoder/{name}" for name in decoder))

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Seq2SeqConfig:
        """Return a config of a well-known size, with Pre-LN unless it or `scheme` says another.

        Args:
            name: `"micro"`, for examples, `"tiny"`, `"small"`, `"base"` or `"big"`; or a student,
                a small fast model that learns from a big one: `"student-micro"`, `"student-tiny"`,
                `"student-base-memory"` or `"student-base"`. Students have Post-LN and one
                vocabulary for both languages.
            **overrides: Any field. The vocabulary sizes have no default but in `"micro"`.

        Returns:
            The config.

        Raises:
            ValueError: If the preset or a field is unknown.
        """
        if not isinstance(name, str) or name not in _PRESETS:
            raise ArgumentError(
                "There is no such preset.", f"one of {', '.join(_PRESETS)}", value=name
            )
        return cls.from_dict({"scheme": PRESET_SCHEME, **_PRESETS[name], **overrides})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Seq2SeqConfig:
        """Return a config from its fields.

        Args:
            values: Field names and values.

        Returns:
            The config.

        Raises:
            ValueError: If a field is unknown or a vocabulary size is missing.
        """
        if not isinstance(values, dict):
            raise ArgumentError(
                "A config is made of the names and values of its fields.", "a dict", value=values
            )
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(map(str, set(values) - set(fields)))
        required = [n for n, field in fields.items() if field.default is dataclasses.MISSING]
        missing = [name for name in required if name not in values]
        if unknown or missing:
            raise ArgumentError(
                "The fields of the config do not fit. "
                + (f"Unknown: {', '.join(unknown):.400}. " if unknown else "")
                + (f"Missing: {', '.join(missing)}. " if missing else "")
                + f"Expected fields among {', '.join(fields)}.{did_you_mean(unknown, fields)}"
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**super().to_dict(), "pruned_sublayers": list(self.pruned_sublayers)}

    def to_json(self) -> str:
        """Return the fields as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Seq2SeqConfig:
        """Return the config that `to_json` wrote.

        Args:
            text: The fields as JSON.

        Returns:
            The config.

        Raises:
            ValueError: If it is no JSON, or a field does not fit.
        """
        try:
            values = parse_json(text)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                "A config is read from the JSON that to_json wrote.",
                "an object of its fields",
                received=f"{text!r:.80} ({error})",
            ) from error
        return cls.from_dict(values)


document(Seq2SeqConfig, BlockConfig)
