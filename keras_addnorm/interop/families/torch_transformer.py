"""State dictionaries of models around `torch.nn.Transformer`, by a mapping of the user's names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_addnorm import schemes
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.interop.families.bart_like import layers, linear_rows, norm_rows, norm_slot
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.rows import (
    NEVER,
    TRANSPOSED,
    Extra,
    Form,
    OneMore,
    Row,
    WeightTable,
)
from keras_addnorm.interop.tensor_files import StoredTensor, find_tensors, read_tensors
from keras_addnorm.layers.attention_config import AttentionConfig
from keras_addnorm.layers.self_attention import MULTI_HEAD_ATTENTION
from keras_addnorm.models import Seq2SeqConfig

_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.linear1\.weight")


@dataclasses.dataclass(frozen=True)
class TorchTransformer(Family):
    """A model of one's own around `torch.nn.Transformer`.

    The state dictionary says the sizes. What it cannot say, the heads, the activation, the
    positions and the special ids, stands in `model`.

    Args:
        model: Fields of `Seq2SeqConfig`: `num_heads` at least; `scheme` is `"pre_ln"` for
            `norm_first=True`; `embedding_scale` is 1 where the embedding is not multiplied by
            `sqrt(D)`.
        prefix: What the names of the `nn.Transformer` begin with, such as `"transformer."`.
        source_embedding: The name of the source's table.
        target_embedding: The name of the target's table; the source's if there is one for both.
        head: What the names of the last linear layer begin with, without `.weight`; `None` if it
            is the target's table.
        reads_padding: Whether the model was trained without masks, and reads its padding as any
            other token. Then our padding is one more id, behind the vocabulary.
        ignored: Regular expressions of names that nothing is made of, such as a buffer of
            positions.

    Example:
        ```python
        from keras_addnorm.interop import families

        families.get({
            "name": "torch_transformer",
            "model": {"num_heads": 8, "positions": "sinusoidal"},
            "prefix": "transformer.",
            "source_embedding": "embedding.weight",
            "head": "output",
        })
        ```

    Reference:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html
    """

    model: Mapping[str, Any]
    source_embedding: str
    prefix: str = "transformer."
    target_embedding: str | None = None
    head: str | None = None
    reads_padding: bool = False

    def open(self, path: Path) -> Checkpoint:
        """Read the state dictionary of a file, or of a folder's `model.safetensors`."""
        tensors = find_tensors(path) if path.is_dir() else read_tensors(path)
        return Checkpoint(path, {}, tensors)

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the sizes of the tensors and the given fields."""
        return Seq2SeqConfig.from_dict({**self._sizes(checkpoint.tensors), **self.model})

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors."""
        _require_like_torch(config)
        rows = [row for side, index in layers(config) for row in self._layer(config, side, index)]
        for side in ("encoder", "decoder"):
            if schemes.get(config.scheme).needs_final_norm:
                rows += norm_rows(config, f"{side}.final_norm", f"{self.prefix}{side}.norm")
        end: tuple[Form, ...] = (OneMore(),) if self.reads_padding else ()
        if self.target_embedding is None:
            rows.append(Row(("decoder_embedding.embeddings",), self.source_embedding, end))
        else:
            rows.append(Row(("encoder_embedding.embeddings",), self.source_embedding, end))
            rows.append(Row(("decoder_embedding.embeddings",), self.target_embedding, end))
        if self.head is not None:
            kernel = "vocabulary_projection.kernel"
            rows.append(Row((kernel,), f"{self.head}.weight", (*end, TRANSPOSED)))
            if config.has_logits_bias:
                never = (OneMore(NEVER),) if self.reads_padding else ()
                rows.append(Row(("vocabulary_projection.bias",), f"{self.head}.bias", never))
        return WeightTable(tuple(rows), tuple(map(Extra, self.ignored)))

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> None:
        """Return nothing: a state dictionary says nothing of texts."""
        return None

    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> None:
        """Return nothing: a state dictionary has no settings."""
        return None

    def _sizes(self, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
        layers = [
            match
            for name in tensors
            if name.startswith(self.prefix)
            and (match := _LAYER.fullmatch(name.removeprefix(self.prefix)))
        ]
        depth = {
            side: 1 + max((int(m[2]) for m in layers if m[1] == side), default=-1)
            for side in ("encoder", "decoder")
        }
        if not all(depth.values()) or self.source_embedding not in tensors:
            some = ", ".join(list(tensors)[:8])
            raise ArgumentError(
                "The names do not fit the file.",
                f"the tensors '{self.prefix}encoder.layers.0.linear1.weight', the same of the "
                f"decoder, and '{self.source_embedding}'",
                received=f"{some}, ..",
            )
        target = self.target_embedding or self.source_embedding
        first = f"{self.prefix}encoder.layers.0."
        source_size, hidden_dim = tensors[self.source_embedding].shape
        target_size = tensors[target].shape[0] if target in tensors else 0
        if self.reads_padding:
            source_size, target_size = source_size + 1, target_size + 1
        return {
            "source_vocabulary_size": source_size,
            "target_vocabulary_size": target_size,
            **({"pad_id": max(source_size, target_size) - 1} if self.reads_padding else {}),
            "num_encoder_layers": depth["encoder"],
            "num_decoder_layers": depth["decoder"],
            "hidden_dim": hidden_dim,
            "intermediate_dim": tensors[f"{first}linear1.weight"].shape[0],
            "use_bias": f"{first}linear1.bias" in tensors,
            "epsilon": 1e-5,
            # torch's stacks end with a norm, whatever the layers do.
            "scheme": {
                "name": "post_ln",
                "final_norm": f"{self.prefix}encoder.norm.weight" in tensors,
            },
            "tie_embeddings": self.head is None,
            "logits_bias": self.head is not None and f"{self.head}.bias" in tensors,
            "share_embeddings": self.target_embedding is None,
        }

    def _layer(self, config: Seq2SeqConfig, side: str, index: int) -> Iterator[Row]:
        ours, theirs = f"{side}.layers.{index}", f"{self.prefix}{side}.layers.{index}"
        sublayers = [("self_attention", "self_attn")]
        if side == "decoder":
            sublayers.append(("cross_attention", "multihead_attn"))
        for number, (name, their_name) in enumerate(sublayers, start=1):
            attention, stacked = f"{theirs}.{their_name}", ("query", "key", "value")
            kernels = tuple(f"{ours}.{name}.{part}_projection.kernel" for part in stacked)
            yield Row(kernels, f"{attention}.in_proj_weight", (TRANSPOSED,))
            if config.use_bias:
                biases = tuple(f"{ours}.{name}.{part}_projection.bias" for part in stacked)
                yield Row(biases, f"{attention}.in_proj_bias")
            yield from linear_rows(
                config, f"{ours}.{name}.output_projection", f"{attention}.out_proj"
            )
            yield from norm_rows(
                config, f"{ours}.{name}_add_norm.{norm_slot(config)}", f"{theirs}.norm{number}"
            )
        feed_forward = f"{ours}.feed_forward"
        for part, name in (("intermediate", "linear1"), ("output", "linear2")):
            yield from linear_rows(config, f"{feed_forward}.{part}_projection", f"{theirs}.{name}")
        yield from norm_rows(
            config,
            f"{feed_forward}_add_norm.{norm_slot(config)}",
            f"{theirs}.norm{len(sublayers) + 1}",
        )


def _require_like_torch(config: Seq2SeqConfig) -> None:
    """Refuse what has the same weights, or fewer, and computes something else."""
    scheme = schemes.get(config.scheme)
    if not isinstance(scheme, schemes.PostLN | schemes.PreLN):
        raise ArgumentError(
            "torch.nn.Transformer cannot be like this model's scheme.",
            "'post_ln', or 'pre_ln' for norm_first=True",
            "Use keras_addnorm.serving.export_saved_model, which exports every model.",
            value=scheme,
        )
    if config.self_attention != MULTI_HEAD_ATTENTION:
        raise ArgumentError(
            "torch.nn.Transformer cannot be like this model's self_attention.",
            f"{MULTI_HEAD_ATTENTION!r}",
            "Use keras_addnorm.serving.export_saved_model, which exports every model.",
            value=config.self_attention,
        )
    if AttentionConfig.get(config.attention).to_dict().keys() - {"head_diversity"}:
        raise ArgumentError(
            "torch.nn.Transformer cannot be like this model's attention.",
            "None, or a `head_diversity` alone, which acts in training",
            "Use keras_addnorm.serving.export_saved_model, which exports every model.",
            value=config.attention,
        )
    norm = config.norm.get("name") if isinstance(config.norm, dict) else config.norm
    if norm != "layer_norm":
        raise ArgumentError(
            "torch.nn.Transformer cannot be like this model's norm.",
            "'layer_norm'",
            "Use keras_addnorm.serving.export_saved_model, which exports every model.",
            value=config.norm,
        )
