"""Eole's folders: `config.json`, `vocab.json` and tensors in safetensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.fields import (
    ConfigFile,
    Field,
    Settings,
    copied,
    fixed,
    names,
    number_in,
)
from keras_addnorm.interop.families.huggingface import read_settings
from keras_addnorm.interop.families.opennmt_rows import (
    HALVES,
    SEARCH,
    FamilyOfOpenNMT,
    Names,
    have_biases,
    require_lists,
    special_ids,
)
from keras_addnorm.interop.families.rows import WeightTable
from keras_addnorm.interop.families.text_files import require_object
from keras_addnorm.interop.tensor_files import read_safetensors
from keras_addnorm.models import Seq2SeqConfig

_SIDES = ("encoder", "decoder")
_NAMES = Names(
    layers={side: f"{side}.transformer_layers" for side in _SIDES},
    norms={
        "encoder": ("input_layernorm", "post_attention_layernorm"),
        "decoder": ("input_layernorm", "precontext_layernorm", "post_attention_layernorm"),
    },
    activated="mlp.gate_up_proj",
    multiplied="mlp.up_proj",
    output="mlp.down_proj",
    tables={"encoder": "src_emb.embeddings.weight", "decoder": "tgt_emb.embeddings.weight"},
    positions={"encoder": "src_emb.pe", "decoder": "tgt_emb.pe"},
    divides_distances=False,
    # In every decoder; only a kind that is refused multiplies by it.
    unread=(r"decoder\.transformer_layers\.\d+\.layer_scalar",),
)

# Of a training, of alignments, of pictures and sounds, and what the tensors say themselves.
_IGNORED = names(
    """
    eole_version huggingface_model heads_kv position_encoding_type normalize word_vec_size
    freeze_word_vecs_enc freeze_word_vecs_dec input_feed adapter_bias projector_activation_fn
    spatial_merge_size left_pad estimator_type max_position_embeddings interpolate_mode
    coverage_attn lambda_coverage global_attention global_attention_function aan_useffn
    alignment_layer alignment_heads full_context_alignment lambda_align mtp_lambda
    add_qkvbias add_key_bias add_final_linear_bias add_ffnbias generator_bias
    moe_transformer_ff num_experts_per_tok first_k_dense_replace num_shared_experts
    shared_expert_gate moe_softmax_after moe_renormalize shared_layer_norm qk_norm_post_rope
    linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim linear_num_key_heads
    linear_num_value_heads token_type_vocab_size mtp_emb_norm n_positions with_cross_attn
    position_encoding encoder.src_word_vec_size decoder.tgt_word_vec_size
    """
)

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu-tanh": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "silu": "silu",
    "gated-gelu": "geglu",
    "gated-gelu-tanh": "geglu_tanh",
    "gated-silu": "swiglu",
}
_NORMS = {"standard": "layer_norm", "standardFP32": "layer_norm", "rms": "rms_norm"}
# What changes rotary positions besides their base, and the value that does not.
_SCALINGS = {
    "scaling_type": None,
    "alpha": None,
    "xdrope_section": None,
    "interleave_local": 0,
    "tmax_index": 0,
    "rotary_dim_global": 0,
    "partial_rotary_factor": 0.0,
    "multidimensional_rope": False,
}


def _rotary(settings: Settings, count: int) -> dict[str, Any]:
    return {"name": "rotary", "base": float(number_in(settings, "rotary_theta", 10000))}


# Our positions, of the settings of rotary ones and the number of positions.
_POSITIONS: Mapping[str, Callable[[Settings, int], Any]] = {
    "SinusoidalInterleaved": lambda *_: "sinusoidal",
    "SinusoidalConcat": lambda *_: dict(HALVES),
    "Learned": lambda *_: "learned",
    "Rotary": _rotary,
    "Relative": lambda _, count: {"name": "shaw", "max_distance": count},
    "Alibi": lambda *_: "alibi",
    "None": lambda *_: "none",
}


def _both(
    name: str, default: Any, ours: str, values: Mapping[Any, Any] | None = None
) -> tuple[Field, ...]:
    """Return the fields of both sides, which have to agree."""
    return tuple(Field(f"{side}.{name}", default, (ours,), values) for side in _SIDES)


def _both_fixed(name: str, value: Any) -> tuple[Field, ...]:
    return tuple(fixed(f"{side}.{name}", value) for side in _SIDES)


_CONFIG_FILE = ConfigFile(
    "Eole",
    (
        fixed("architecture", "custom", "transformer"),
        Field("encoder.encoder_type", "rnn", (), {"transformer": "transformer"}),
        Field("decoder.decoder_type", "rnn", (), {"transformer": "transformer"}),
        copied("encoder.layers", 2, "num_encoder_layers"),
        copied("decoder.layers", 2, "num_decoder_layers"),
        *_both("hidden_size", 512, "hidden_dim"),
        copied("embeddings.src_word_vec_size", 512, "hidden_dim"),
        copied("embeddings.tgt_word_vec_size", 512, "hidden_dim"),
        *_both("transformer_ff", 2048, "intermediate_dim"),
        *_both("heads", 8, "num_heads"),
        *_both("head_dim", None, "head_dim"),
        *_both("layer_norm", "standard", "norm", _NORMS),
        *_both("norm_eps", 1e-5, "epsilon"),
        *_both("mlp_activation_fn", "relu", "activation", _ACTIVATIONS),
        *_both("attention", None, "attention"),
        *_both("positions", "none", "positions"),
        *_both_fixed("rotary_dim", "that of a head"),
        *_both_fixed("rope_config", "plain"),
        *_both_fixed("sliding_window", 0),
        *_both_fixed("relative_positions_buckets", 0),
        *_both_fixed("ffn_layernorm", False),
        *_both_fixed("query_norm", False),
        *_both_fixed("key_norm", False),
        *_both_fixed("value_norm", False),
        *_both_fixed("q_gating", False),
        *_both_fixed("attn_scaling", None),
        *_both_fixed("parallel_residual", False),
        *_both_fixed("num_experts", 0),
        fixed("encoder.encoder_layer_style", "standard"),
        fixed("encoder.final_encoder_layer_norm", True),
        fixed("decoder.LM_type", "causal"),
        fixed("decoder.layer_types", None),
        fixed("decoder.global_head_dim", None),
        fixed("decoder.global_heads_kv", None),
        fixed("decoder.num_mtp_heads", 0),
        fixed("embeddings.embedding_type", "standard"),
        fixed("embeddings.embedding_layer_norm", False),
        fixed("embeddings.position_shift", 0),
        copied("scale", None, "embedding_scale"),
        copied("share_embeddings", False, "share_embeddings"),
        copied("share_decoder_embeddings", False, "tie_embeddings"),
        fixed("generator_function", "softmax"),
        fixed("add_estimator", False),
        # Made of the vocabularies and of the tensors.
        copied("use_bias", True, "use_bias"),
        copied("logits_bias", True, "logits_bias"),
        copied("learned_positions", 250, "max_length"),
        copied("source_vocabulary", 0, "source_vocabulary_size"),
        copied("target_vocabulary", 0, "target_vocabulary_size"),
        copied("pad_id", 0, "pad_id"),
        copied("start_id", 1, "start_id"),
        copied("end_id", 2, "end_id"),
    ),
    {"scheme": "pre_ln"},
)


@dataclasses.dataclass(frozen=True)
class Eole(FamilyOfOpenNMT):
    """An encoder-decoder Transformer that Eole, which goes on from OpenNMT-py, wrote.

    Args:
        source_sentencepiece: The file of the SentencePiece model that sources were split with,
            in the folder, whose settings need not name it; `None` for weights alone.
        target_sentencepiece: That of the targets; `None` for the same.

    Reference:
        https://github.com/eole-nlp/eole
    """

    read_only = "Eole's folders"
    settings_files = ("config.json", "vocab.json")

    def open(self, path: Path) -> Checkpoint:
        """Find `config.json`, `vocab.json` and the files of tensors."""
        settings = read_settings(path)
        files = sorted(path.glob("model.*.safetensors"))
        if "model" not in settings or not files:
            raise ArgumentError(
                f"'{path}' is no folder of Eole.",
                "a config.json with a 'model', and files model.00.safetensors and so on",
                received=f"{', '.join(sorted(settings)) or '{}'}, and {len(files)} files of "
                "tensors",
            )
        tensors = {name: each for file in files for name, each in read_safetensors(file).items()}
        vocabularies = require_lists(read_settings(path, "vocab.json"), f"'{path / 'vocab.json'}'")
        model = require_object(settings["model"], f"'model' in '{path / 'config.json'}'")
        return Checkpoint(path, {**SEARCH, "model": model, "vocab": vocabularies}, tensors)

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the settings of the folder."""
        model, tensors = checkpoint.settings["model"], checkpoint.tensors
        vocabularies = checkpoint.settings["vocab"]
        found = {
            **_flat(model),
            **_positions(model),
            **special_ids(vocabularies),
            "source_vocabulary": len(vocabularies["src"]),
            "target_vocabulary": len(vocabularies["tgt"]),
            "use_bias": have_biases(tensors),
            "logits_bias": model.get("generator_bias", True),
        }
        return _CONFIG_FILE.read(found, self.ignored)

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors, with rotary positions that pair channels as ours do."""
        return _NAMES.weight_table(config, ())

    def weights_of(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors, with rotary positions as the checkpoint pairs the channels."""
        model = checkpoint.settings["model"]
        rotary = {side: _value(model, side, "rope_config", {}) for side in _SIDES}
        return _NAMES.weight_table(
            config, tuple(s for s in _SIDES if rotary[s].get("rotary_interleave", True))
        )


