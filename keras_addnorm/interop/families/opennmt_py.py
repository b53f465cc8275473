"""OpenNMT-py's checkpoints: a `.pt` with the training's options and the vocabularies in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.fields import (
    ConfigFile,
    Field,
    Settings,
    copied,
    fixed,
    number_in,
)
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
from keras_addnorm.interop.families.text_files import only_file, require_object
from keras_addnorm.interop.tensor_files import (
    Options,
    StoredTensor,
    read_safetensors,
    read_torch,
    tensors_in,
)
from keras_addnorm.models import Seq2SeqConfig

_ROTARY, _ALIBI = -1, -2
_EMBEDDING = "embeddings.make_embedding"

_NAMES = Names(
    layers={"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"},
    norms={
        "encoder": ("layer_norm", "feed_forward.layer_norm"),
        "decoder": ("layer_norm_1", "layer_norm_2", "feed_forward.layer_norm"),
    },
    activated="feed_forward.w_1",
    multiplied="feed_forward.w_3",
    output="feed_forward.w_2",
    tables={side: f"{side}.{_EMBEDDING}.emb_luts.0.weight" for side in ("encoder", "decoder")},
    positions={side: f"{side}.{_EMBEDDING}.pe" for side in ("encoder", "decoder")},
)

# The options of a model; those of recurrent and convolutional ones change nothing here.
_CONFIG_FILE = ConfigFile(
    "OpenNMT-py",
    (
        fixed("model_task", "seq2seq"),
        fixed("model_type", "text"),
        Field("encoder_type", "rnn", (), {"transformer": "transformer"}),
        Field("decoder_type", "rnn", (), {"transformer": "transformer"}),
        fixed("self_attn_type", "scaled-dot-flash", "scaled-dot"),
        copied("enc_layers", 2, "num_encoder_layers"),
        copied("dec_layers", 2, "num_decoder_layers"),
        copied("enc_hid_size", 500, "hidden_dim"),
        copied("dec_hid_size", 500, "hidden_dim"),
        copied("src_word_vec_size", 500, "hidden_dim"),
        copied("tgt_word_vec_size", 500, "hidden_dim"),
        copied("transformer_ff", 2048, "intermediate_dim"),
        copied("heads", 8, "num_heads"),
        Field("layer_norm", "standard", ("norm",), {"standard": "layer_norm", "rms": "rms_norm"}),
        copied("norm_eps", 1e-6, "epsilon"),
        Field(
            "pos_ffn_activation_fn",
            "relu",
            ("activation",),
            {"relu": "relu", "gelu": "gelu", "silu": "swiglu", "gated-gelu": "geglu"},
        ),
        copied("share_embeddings", False, "share_embeddings"),
        copied("share_decoder_embeddings", False, "tie_embeddings"),
        fixed("generator_function", "softmax"),
        fixed("copy_attn", False),
        fixed("parallel_residual", False),
        fixed("sliding_window", 0),
        fixed("num_experts", 0),
        fixed("relative_positions_buckets", 0),
        fixed("lora_embedding", False),
        # Made of several options, of the vocabularies and of the tensors.
        fixed("lora_layers", "none"),
        fixed("quant_layers", "none"),
        fixed("src_feats", "none"),
        fixed("rotary_dim", "that of a head"),
        copied("positions", "none", "positions"),
        copied("scale", None, "embedding_scale"),
        copied("attention", None, "attention"),
        copied("use_bias", True, "use_bias"),
        copied("source_vocabulary", 0, "source_vocabulary_size"),
        copied("target_vocabulary", 0, "target_vocabulary_size"),
        copied("pad_id", 0, "pad_id"),
        copied("start_id", 1, "start_id"),
        copied("end_id", 2, "end_id"),
        copied("dropout", 0.1, "dropout", "activation_dropout"),
        copied("attention_dropout", 0.1, "attention_dropout"),
    ),
    {"scheme": "pre_ln", "logits_bias": True, "max_length": 250},
)


@dataclasses.dataclass(frozen=True)
class OpenNMTPy(FamilyOfOpenNMT):
    """A Transformer that OpenNMT-py 3 wrote, in one `.pt` or with its tensors in safetensors.

    Args:
        source_sentencepiece: The file of the SentencePiece model that sources were split with,
            beside the checkpoint, which does not name it; `None` for weights alone.
        target_sentencepiece: That of the targets; `None` for the same.

    Reference:
        Klein et al., "OpenNMT: Open-Source Toolkit for Neural Machine Translation", 2017.
    """

    read_only = "OpenNMT-py's checkpoints"

    def open(self, path: Path) -> Checkpoint:
        """Read options, vocabularies and tensors."""
        if path.is_dir():
            path = only_file(path, ".pt")
        tree = read_torch(path)
        parts = ("opt", "vocab")
        if not isinstance(tree, Mapping) or any(part not in tree for part in parts):
            raise ValueError(
                f"'{path}' is no checkpoint of OpenNMT-py. Expected a dict with 'opt', 'vocab', "
                "'model' and 'generator'."
            )
        opt = tree["opt"]
        options = (
            vars(opt) if isinstance(opt, Options) else require_object(opt, f"'opt' of '{path}'")
        )
        vocabularies = require_lists(tree["vocab"], f"'vocab' of '{path}'")
        settings = {**options, "vocab": vocabularies, **SEARCH}
        return Checkpoint(path, settings, _tensors(path, tree))

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the options that a model depends on."""
        known = {field.name for field in _CONFIG_FILE.fields}
        options = _updated(checkpoint.settings)
        settings = {name: each for name, each in options.items() if name in known}
        return _CONFIG_FILE.read(
            {**settings, **_derived(options, checkpoint.tensors)}, self.ignored
        )

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors, with rotary positions that pair channels as ours do."""
        return _NAMES.weight_table(config, ())

    def weights_of(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors, with rotary positions as the checkpoint pairs the channels."""
        turns_pairs = checkpoint.settings.get("rotary_interleave", True)
        return _NAMES.weight_table(config, ("encoder", "decoder") if turns_pairs else ())


