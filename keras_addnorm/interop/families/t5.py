"""T5 v1.0 and v1.1, Flan-T5, mT5, byT5 and umT5."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import (
    BaseTokenizer,
    ByteTokenizer,
    TextFormat,
    TokenizerPair,
)
from keras_addnorm.interop.families import bart_like
from keras_addnorm.interop.families.bart_like import (
    NOTES,
    SEARCH,
    linear_rows,
    norm_rows,
    norm_slot,
)
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.fields import (
    ConfigFile,
    Field,
    SameAs,
    Settings,
    copied,
    fixed,
    names,
)
from keras_addnorm.interop.families.huggingface import HuggingFaceFamily, tokenizer_class
from keras_addnorm.interop.families.rows import TRANSPOSED, Extra, Form, Row, Scaled, WeightTable
from keras_addnorm.interop.families.text_files import (
    moved,
    read_pieces,
    require_object,
    require_text_file,
)
from keras_addnorm.interop.families.tokenizer_json import whole_tokenizer
from keras_addnorm.interop.families.tokenizer_settings import FILES, TokenizerSettings
from keras_addnorm.interop.tensor_files import StoredTensor
from keras_addnorm.layers.feed_forward import get_activation
from keras_addnorm.models import Seq2SeqConfig

_ACTIVATIONS = {
    "relu": "relu",
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
    "gelu": "gelu",
    "silu": "silu",
}
# What newer files repeat of the activation.
_REPEATED = {
    "relu": ("relu", False),
    "gated-gelu": ("gelu_new", True),
    "gated-silu": ("silu", True),
    "gelu": ("gelu", False),
    "silu": ("silu", False),
}
_CLASSES = ("T5Tokenizer", "MT5Tokenizer", "ByT5Tokenizer")
_SENTINELS = 100
_MODEL = "spiece.model"
_TABLE, _HEAD = "shared.weight", "lm_head.weight"


def _config_file(
    family: str,
    *,
    intermediate_dim: int,
    layers: int,
    heads: int,
    activation: str,
    scales: Mapping[bool, float | None],
    **constants: Any,
) -> ConfigFile:
    return ConfigFile(
        family,
        (
            copied("vocab_size", 32128, "source_vocabulary_size", "target_vocabulary_size"),
            copied("d_model", 512, "hidden_dim"),
            copied("d_kv", 64, "head_dim"),
            copied("d_ff", intermediate_dim, "intermediate_dim"),
            copied("num_layers", layers, "num_encoder_layers"),
            copied("num_decoder_layers", SameAs("num_layers"), "num_decoder_layers"),
            copied("num_heads", heads, "num_heads"),
            copied("n_positions", 512, "max_length"),
            copied("relative_attention_num_buckets", 32, "positions.num_buckets"),
            copied("relative_attention_max_distance", 128, "positions.max_distance"),
            copied("dropout_rate", 0.1, "dropout", "attention_dropout", "activation_dropout"),
            copied("layer_norm_epsilon", 1e-6, "epsilon"),
            Field("feed_forward_proj", activation, ("activation",), _ACTIVATIONS),
            copied("tie_word_embeddings", True, "tie_embeddings"),
            Field("scale_decoder_outputs", True, ("embedding_scale",), scales),
            copied("pad_token_id", 0, "pad_id"),
            copied("decoder_start_token_id", 0, "start_id"),
            copied("eos_token_id", 1, "end_id"),
            fixed("is_encoder_decoder", True),
        ),
        {
            "scheme": "pre_ln",
            "norm": "rms_norm",
            "use_bias": False,
            "attention": {"scale": 1.0},
            "positions.name": "t5",
            "share_embeddings": True,
            "logits_bias": False,
            **constants,
        },
        NOTES | SEARCH | names("num_attention_heads hidden_size"),
    )


@dataclasses.dataclass(frozen=True)
class _NamesOfT5(HuggingFaceFamily):
    """A family whose tensors and files of texts bear T5's names."""

    text_files = (_MODEL, *FILES)
    scales_logits: ClassVar[bool] = True
    """Whether logits of a tied table have a factor."""

    def newest(self, settings: Settings, tensors: Mapping[str, StoredTensor]) -> Settings:
        """Say by two fields whether there is a head of its own, and whether it is scaled."""
        is_tied = settings.get("tie_word_embeddings") is not False
        said = settings.get("scale_decoder_outputs", is_tied)
        return _newest(settings, tensors, said if self.scales_logits else False)

    def require_head(self, checkpoint: Checkpoint) -> None:
        """Refuse a file without the head that newer versions have; that of 1.0 is the table."""
        if _HEAD in checkpoint.tensors:
            return
        settings = checkpoint.settings
        named = settings.get("architectures") or []
        is_base = named and self.architecture not in named
        is_scaled = self.newest(settings, {})["scale_decoder_outputs"]
        # Files of transformers 5 say that all heads are tied, and write those that are not.
        if settings.get("tie_word_embeddings") is False or (is_base and not is_scaled):
            raise ValueError(
                f"'{checkpoint.path}' holds {' and '.join(named) or 'a model'} without its head: "
                f"only that of T5 1.0 is the table of tokens. Expected a tensor '{_HEAD}'. Save "
                f"the whole model, a {self.architecture}."
            )

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors: one or two more, by what the logits are made of."""
        return _weights(config)

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read the model of pieces, or make that of bytes."""
        return _tokenizers(checkpoint, config)


