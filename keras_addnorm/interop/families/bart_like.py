"""What Hugging Face's Marian, M2M-100, mBART, BART and Pegasus share: names of fields and tensors.

Reference: the modelling files of `transformers` 5, which repeat one another.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from keras import ops

from keras_addnorm import norms, schemes
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.fields import ConfigFile, Field, Settings, copied, fixed, names
from keras_addnorm.interop.families.generation_settings import FIELDS, SPECIAL_IDS
from keras_addnorm.interop.families.huggingface import HuggingFaceFamily
from keras_addnorm.interop.families.rows import (
    ONE_ROW,
    TRANSPOSED,
    Extra,
    FirstRowsUnused,
    Row,
    WeightTable,
)
from keras_addnorm.interop.tensor_files import StoredTensor
from keras_addnorm.layers import positions
from keras_addnorm.models import Seq2SeqConfig

_BIAS, _HEAD = "final_logits_bias", "lm_head.weight"
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "swish": "silu",
    "silu": "silu",
    "gelu_new": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "tanh": "tanh",
}

# Fields of `PretrainedConfig` and of old converters that change no number of a teacher-forced
# pass; those of searches are read as generation settings.
NOTES = names(
    """
    _name_or_path _num_labels architectures auto_map chunk_size_feed_forward classif_dropout
    classifier_dropout dtype finetuning_task id2label init_std initializer_factor
    initializer_range is_decoder label2id model_type num_hidden_layers num_labels output_attentions
    output_hidden_states output_past prefix problem_type return_dict save_step
    task_specific_params tokenizer_class torch_dtype torchscript transformers_version use_cache
    use_return_dict cross_attention_hidden_size add_cross_attention extra_pos_embeddings
    tie_encoder_decoder pruned_heads encoder_layerdrop decoder_layerdrop
    gradient_checkpointing sep_token_id bos_token_id cls_token_id unk_token_id
    tf_legacy_loss use_bfloat16 attn_implementation experts_implementation loss_type xla_device
    base_model_tp_plan base_model_pp_plan keys_to_ignore_at_inference is_composition
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal
    _experts_implementation _commit_hash _flash_attn_2_enabled
    """
)
SEARCH = FIELDS - SPECIAL_IDS | {"force_bos_token_to_be_generated"}


def config_file(
    family: str,
    constants: Mapping[str, Any],
    *,
    pad: int,
    start: int | None,
    end: int,
    vocabulary_size: int = 50265,
    activation: str = "gelu",
    scale_embedding: bool = False,
    others: tuple[Field, ...] = (),
) -> ConfigFile:
    """Return what the config file of a family says.

    Args:
        family: Its name.
        constants: Our fields that are the same for all its models.
        pad: The default of the padding's id.
        start: The default of the id that a target starts with; `None` if it has to be said.
        end: The default of the end's id.
        vocabulary_size: The default of the vocabulary's size.
        activation: The default of the activation.
        scale_embedding: The default of whether embeddings are scaled.
        others: Fields of this family alone, or in place of those of the same name.

    Returns:
        The description.
    """
    is_pre = constants["scheme"] == "pre_ln"
    is_learned = constants["positions"] == "learned"
    fields = (
        copied("vocab_size", vocabulary_size, "source_vocabulary_size", "target_vocabulary_size"),
        copied("d_model", 1024, "hidden_dim"),
        copied("encoder_layers", 12, "num_encoder_layers"),
        copied("decoder_layers", 12, "num_decoder_layers"),
        copied("encoder_attention_heads", 16, "num_heads"),
        copied("decoder_attention_heads", 16, "num_heads"),
        copied("encoder_ffn_dim", 4096, "intermediate_dim"),
        copied("decoder_ffn_dim", 4096, "intermediate_dim"),
        copied("max_position_embeddings", 1024, "max_length"),
        Field("activation_function", activation, ("activation",), _ACTIVATIONS),
        Field("scale_embedding", scale_embedding, ("embedding_scale",), {True: None, False: 1.0}),
        copied("dropout", 0.1, "dropout"),
        copied("attention_dropout", 0.0, "attention_dropout"),
        copied("activation_dropout", 0.0, "activation_dropout"),
        copied("pad_token_id", pad, "pad_id"),
        copied("decoder_start_token_id", start, "start_id"),
        copied("eos_token_id", end, "end_id"),
        fixed("is_encoder_decoder", True),
        fixed("tie_word_embeddings", True),
        # Old files repeat what is the same for all models of the family.
        fixed("normalize_before", is_pre, is_written=False),
        fixed("add_final_layer_norm", is_pre, is_written=False),
        fixed("normalize_embedding", "embedding_norm" in constants, is_written=False),
        fixed("static_position_embeddings", not is_learned, is_written=False),
        fixed("add_bias_logits", False, is_written=False),
        fixed("do_blenderbot_90_layernorm", False, is_written=False),
    )
    own = {field.name for field in others}
    return ConfigFile(
        family,
        (*(field for field in fields if field.name not in own), *others),
        {"norm": "layer_norm", "epsilon": 1e-5, **constants},
        NOTES | SEARCH,
    )


def weight_table(config: Seq2SeqConfig) -> WeightTable:
    """Return the tensors of a model whose layers bear BART's names."""
    rows = [row for side, index in layers(config) for row in _layer(config, side, index)]
    if schemes.get(config.scheme).needs_final_norm:
        rows += [
            row
            for side in ("encoder", "decoder")
            for row in norm_rows(config, f"{side}.final_norm", f"model.{side}.layer_norm")
        ]
    extras = [Extra(r"model\.(encoder|decoder)\.version")]
    rows += _embeddings(config, extras)
    if config.logits_bias:
        rows.append(Row(("decoder_embedding.logits_bias",), _BIAS, (ONE_ROW,), is_optional=True))
    return WeightTable(tuple(rows), tuple(extras))


