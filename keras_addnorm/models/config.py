"""`Seq2SeqConfig`: everything that shapes a model, in one frozen, serialisable object."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from keras_addnorm import norms, schemes
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.attention import divide_heads
from keras_addnorm.layers.attention_config import AttentionConfig
from keras_addnorm.layers.feed_forward import get_activation
from keras_addnorm.layers.pruned import require_sublayers
from keras_addnorm.layers.stacks import TransformerDecoder, TransformerEncoder

_PRESETS: dict[str, dict[str, Any]] = {
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
}

_POSITIVE = (
    "source_vocabulary_size",
    "target_vocabulary_size",
    "num_encoder_layers",
    "num_decoder_layers",
    "hidden_dim",
    "intermediate_dim",
    "num_heads",
    "max_length",
)


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
    """The shape of a `Seq2SeqTransformer`.

    Args:
        source_vocabulary_size: Number of source tokens.
        target_vocabulary_size: Number of target tokens, V.
        num_encoder_layers: Depth of the encoder.
        num_decoder_layers: Depth of the decoder.
        hidden_dim: Width of the residual stream, D.
        intermediate_dim: Width inside the feed-forward sublayers, F.
        num_heads: Number of attention heads, H; has to divide `hidden_dim`.
        dropout: Share dropped from embeddings and from each sublayer's output.
        attention_dropout: Share of the attention weights that is dropped.
        activation_dropout: Share of the feed-forward activations that is dropped.
        activation: The feed-forward activation; see `keras_addnorm.layers.FeedForward`.
        scheme: The residual scheme, a name, a dict or an object (kept as its dict); see
            `keras_addnorm.schemes.get`.
        norm: The normalisation, a name, a dict with a name and the norm's fields, or one of these
            for each side: `{"encoder": "batch_norm", "decoder": "layer_norm"}`; see
            `keras_addnorm.norms.get`.
        epsilon: The norms' epsilon.
        positions: How the model knows the order of tokens: `"sinusoidal"` or `"learned"`, added to
            the embeddings; `"rotary"`, `"alibi"`, `"t5"` or `"shaw"`, in self-attention; or
            `"none"`. Or a dict with a name and the kind's own fields; see
            `keras_addnorm.layers.positions`.
        max_length: Number of learned positions, and the default limit on generated tokens.
        tie_embeddings: Whether the output projection is the transposed target embedding.
        share_embeddings: Whether source and target use one embedding (a joint vocabulary).
        pad_id: The id of padding.
        start_id: The id that starts a target.
        end_id: The id that ends a sequence.
        attention: How all attentions attend, an `AttentionConfig` or its fields as a dict (kept as
            a dict); `None` for the paper's attention.
        pruned_sublayers: Sublayers that are left out, `F(x) = 0` in their place, by the names in
            `sublayer_names`; see `keras_addnorm.diagnostics.prune`.
        drop_path: Share of the examples that go without the last layer's sublayers while training
            (stochastic depth); earlier layers drop fewer. See `TransformerEncoder`.
        gradient_checkpointing: Whether training computes the inside of each layer twice instead of
            keeping it. See `TransformerEncoder`.

    Raises:
        ValueError: If a field does not fit, named with what was expected.

    Example:
    ```python
    from keras_addnorm.models import Seq2SeqConfig

    config = Seq2SeqConfig.preset(
        "tiny", source_vocabulary_size=8000, target_vocabulary_size=8000, scheme="pre_ln"
    )
    assert Seq2SeqConfig.from_json(config.to_json()) == config
    ```
    """

    source_vocabulary_size: int
    target_vocabulary_size: int
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    hidden_dim: int = 512
    intermediate_dim: int = 2048
    num_heads: int = 8
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str = "relu"
    scheme: str | dict[str, Any] | schemes.ResidualScheme = "post_ln"
    norm: norms.NormLike = "layer_norm"
    epsilon: float = 1e-6
    positions: str | dict[str, Any] = "sinusoidal"
    max_length: int = 256
    tie_embeddings: bool = True
    share_embeddings: bool = False
    pad_id: int = 0
    start_id: int = 1
    end_id: int = 2
    attention: AttentionConfig | dict[str, Any] | None = None
    pruned_sublayers: tuple[str, ...] = ()
    drop_path: float = 0.0
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"`{name}` has to be a positive integer. Received: {size!r}")
        for name in ("dropout", "attention_dropout", "activation_dropout", "drop_path"):
            rate = getattr(self, name)
            if not 0 <= rate < 1:
                raise ValueError(
                    f"`{name}` is a share. Expected 0 <= share < 1. Received: {rate!r}"
                )
        divide_heads(self.hidden_dim, self.num_heads)
        # An object becomes its dict, so that the config stays plain values.
        if isinstance(self.scheme, schemes.ResidualScheme):
            object.__setattr__(self, "scheme", schemes.serialize(self.scheme))
        schemes.get(self.scheme)
        norms.for_side(self.norm, "encoder")
        norms.for_side(self.norm, "decoder")
        if self.attention is not None:
            attention = AttentionConfig.get(self.attention)
            attention.key_value_heads(self.num_heads)
            object.__setattr__(self, "attention", attention.to_dict())
        position_kinds.relative(self.positions)
        if isinstance(self.positions, dict) and len(self.positions) == 1:
            # One way to write a choice without fields.
            object.__setattr__(self, "positions", self.positions["name"])
        get_activation(self.activation)
        pruned = require_sublayers(self.pruned_sublayers, self.sublayer_names)
        object.__setattr__(self, "pruned_sublayers", pruned)
        if self.share_embeddings and self.source_vocabulary_size != self.target_vocabulary_size:
            raise ValueError(
                "Source and target cannot share an embedding. Expected one vocabulary size. "
                f"Received: source {self.source_vocabulary_size}, target "
                f"{self.target_vocabulary_size}. Use a joint tokenizer, or share_embeddings=False."
            )
        special = {"pad_id": self.pad_id, "start_id": self.start_id, "end_id": self.end_id}
        if len(set(special.values())) < len(special) or not all(
            0 <= token < self.target_vocabulary_size for token in special.values()
        ):
            raise ValueError(
                "The special ids have to be different and lie in the target vocabulary. Expected "
                f"three different ids in [0, {self.target_vocabulary_size}). Received: {special}"
            )

    @property
    def sublayer_names(self) -> tuple[str, ...]:
        """The names of all sublayers, `"encoder/0/self_attention"` and so on, in their order."""
        encoder = TransformerEncoder.sublayer_names(self.num_encoder_layers)
        decoder = TransformerDecoder.sublayer_names(self.num_decoder_layers)
        return (*(f"encoder/{name}" for name in encoder), *(f"decoder/{name}" for name in decoder))

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Seq2SeqConfig:
        """Return a config of a well-known size.

        Args:
            name: `"tiny"`, `"small"`, `"base"` or `"big"`.
            **overrides: Any field; the vocabulary sizes have no default.

        Returns:
            The config.

        Raises:
            ValueError: If the preset or a field is unknown.
        """
        if name not in _PRESETS:
            raise ValueError(
                f"There is no such preset. Expected one of {', '.join(_PRESETS)}. "
                f"Received: {name!r}"
            )
        return cls.from_dict({**_PRESETS[name], **overrides})

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
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - set(fields))
        required = [n for n, field in fields.items() if field.default is dataclasses.MISSING]
        missing = [name for name in required if name not in values]
        if unknown or missing:
            raise ValueError(
                "The fields of the config do not fit. "
                + (f"Unknown: {', '.join(unknown)}. " if unknown else "")
                + (f"Missing: {', '.join(missing)}. " if missing else "")
                + f"Expected fields among {', '.join(fields)}."
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**dataclasses.asdict(self), "pruned_sublayers": list(self.pruned_sublayers)}

    def to_json(self) -> str:
        """Return the fields as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Seq2SeqConfig:
        """Return the config that `to_json` wrote.

        Args:
            text: JSON text.

        Returns:
            The config.
        """
        return cls.from_dict(json.loads(text))