@dataclasses.dataclass(frozen=True)
class T5(_NamesOfT5):
    """T5 v1.0, v1.1 and Flan-T5; byT5, whose files say T5.

    Version 1.0 ties the logits to the table and multiplies them by `D^-1/2`. With our table
    `E' = E / sqrt(D)`, our embedding `sqrt(D) E'[id]` and our logits `x E'^T` are T5's.

    Reference:
        Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
        Transformer", 2020.
    """

    model_type = "t5"
    architecture = "T5ForConditionalGeneration"
    config_file = _config_file(
        "T5",
        intermediate_dim=2048,
        layers=6,
        heads=8,
        activation="relu",
        scales={True: None, False: 1.0},
    )


@dataclasses.dataclass(frozen=True)
class MT5(_NamesOfT5):
    """mT5; also byT5, where its files say mT5. Logits have no factor.

    Reference:
        Xue et al., "mT5: A massively multilingual pre-trained text-to-text transformer", 2021.
    """

    model_type = "mt5"
    architecture = "MT5ForConditionalGeneration"
    config_file = _config_file(
        "mT5",
        intermediate_dim=1024,
        layers=8,
        heads=6,
        activation="gated-gelu",
        scales={False: 1.0},  # mT5's code has no factor
    )
    scales_logits = False


@dataclasses.dataclass(frozen=True)
class UMT5(_NamesOfT5):
    """umT5, whose layers have a table of positions each.

    Reference:
        Chung et al., "UniMax: Fairer and More Effective Language Sampling for Large-Scale
        Multilingual Pretraining", 2023.
    """

    model_type = "umt5"
    architecture = "UMT5ForConditionalGeneration"
    config_file = _config_file(
        "umT5",
        intermediate_dim=1024,
        layers=8,
        heads=6,
        activation="gated-gelu",
        scales={True: None, False: 1.0},
        **{"positions.is_shared": False},
    )