def _tensors(path: Path, tree: Mapping[str, Any]) -> dict[str, StoredTensor]:
    """Return the tensors in a checkpoint, or in the safetensors files beside it."""
    if "model" not in tree:
        stem = path.with_suffix("").name
        files = sorted(
            each
            for each in path.parent.glob("*.safetensors")
            if each.name == f"{stem}.safetensors" or each.name.startswith(f"{stem}.")
        )
        if not files:
            raise FileNotFoundError(
                f"'{path}' holds no tensors. Expected '{stem}.safetensors', or several files of "
                "that name with numbers, beside it."
            )
        return {name: each for file in files for name, each in read_safetensors(file).items()}
    generator = tensors_in(tree.get("generator") or {})
    # In version 2 it was a sequence of two layers.
    named = {f"generator.{name.removeprefix('0.')}": each for name, each in generator.items()}
    return {**tensors_in(tree["model"]), **named}


def _updated(options: Settings) -> dict[str, Any]:
    """Return the options with those that stand for several others spelt out."""
    found = dict(options)
    for name, others in (
        ("layers", ("enc_layers", "dec_layers")),
        ("hidden_size", ("enc_hid_size", "dec_hid_size")),
        ("word_vec_size", ("src_word_vec_size", "tgt_word_vec_size")),
    ):
        if found.get(name, -1) > 0:
            found |= dict.fromkeys(others, found[name])
    return found


def _derived(options: Settings, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Return what several options, the vocabularies or the tensors say together."""
    vocabularies = options["vocab"]
    found: dict[str, Any] = {
        name: "some" if options.get(name) else "none" for name in ("lora_layers", "quant_layers")
    }
    found["rotary_dim"] = "that of a head"
    found["src_feats"] = "some" if vocabularies.get("src_feats") else "none"
    found["source_vocabulary"] = len(vocabularies["src"])
    found["target_vocabulary"] = len(vocabularies["tgt"])
    found |= special_ids(vocabularies)
    found["use_bias"] = have_biases(tensors)
    groups = options.get("num_kv", 0) or int(options.get("multiquery", False))
    if groups and groups != options.get("heads", 8):
        found["attention"] = {"num_key_value_heads": groups}
    for name in ("dropout", "attention_dropout"):
        share = options.get(name, 0.1)
        found[name] = share[0] if isinstance(share, list) else share
    return {**found, **_positions(options)}


def _positions(options: Settings) -> dict[str, Any]:
    is_added = options.get("position_encoding", False)
    relative = options.get("max_relative_positions", 0)
    if is_added and relative:
        return {"position_encoding and max_relative_positions": f"True and {relative}"}
    if is_added:
        kind = options.get("position_encoding_type", "SinusoidalInterleaved")
        kinds = {"SinusoidalInterleaved": "sinusoidal", "SinusoidalConcat": dict(HALVES)}
        if kind not in kinds:
            return {"position_encoding_type": kind}
        return {"positions": kinds[kind]}
    # The factor of sqrt(D) is one of the absolute positions there.
    found: dict[str, Any] = {"scale": 1.0}
    if relative == _ROTARY:
        found["positions"] = {
            "name": "rotary",
            "base": float(number_in(options, "rotary_theta", 10000)),
        }
        width = options.get("rotary_dim", 0)
        is_whole = width in (0, options["enc_hid_size"] // options["heads"])
        found["rotary_dim"] = "that of a head" if is_whole else width
    elif relative == _ALIBI:
        found["positions"] = "alibi"
    elif relative > 0:
        found["positions"] = {"name": "shaw", "max_distance": relative}
    else:
        found["positions"] = "none"
    return found
