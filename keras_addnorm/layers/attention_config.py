"""`AttentionConfig`: how attention attends, in one frozen, serialisable object."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

from keras_addnorm import norms
from keras_addnorm.basics.argument_checks import is_number, is_whole
from keras_addnorm.basics.arguments import checked
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.fields import from_fields
from keras_addnorm.layers.head_diversity import HeadDiversity

_LEARNED = "learned"
_MOST_HEADS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Learned:
    """A number that is learned, one for each head.

    Args:
        initial_value: Where it starts; `None` for what it replaces.
    """

    initial_value: float | None = None


LearnedOrFixed: TypeAlias = "float | str | dict[str, Any] | Learned | None"


@checked
@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """Everything about an attention besides its size, its dropout and its initialisers.

    The defaults are the paper's attention. Whatever is written as a float here may be learned as
    well: `"learned"`, or `{"name": "learned", "initial_value": 0.3}`, for one number a head.

    The logits of a head are `scale * q k^T` (plus Shaw's positions), then `soft_cap`, then the
    bias of positions, then the mask, then the softmax with its `sink`.

    Args:
        num_key_value_heads: Number of heads that keys and values have, G, a divisor of
            `num_heads`: `num_heads / G` queries share each. 1 is multi-query attention, `None` is
            as many as there are queries. Caches shrink by the same factor.
        query_key_norm: A normalisation of each query and each key over the width of a head, a name
            or a dict of `keras_addnorm.norms`; it bounds the logits.
        value_norm: A normalisation of each value over the width of a head, likewise; it comes
            before values are cached.
        scale: Factor on the logits; `None` for `1/sqrt(K)`, where a learned one starts too.
        window: Queries see keys that are less than `window` positions away: the last `window` keys
            (themselves included) in causal attention, `2 window - 1` keys otherwise. In
            self-attention only: the positions of a memory have nothing to do with those of its
            readers, so cross-attention leaves the window out.
        soft_cap: Logits become `soft_cap * tanh(logits / soft_cap)`.
        sink: A logit that takes part in the softmax and points to nothing, so that a head may
            attend to nothing at all; a learned one starts at 0.
        head_diversity: A loss, while training, on heads that do the same; a `HeadDiversity`, or
            its fields as a dict.
        value_residual: Whether each layer of a stack but the first attends with
            `(v_1 + v) / 2` in the place of its values `v`, where `v_1` are those of the first
            layer, behind `value_norm` if there is one. In self-attention only.

    Raises:
        ValueError: If a value does not fit, named with what was expected.

    Example:
    ```python
    from keras_addnorm.layers import AttentionConfig, MultiHeadSelfAttention

    config = AttentionConfig(num_key_value_heads=2, query_key_norm="rms_norm", window=128)
    assert AttentionConfig.get(config.to_dict()) == config
    attention = MultiHeadSelfAttention(num_heads=8, attention=config)
    ```

    Reference:
        Ainslie et al., "GQA", 2023 (arXiv 2305.13245); Shazeer, "Fast Transformer Decoding", 2019
        (multi-query); Henry et al., "Query-Key Normalization", 2020; Zhuo et al.,
        "HybridNorm", 2025 (values); Beltagy et al., "Longformer", 2020 (windows); Gemma Team,
        "Gemma 2", 2024 (soft-capping); Xiao et al., "Efficient Streaming Language Models with
        Attention Sinks", 2023, and OpenAI, "gpt-oss", 2025 (a learned sink); Miller, "Attention Is
        Off By One", 2023 (`sink=0.0`); Zhou et al., "Value Residual Learning", 2025
        (arXiv 2410.17897).
    """

    num_key_value_heads: int | None = None
    query_key_norm: norms.NormLike | None = None
    value_norm: norms.NormLike | None = None
    scale: LearnedOrFixed = None
    window: int | None = None
    soft_cap: float | None = None
    sink: LearnedOrFixed = None
    head_diversity: HeadDiversity | dict[str, float] | None = None
    value_residual: bool = False

    def __post_init__(self) -> None:
        for name in ("num_key_value_heads", "window"):
            size = getattr(self, name)
            if size is not None and not is_whole(size, 1, 2**31 - 1):
                raise ArgumentError(
                    f"`{name}` of the attention has to be a positive integer of 32 bits or None.",
                    value=size,
                )
        if self.soft_cap is not None and not is_number(self.soft_cap, above=0):
            raise ArgumentError(
                "`soft_cap` of the attention has to be positive: logits stay between -soft_cap "
                "and `soft_cap`.",
                soft_cap=self.soft_cap,
            )
        for name in ("query_key_norm", "value_norm"):
            _check_norm(name, getattr(self, name))
        for name in ("scale", "sink"):
            object.__setattr__(self, name, _learned_or_fixed(name, getattr(self, name)))
        object.__setattr__(
            self,
            "head_diversity",
            from_fields(HeadDiversity, self.head_diversity, "The head diversity"),
        )

    @classmethod
    def get(cls, identifier: AttentionConfig | dict[str, Any] | None) -> AttentionConfig:
        """Return a config from its fields, or as it is; `None` gives the defaults.

        Args:
            identifier: A config, or a dict with any of its fields.

        Returns:
            The config.

        Raises:
            ValueError: If a field is unknown or does not fit.
        """
        return from_fields(cls, identifier, "The attention") or cls()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, without those that have their default."""
        values = {field: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            field.name: _plain(value) for field, value in values.items() if value != field.default
        }

    def key_value_heads(self, num_heads: int) -> int:
        """Return the number of heads of keys and values, or say which numbers would fit.

        Args:
            num_heads: Number of heads of queries, H.

        Returns:
            G, a divisor of H.

        Raises:
            ValueError: If it does not divide H.
        """
        groups = self.num_key_value_heads or num_heads
        if num_heads % groups:
            divisors = ", ".join(map(str, divisors_of(num_heads)))
            raise ArgumentError(
                "The queries cannot share keys and values evenly.",
                f"`num_key_value_heads` to divide `num_heads={num_heads}`: one of {divisors}",
                value=groups,
            )
        return groups


def divisors_of(number: int) -> list[int]:
    """List the divisors of a number of heads or of a width, as far as anybody would use them."""
    return [n for n in range(1, min(number, _MOST_HEADS) + 1) if number % n == 0]


def _check_norm(name: str, norm: norms.NormLike | None) -> None:
    if norm is not None and norms.mixes_positions(norm):
        raise ArgumentError(
            f"`{name}` of the attention would mix positions, padding and the future among them.",
            "a norm that takes each position by itself",
            value=norm,
        )


def _learned_or_fixed(name: str, value: LearnedOrFixed) -> float | Learned | None:
    if value is None or isinstance(value, Learned):
        return value
    if isinstance(value, str) and value == _LEARNED:
        return Learned()
    if isinstance(value, dict) and {"name"} <= set(value) <= {"name", "initial_value"}:
        start = value.get("initial_value")
        if value["name"] == _LEARNED and (start is None or is_number(start)):
            return Learned(start)
    elif is_number(value):
        return float(value)  # type: ignore[arg-type]
    raise ArgumentError(
        f"`{name}` of the attention does not fit.",
        "None, a number, 'learned', or {'name': 'learned', 'initial_value': ...}",
        value=value,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Learned):
        return {"name": _LEARNED, "initial_value": value.initial_value}
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