def _tokenizers(checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
    size = config.source_vocabulary_size
    kind = tokenizer_class(checkpoint, _CLASSES) or "T5Tokenizer"
    tokenizer: BaseTokenizer
    if kind == "ByT5Tokenizer":
        settings = TokenizerSettings(checkpoint.folder, kind)
        default = ByteTokenizer()
        first = default.offset + 256
        tokenizer = ByteTokenizer(**settings.of_bytes(first, default.last, size))
    else:
        tokenizer = _of_pieces(checkpoint.folder, kind, config)
    where = f"task_specific_params of '{checkpoint.folder / 'config.json'}'"
    tasks = require_object(checkpoint.settings.get("task_specific_params"), where)
    # T5 1.0 is told in words what to do. Flan-T5, made of 1.1, keeps the list, and is not.
    is_told = any(name.startswith("translation_") for name in tasks)
    translates = is_told and not get_activation(config.activation).is_gated
    text_format = TextFormat(text_prefix="translate {source} to {target}: " if translates else "")
    return TokenizerPair(tokenizer, tokenizer, text_format)


def _of_pieces(folder: Path, kind: str, config: Seq2SeqConfig) -> BaseTokenizer:
    """Return the tokenizer of a SentencePiece model, or of a `tokenizer.json`."""
    size = config.source_vocabulary_size
    whole = whole_tokenizer(folder, _MODEL)
    if whole is None:
        model = require_text_file(folder, _MODEL)
        pieces = read_pieces(model)
        pad = start = "<pad>"
        if pad not in pieces and max(config.pad_id, config.start_id) < len(pieces):
            # MADLAD-400 pads with `<s>`, and starts with `<unk>`.
            pad, start = pieces[config.pad_id], pieces[config.start_id]
        settings = TokenizerSettings(folder, kind, pad)
        last = _sentinels(settings, pieces, size - len(pieces))
        return moved(model, size, settings, last=last, pad=pad, start=start)
    settings = TokenizerSettings(folder, kind)
    whole.require_around(TextFormat(), settings)
    return whole.tokenizer(whole.piece_ids(settings, size, start="<pad>"))


def _sentinels(settings: TokenizerSettings, pieces: Sequence[str], room: int) -> tuple[str, ...]:
    """Return the sentinels behind the pieces, the first of which has the last id."""
    number = settings.config.get("extra_ids")
    if number is not None and (type(number) is not int or not 0 <= number <= max(room, 0)):
        raise ArgumentError(
            "The tokenizer has other sentinels than the model.",
            f"extra_ids of tokenizer_config.json from 0 to {max(room, 0)}, the rows of the table "
            "behind the pieces",
            "Were the files of two models mixed?",
            value=number,
        )
    if number is None:
        # Those of mT5 are pieces of the model.
        number = 0 if any("<extra_id_" in piece for piece in pieces) else _SENTINELS
    names = [f"<extra_id_{index}>" for index in reversed(range(number))]
    return tuple(names[: max(room, 0)])


def _newest(
    settings: Settings, tensors: Mapping[str, StoredTensor], is_scaled: bool
) -> dict[str, object]:
    found = dict(settings)
    repeated = found.pop("dense_act_fn", None), found.pop("is_gated_act", None)
    activation = settings.get("feed_forward_proj")
    if None not in repeated and repeated != _REPEATED.get(str(activation), repeated):
        raise ValueError(
            "The settings of the activation contradict one another: feed_forward_proj = "
            f"{activation!r}, dense_act_fn = {repeated[0]!r}, is_gated_act = {repeated[1]!r}."
        )
    found["scale_decoder_outputs"] = is_scaled
    # Whatever the config says, the head is that of the file.
    found["tie_word_embeddings"] = not (
        _HEAD in tensors
        and _TABLE in tensors
        and not np.array_equal(tensors[_HEAD].read(), tensors[_TABLE].read())
    )
    return found


def _weights(config: Seq2SeqConfig) -> WeightTable:
    rows = [row for side, index in bart_like.layers(config) for row in _layer(config, side, index)]
    for side in ("encoder", "decoder"):
        rows += norm_rows(config, f"{side}.final_norm", f"{side}.final_layer_norm")
    scale: tuple[Form, ...] = ()
    if config.embedding_scale is None:
        scale = (Scaled(config.hidden_dim**-0.5),)
    rows.append(Row(("decoder_embedding.embeddings",), _TABLE, scale))
    extras = [
        Extra(r"(encoder|decoder)\.embed_tokens\.weight", same_as=_TABLE),
        # Old files have a table that no version reads.
        Extra(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"),
    ]
    if config.tie_embeddings:
        extras.append(Extra(re.escape(_HEAD), same_as=_TABLE))
    else:
        rows.append(Row(("vocabulary_projection.kernel",), _HEAD, (TRANSPOSED, *scale)))
    return WeightTable(tuple(rows), tuple(extras))


def _layer(config: Seq2SeqConfig, side: str, index: int) -> Iterator[Row]:
    ours, theirs = f"{side}.layers.{index}", f"{side}.block.{index}.layer"
    positions = config.positions
    is_shared = not isinstance(positions, dict) or positions.get("is_shared", True)
    if index == 0 or not is_shared:
        table = "SelfAttention.relative_attention_bias.weight"
        yield Row((f"{ours}.self_attention.positions.embeddings",), f"{theirs}.0.{table}")
    attentions = [("self_attention", "SelfAttention")]
    if side == "decoder":
        attentions.append(("cross_attention", "EncDecAttention"))
    slot = norm_slot(config)
    for place, (name, their_name) in enumerate(attentions):
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
            yield from linear_rows(
                config,
                f"{ours}.{name}.{part}_projection",
                f"{theirs}.{place}.{their_name}.{letter}",
            )
        yield from norm_rows(
            config, f"{ours}.{name}_add_norm.{slot}", f"{theirs}.{place}.layer_norm"
        )
    place = len(attentions)
    feed_forward = f"{ours}.feed_forward"
    is_gated = get_activation(config.activation).is_gated
    projections = {"output": "wo", "intermediate": "wi_1" if is_gated else "wi"}
    if is_gated:
        projections["gate"] = "wi_0"
    for part, name in projections.items():
        yield from linear_rows(
            config,
            f"{feed_forward}.{part}_projection",
            f"{theirs}.{place}.DenseReluDense.{name}",
        )
    yield from norm_rows(config, f"{feed_forward}_add_norm.{slot}", f"{theirs}.{place}.layer_norm")
