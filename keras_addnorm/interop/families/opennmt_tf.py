"""OpenNMT-tf's checkpoints: variables of TensorFlow, and no word of how they are put together."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_addnorm import schemes
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import TextFormat, TokenizerPair
from keras_addnorm.interop.families.bart_like import layers, norm_slot
from keras_addnorm.interop.families.family import Checkpoint, ReadOnlyFamily
from keras_addnorm.interop.families.rows import (
    FirstRowsUnused,
    Row,
    WeightTable,
)
from keras_addnorm.interop.families.text_files import by_mapping, read_tokens
from keras_addnorm.interop.tensor_files import StoredTensor, read_tensorflow_checkpoint
from keras_addnorm.models import Seq2SeqConfig

_PREFIX = "model/"
_SIDES = ("encoder", "decoder")
_LAYER = re.compile(r"(encoder|decoder)/layers/(\d+)/ffn/layer/inner/kernel")
_TABLES = {
    "encoder": "examples_inputter/features_inputter/embedding",
    "decoder": "examples_inputter/labels_inputter/embedding",
}
_ATTENTION = {
    "query": "linear_queries",
    "key": "linear_keys",
    "value": "linear_values",
    "output": "linear_output",
}
_SINUSOIDAL = {
    "name": "sinusoidal",
    "layout": "halves",
    "timescales": "half_minus_one",
    "offset": 1,
}
# What `--auto_config` gives a Transformer; the start token counts.
_SEARCH = {"num_beams": 4, "length_penalty": 0.0, "max_length": 251}
_UNKNOWN = "<unk>"


@dataclasses.dataclass(frozen=True)
class OpenNMTTF(ReadOnlyFamily):
    """A Transformer that OpenNMT-tf 2 wrote.

    Its checkpoint says the sizes, where the norms stand, which tables are shared, and relative or
    learned positions. The rest is Python code beside it, which is not run: say it in `model`.

    Args:
        model: Fields of `Seq2SeqConfig`: `num_heads` at least; `activation` if it is not
            `"relu"`; `positions="none"` for a model that has none at all.
        source_vocabulary: The file of the source's tokens, in the checkpoint's folder.
        target_vocabulary: That of the target's; `None` for the same.
        source_sentencepiece: The file of the SentencePiece model that sources were split with;
            `None` for weights alone.
        target_sentencepiece: That of the targets; `None` for the same.

    Example:
        ```python
        from keras_addnorm.interop import families

        families.get({"name": "opennmt_tf", "model": {"num_heads": 8}})
        ```

    Reference:
        https://github.com/OpenNMT/OpenNMT-tf
    """

    read_only = "OpenNMT-tf's checkpoints"

    model: Mapping[str, Any]
    source_vocabulary: str | None = None
    target_vocabulary: str | None = None
    source_sentencepiece: str | None = None
    target_sentencepiece: str | None = None

    def open(self, path: Path) -> Checkpoint:
        """Read the variables of the newest checkpoint of a folder, or of that of an `.index`."""
        if path.suffix == ".index":
            path = path.with_suffix("")
        variables = read_tensorflow_checkpoint(path)
        tensors = {
            name.removeprefix(_PREFIX): each
            for name, each in variables.items()
            if name.startswith(_PREFIX)
        }
        return Checkpoint(path, _SEARCH, tensors)

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the variables and the given fields."""
        if "num_heads" not in self.model:
            raise ValueError(
                "A checkpoint of OpenNMT-tf does not say how many heads its attention has. "
                "Expected family={'name': 'opennmt_tf', 'model': {'num_heads': ...}}: 8 in "
                "TransformerBase, 16 in TransformerBig, 2 in TransformerTiny."
            )
        return Seq2SeqConfig.from_dict({**_sizes(checkpoint.tensors), **self.model})

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the variables. Kernels lie as ours do."""
        rows = [row for side, index in layers(config) for row in _layer(config, side, index)]
        for side in _SIDES:
            if schemes.get(config.scheme).needs_final_norm:
                rows += _norm(f"{side}.final_norm", f"{side}/layer_norm")
            if config.num_positions is not None:
                # Positions are counted from 1.
                table = f"{side}/position_encoder/position_embedding"
                ours = f"{side}_embedding.position_encoding.embeddings"
                rows.append(Row((ours,), table, (FirstRowsUnused(1),)))
        # A table that both sides share has the name of the source's alone.
        target = _TABLES["encoder" if config.share_embeddings else "decoder"]
        rows.append(Row(("decoder_embedding.embeddings",), target))
        if not config.share_embeddings:
            rows.append(Row(("encoder_embedding.embeddings",), _TABLES["encoder"]))
        bias = "decoder_embedding.logits_bias"
        if not config.tie_embeddings:
            bias = "vocabulary_projection.bias"
            rows.append(Row(("vocabulary_projection.kernel",), "decoder/output_layer/kernel"))
        if config.has_logits_bias:
            rows.append(Row((bias,), "decoder/output_layer/bias"))
        return WeightTable(tuple(rows))

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair | None:
        """Read the SentencePiece models and the lists of tokens that are named."""
        if self.source_sentencepiece is None or self.source_vocabulary is None:
            return None
        sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
        models = (self.source_sentencepiece, self.target_sentencepiece or self.source_sentencepiece)
        lists = (self.source_vocabulary, self.target_vocabulary or self.source_vocabulary)
        found = []
        for model, name, size in zip(models, lists, sizes, strict=True):
            tokens = read_tokens(checkpoint.folder / name)
            # What is in no list has the id behind it.
            ids = {token: index for index, token in enumerate((*tokens, _UNKNOWN))}
            special = {"pad": "<blank>", "start": "<s>", "end": "</s>", "unknown": _UNKNOWN}
            found.append(by_mapping(checkpoint.folder / model, ids, size, **special))
        source, target = found
        return TokenizerPair(source, target, TextFormat(source_suffix=()))


def _sizes(tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Return what the variables say of a model."""
    layers = [match for name in tensors if (match := _LAYER.fullmatch(name))]
    depth = {side: sum(match[1] == side for match in layers) for side in _SIDES}
    if not all(depth.values()) or _TABLES["encoder"] not in tensors:
        some = ", ".join(list(tensors)[:8]) or "none"
        raise ArgumentError(
            "The variables are not those of a Transformer of OpenNMT-tf 2.",
            f"'{_PREFIX}{_TABLES['encoder']}' and layers of an encoder and a decoder",
            received=f"behind '{_PREFIX}': {some}, ...",
        )
    shares = _TABLES["decoder"] not in tensors
    source = tensors[_TABLES["encoder"]].shape
    target = source if shares else tensors[_TABLES["decoder"]].shape
    is_pre = "encoder/layer_norm/gamma" in tensors
    relative = tensors.get("encoder/layers/0/self_attention/layer/relative_position_keys")
    learned = tensors.get("encoder/position_encoder/position_embedding")
    found: dict[str, Any] = {"positions": dict(_SINUSOIDAL)}
    if relative is not None:
        found["positions"] = {"name": "shaw", "max_distance": relative.shape[0] // 2}
    if learned is not None:
        found |= {"positions": "learned", "max_length": learned.shape[0] - 1}
    return {
        "source_vocabulary_size": source[0],
        "target_vocabulary_size": target[0],
        "num_encoder_layers": depth["encoder"],
        "num_decoder_layers": depth["decoder"],
        "hidden_dim": source[1],
        "intermediate_dim": tensors["encoder/layers/0/ffn/layer/inner/kernel"].shape[1],
        "scheme": "pre_ln" if is_pre else "post_ln",
        "epsilon": 1e-3,  # Keras' own, which it leaves as it is.
        "share_embeddings": shares,
        "tie_embeddings": "decoder/output_layer/kernel" not in tensors,
        "logits_bias": "decoder/output_layer/bias" in tensors,
        "pad_id": 0,
        "start_id": 1,
        "end_id": 2,
        "max_length": 250,
        **found,
    }


def _layer(config: Seq2SeqConfig, side: str, index: int) -> Iterator[Row]:
    ours, theirs = f"{side}.layers.{index}", f"{side}/layers/{index}"
    slot = norm_slot(config)
    place = "input_layer_norm" if slot == "pre_norm" else "output_layer_norm"
    attentions = {"self_attention": "self_attention"}
    if side == "decoder":
        attentions["cross_attention"] = "attention/0"
    for name, their_name in attentions.items():
        for part, their_part in _ATTENTION.items():
            # A model without them has biases in the feed-forward sublayers nevertheless.
            projection = f"{ours}.{name}.{part}_projection"
            linear = f"{theirs}/{their_name}/layer/{their_part}"
            yield Row((f"{projection}.kernel",), f"{linear}/kernel")
            yield Row((f"{projection}.bias",), f"{linear}/bias", is_optional=True)
        yield from _norm(f"{ours}.{name}_add_norm.{slot}", f"{theirs}/{their_name}/{place}")
    if isinstance(config.positions, Mapping) and config.positions["name"] == "shaw":
        for part in ("key", "value"):
            yield Row(
                (f"{ours}.self_attention.positions.{part}_embeddings",),
                f"{theirs}/self_attention/layer/relative_position_{part}s",
            )
    for part, their_part in (("intermediate", "inner"), ("output", "outer")):
        projection, linear = (
            f"{ours}.feed_forward.{part}_projection",
            f"{theirs}/ffn/layer/{their_part}",
        )
        yield Row((f"{projection}.kernel",), f"{linear}/kernel")
        yield Row((f"{projection}.bias",), f"{linear}/bias")
    yield from _norm(f"{ours}.feed_forward_add_norm.{slot}", f"{theirs}/ffn/{place}")


def _norm(ours: str, theirs: str) -> Iterator[Row]:
    for name in ("gamma", "beta"):
        yield Row((f"{ours}.{name}",), f"{theirs}/{name}")