def _value(model: Settings, part: str, name: str, default: Any = None) -> Any:
    """Return a setting of a part of the model, which the whole model may say as well."""
    found = (model.get(part) or {}).get(name, model.get(name))
    return default if found is None else found


def _flat(model: Settings) -> dict[str, Any]:
    """Return the settings by the names of the fields: `"encoder.heads"`, `"share_embeddings"`."""
    known = {field.name for field in _CONFIG_FILE.fields}
    parts = {part: model.get(part) or {} for part in ("embeddings", *_SIDES)}
    found: dict[str, Any] = {}
    for name, value in model.items():
        places = [f"{part}.{name}" for part in parts if f"{part}.{name}" in known]
        if name not in parts:
            found |= dict.fromkeys(places or (name,), value)
    width = _value(model, "embeddings", "word_vec_size", 0)
    if width > 0:
        found |= dict.fromkeys(
            ("embeddings.src_word_vec_size", "embeddings.tgt_word_vec_size"), width
        )
    for part, settings in parts.items():
        found |= {f"{part}.{name}": value for name, value in settings.items()}
    return {
        name: value
        for name, value in found.items()
        if name not in _IGNORED and name.rpartition(".")[2] not in _IGNORED
    }


def _positions(model: Settings) -> dict[str, Any]:
    """Return what several settings say of positions, scale and heads."""
    found: dict[str, Any] = {}
    # Null is a kind of its own there: no positions at all.
    name, default = "position_encoding_type", "SinusoidalInterleaved"
    kind = str((model.get("embeddings") or {}).get(name, model.get(name, default)))
    is_scaled = _value(model, "embeddings", "normalize", False)
    count = _value(model, "embeddings", "n_positions", 0)
    if kind == "Learned":
        found["learned_positions"] = count
    if kind not in _POSITIONS or (kind == "Learned" and is_scaled):
        found["embeddings.position_encoding_type and normalize"] = f"{kind} and {is_scaled}"
    # The factor of sqrt(D) is one of the sinusoids there.
    if not kind.startswith("Sinusoidal"):
        found["scale"] = None if is_scaled else 1.0
    for side in _SIDES:
        heads = _value(model, side, "heads", 8)
        groups = _value(model, side, "heads_kv", heads)
        found[f"{side}.attention"] = None if groups == heads else {"num_key_value_heads": groups}
        rotary = _value(model, side, "rope_config", {})
        found[f"{side}.positions"] = _POSITIONS.get(kind, lambda *_: "none")(rotary, count)
        width = _value(model, side, "head_dim", _value(model, side, "hidden_size", 512) // heads)
        is_whole = kind != "Rotary" or rotary.get("rotary_dim", 0) in (0, width)
        found[f"{side}.rotary_dim"] = "that of a head" if is_whole else rotary["rotary_dim"]
        scaled = {
            name: value
            for name, value in rotary.items()
            if name in _SCALINGS and value != _SCALINGS[name]
        }
        found[f"{side}.rope_config"] = str(scaled) if scaled and kind == "Rotary" else "plain"
    return found