@dataclasses.dataclass(frozen=True)
class PositionTable:
    """The sinusoids that files hold, for positions that are counted from `offset`."""

    config: Seq2SeqConfig

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return as many rows as a file has; of another shape if it has none of our width."""
        chosen = self.config.positions
        fields = dict(chosen) if isinstance(chosen, dict) else {}
        offset = fields.pop("offset", 0)
        layer = positions.SinusoidalPositions(
            self.config.hidden_dim,
            **{name: value for name, value in fields.items() if name != "name"},
        )
        count = math.prod(shape) // self.config.hidden_dim
        table = np.array(ops.convert_to_numpy(layer(np.arange(count, dtype="int32"))))
        if 0 < offset <= count:
            # The row of padding, which is one before that of the first position.
            table[offset - 1] = 0
        return table.reshape(shape) if table.size == math.prod(shape) else table


def layers(config: Seq2SeqConfig) -> Iterator[tuple[str, int]]:
    """Return the layers of both stacks: "encoder" or "decoder", and a number from 0."""
    numbers = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    for side, number in numbers.items():
        for index in range(number):
            yield side, index


def norm_rows(config: Seq2SeqConfig, ours: str, theirs: str) -> Iterator[Row]:
    """Return the rows of a norm: gain and, if it has one, offset."""
    weights = norms.get(config.norm)().output_weights
    for name, part in zip(weights, ("weight", "bias"), strict=False):
        yield Row((f"{ours}.{name}",), f"{theirs}.{part}")


def linear_rows(config: Seq2SeqConfig, ours: str, theirs: str) -> Iterator[Row]:
    """Return the rows of a projection: kernel and, if there are biases, bias."""
    yield Row((f"{ours}.kernel",), f"{theirs}.weight", (TRANSPOSED,))
    if config.use_bias:
        yield Row((f"{ours}.bias",), f"{theirs}.bias")


def norm_slot(config: Seq2SeqConfig) -> str:
    """Return the one norm that each Add & Norm of the scheme has."""
    (slot,) = schemes.get(config.scheme).plan(None).norm_slots
    return slot


def _layer(config: Seq2SeqConfig, side: str, index: int) -> Iterator[Row]:
    ours, theirs = f"{side}.layers.{index}", f"model.{side}.layers.{index}"
    sublayers = [("self_attention", "self_attn")]
    if side == "decoder":
        sublayers.append(("cross_attention", "encoder_attn"))
    for name, their_name in sublayers:
        for part, their_part in (
            ("query", "q_proj"),
            ("key", "k_proj"),
            ("value", "v_proj"),
            ("output", "out_proj"),
        ):
            yield from linear_rows(
                config, f"{ours}.{name}.{part}_projection", f"{theirs}.{their_name}.{their_part}"
            )
        yield from norm_rows(
            config,
            f"{ours}.{name}_add_norm.{norm_slot(config)}",
            f"{theirs}.{their_name}_layer_norm",
        )
    feed_forward = f"{ours}.feed_forward"
    yield from linear_rows(config, f"{feed_forward}.intermediate_projection", f"{theirs}.fc1")
    yield from linear_rows(config, f"{feed_forward}.output_projection", f"{theirs}.fc2")
    yield from norm_rows(
        config, f"{feed_forward}_add_norm.{norm_slot(config)}", f"{theirs}.final_layer_norm"
    )


def _embeddings(config: Seq2SeqConfig, extras: list[Extra]) -> Iterator[Row]:
    """Return the rows of tables, positions and norms of the embeddings; add what may be besides."""
    shared = "model.shared.weight"
    own = {side: f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
    if config.share_embeddings:
        yield Row(("decoder_embedding.embeddings",), shared)
        extras += [Extra(re.escape(name), same_as=shared) for name in own.values()]
        extras.append(Extra(r"lm_head\.weight", same_as=shared))
    else:
        for side, name in own.items():
            yield Row((f"{side}_embedding.embeddings",), name)
        extras.append(Extra(r"lm_head\.weight", same_as=own["decoder"]))
        extras.append(Extra(re.escape(shared), same_as=own["encoder"]))
    for side in own:
        if config.positions == "learned":
            yield Row(
                (f"{side}_embedding.position_encoding.embeddings",),
                f"model.{side}.embed_positions.weight",
                (FirstRowsUnused(2),),
            )
        else:
            name = rf"model\.{side}\.embed_positions\.weights?"
            extras.append(Extra(name, value=PositionTable(config)))
        if config.embedding_norm is not None:
            yield from norm_rows(
                config, f"{side}_embedding.embedding_norm", f"model.{side}.layernorm_embedding"
            )


@dataclasses.dataclass(frozen=True)
class NamesOfBart(HuggingFaceFamily):
    """A family whose tensors bear BART's names, and whose files have always said the same."""

    prefix = "model."

    trains_bias: ClassVar[bool] = False
    """Whether the bias of the logits is trained; otherwise it is zero where a file lacks it."""

    def require_head(self, checkpoint: Checkpoint) -> None:
        """Refuse a file without a trained bias; the head itself is tied."""
        if self.trains_bias and _BIAS not in checkpoint.tensors:
            raise ValueError(
                f"'{checkpoint.path}' holds a model without its head, such as a MarianModel: the "
                f"bias of the logits is not there, and is trained in this family. Expected a "
                f"tensor '{_BIAS}'. Save the whole model, a {self.architecture}."
            )

    def newest(self, settings: Settings, tensors: Mapping[str, StoredTensor]) -> Settings:
        """Say that the head is the table, where a file has both: they are compared when read."""
        if settings.get("tie_word_embeddings") is False and _HEAD in tensors:
            return {**settings, "tie_word_embeddings": True}
        return settings

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors."""
        return weight_table(config)
