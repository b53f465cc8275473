"""Marian's own files, `model.npz` with its settings inside."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm import norms, schemes
from keras_addnorm.data import TokenizerPair
from keras_addnorm.interop.families.bart_like import layers
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.fields import ConfigFile, Field, SameAs, copied, fixed, names
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.marian_files import (
    read_decoder_settings,
    read_settings,
    read_tokenizers,
    search_of,
)
from keras_addnorm.interop.families.rows import (
    NEVER,
    ONE_ROW,
    TRANSPOSED,
    OneMore,
    Row,
    WeightTable,
)
from keras_addnorm.interop.families.text_files import only_file
from keras_addnorm.interop.tensor_files import ComputedTensor, StoredTensor, read_npz
from keras_addnorm.models import Seq2SeqConfig

_SETTINGS = "special:model.yml"
# Sinusoids have no end; this is as far as transformers takes Marian's models.
_LONGEST = 512
_HEAD = "decoder_ff_logit_out"

# What stands before a sublayer, behind it, and behind the stack: d dropout, a add, n norm, r RMS.
_PLACES: dict[tuple[str, ...], tuple[Any, str]] = {
    ("", "an", ""): ("post_ln", "layer_norm"),
    ("", "an", "n"): ({"name": "post_ln", "final_norm": True}, "layer_norm"),
    ("n", "a", "n"): ("pre_ln", "layer_norm"),
    ("", "ar", ""): ("post_ln", "rms_norm"),
    ("r", "a", "r"): ("pre_ln", "rms_norm"),
}
# From this version on, keys and values of Pre-LN's self-attention are normalised as queries are.
_NORMALIZES_KEYS = (1, 11)

_REASONS = {
    "rnn": "SSRU, a recurrence in place of the decoder's self-attention",
    "average-attention": "average attention in place of the decoder's self-attention",
}

# Of trainings, of models of other types, of layers that are refused; and what the tensors say.
_IGNORED = names(
    """
    version max-length dim-vocabs tied-embeddings tied-embeddings-src tied-embeddings-all
    transformer-dropout transformer-dropout-attention transformer-dropout-ffn
    transformer-depth-scaling transformer-guided-alignment-layer dropout-rnn dropout-src dropout-trg
    dim-rnn enc-type enc-cell enc-cell-depth dec-cell dec-cell-base-depth dec-cell-high-depth skip
    layer-normalization transformer-rnn-projection transformer-dim-aan transformer-aan-depth
    transformer-aan-activation transformer-aan-nogate bert-train-type-embeddings
    bert-type-vocab-size ulr-trainable-transformation factors-combine separator-symbol
    transformer-preprocess transformer-postprocess transformer-postprocess-top
    """
)

_CONFIG_FILE = ConfigFile(
    "Marian .npz",
    (
        fixed("type", "transformer"),
        fixed("transformer-decoder-autoreg", "self-attention"),
        fixed("transformer-ffn-depth", 2),
        fixed("transformer-decoder-ffn-depth", 0, 2),
        fixed("transformer-no-projection", False),
        fixed("transformer-train-position-embeddings", False),
        fixed("transformer-train-positions", False),
        fixed("transformer-disable-position-embeddings", False),
        fixed("transformer-attention-mask", "default"),
        fixed("transformer-alibi-shift", False),
        fixed("transformer-alibi-trainable", False),
        fixed("transformer-pool", False),
        fixed("transformer-no-bias", False),
        fixed("transformer-no-affine", False),
        fixed("transformer-tied-layers", "none"),
        fixed("input-types", "sequence"),
        fixed("special-vocab", "none"),
        fixed("right-left", False),
        fixed("ulr", False),
        fixed("ulr-dim-emb", 0),
        fixed("lemma-dim-emb", 0),
        fixed("lemma-dependency", "none"),
        fixed("factors-dim-emb", 0),
        fixed("keys and values of self-attention", "normalised"),
        copied("enc-depth", 6, "num_encoder_layers"),
        copied("dec-depth", 6, "num_decoder_layers"),
        copied("dim-emb", 512, "hidden_dim"),
        copied("transformer-heads", 8, "num_heads"),
        copied("transformer-dim-ffn", 2048, "intermediate_dim"),
        copied("transformer-decoder-dim-ffn", SameAs("transformer-dim-ffn"), "intermediate_dim"),
        Field(
            "transformer-ffn-activation",
            "swish",
            ("activation",),
            {"swish": "silu", "relu": "relu", "gelu": "gelu_sigmoid"},
        ),
        Field(
            "transformer-postprocess-emb",
            "",
            ("embedding_norm",),
            {"": None, "n": "layer_norm", "r": "rms_norm"},
        ),
        Field("output-omit-bias", False, (), {False: None, True: None}),
        # Made of what stands in the file.
        copied("scheme", "post_ln", "scheme"),
        copied("norm", "layer_norm", "norm"),
        copied("vocabulary", 0, "source_vocabulary_size", "target_vocabulary_size"),
        copied("pad", 0, "pad_id", "start_id"),
        copied("share", True, "share_embeddings"),
        copied("tie", True, "tie_embeddings"),
    ),
    {
        "epsilon": 1e-6,
        "positions": {"name": "sinusoidal", "layout": "halves", "timescales": "half_minus_one"},
        "max_length": _LONGEST,
        "end_id": 0,
        "logits_bias": True,
    },
    _IGNORED,
)


@dataclasses.dataclass(frozen=True)
class MarianNpz(Family):
    """A model that Marian itself wrote.

    Marian starts a target with a vector of zeros; here that is a token behind the vocabulary, which
    is the padding, too, and whose logit is nothing beside the others. Where the sides have tables
    of different sizes, the smaller one is filled up in the same way. Its positions are not those
    that `transformers` gives the same weights: each is right for its own numbers.

    Reference:
        Junczys-Dowmunt et al., "Marian: Fast Neural Machine Translation in C++", 2018.
    """

    def open(self, path: Path) -> Checkpoint:
        """Find the one `.npz` of a folder, and the settings in it."""
        if path.is_dir():
            path = only_file(path, ".npz")
        tensors = dict(read_npz(path))
        if _SETTINGS not in tensors:
            raise ValueError(
                f"'{path}' has no '{_SETTINGS}'. Expected a model of Marian 1.0 or newer. Load and "
                "save it once with Marian."
            )
        text = bytes(np.asarray(tensors.pop(_SETTINGS).read()).tobytes()).rstrip(b"\0")
        settings = read_settings(path, text.decode("utf-8", "replace"))
        return Checkpoint(path, settings, _in_one_form(tensors, settings))

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the settings in the file."""
        settings, tensors = checkpoint.settings, checkpoint.tensors
        decoder = settings.get("transformer-decoder-autoreg", "self-attention")
        if decoder in _REASONS:
            raise ValueError(
                f"This Marian model has {_REASONS[decoder]}, which our decoder does not have, "
                "and transformers and CTranslate2 do not either. Expected "
                "transformer-decoder-autoreg = 'self-attention'."
            )
        # An empty list or text says nothing.
        said = {name: value for name, value in settings.items() if value not in ([], "", None)}
        return _CONFIG_FILE.read({**said, **_derived(settings, tensors)}, self.ignored)

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors. Matrices lie as ours do."""
        return _weights(config)

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read a model of pieces a side, or one for both; its ids are its own or a list's."""
        return read_tokenizers(checkpoint, config)

    def generation(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> GenerationSettings:
        """Return what `decoder.yml` says, else how Marian searches unless it is told otherwise."""
        return search_of(checkpoint, read_decoder_settings(checkpoint), config)

    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> None:
        """Refuse: nothing writes such a file here."""
        raise ValueError(
            "Marian's own files are only read. Expected a family that is written, such as "
            "'marian' for transformers, whose positions and epsilon are others; or "
            "keras_addnorm.serving.export_saved_model, which exports every model."
        )


def _derived(settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Return what several settings, or the tensors, say together."""
    found: dict[str, Any] = {}

    def operations(name: str, default: str) -> str:
        """Return what is done at a place, without dropout."""
        return str(settings.get(f"transformer-{name}", default) or "").replace("d", "")

    defaults = {"preprocess": "", "postprocess": "dan", "postprocess-top": ""}
    places = tuple(operations(name, default) for name, default in defaults.items())
    if places in _PLACES:
        found["scheme"], found["norm"] = _PLACES[places]
    else:
        found["transformer-preprocess, -postprocess, -postprocess-top"] = ", ".join(places)
    version = re.match(r"v?(\d+)\.(\d+)", str(settings.get("version", "")))
    if places[0] and version and tuple(map(int, version.groups())) < _NORMALIZES_KEYS:
        found["keys and values of self-attention"] = f"as they are, in Marian {version[0]}"
    found["transformer-postprocess-emb"] = operations("postprocess-emb", "d")
    if not settings.get("transformer-decoder-dim-ffn"):
        found["transformer-decoder-dim-ffn"] = None  # the encoder's
    if set(settings.get("input-types") or ()) <= {"sequence"}:
        found["input-types"] = "sequence"
    tables = _tables(tensors)
    size = tensors[tables[0]].shape[0] + 1
    found |= {"vocabulary": size, "pad": size - 1, "share": tables == ("Wemb",)}
    ties = [
        settings[name] for name in ("tied-embeddings", "tied-embeddings-all") if name in settings
    ]
    found["tie"] = any(ties) if ties else f"{_HEAD}_Wt" not in tensors
    return found


def _tables(tensors: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the tables of embeddings: one, or one a side."""
    tables = ("Wemb",) if "Wemb" in tensors else ("encoder_Wemb", "decoder_Wemb")
    if missing := [name for name in tables if name not in tensors]:
        raise ValueError(
            f"The file has no table of embeddings. Expected 'Wemb', or one a side. Missing: "
            f"{', '.join(missing)}. Factored vocabularies (Wtype) are not read."
        )
    return tables


def _in_one_form(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, StoredTensor]:
    """Return the tensors with a head as Marian stores it today, a bias, and tables of one size."""
    found = dict(tensors)
    tables = _tables(found)
    old, head, bias = (f"{_HEAD}_{name}" for name in ("W", "Wt", "b"))
    if old in found:
        kernel = found.pop(old)
        found[head] = ComputedTensor.of(kernel, kernel.shape[::-1], lambda: kernel.read().T)
    if settings.get("output-omit-bias") and bias not in found:
        shape = (1, found[tables[-1]].shape[0])
        found[bias] = ComputedTensor.of(
            found[tables[-1]], shape, lambda: np.zeros(shape, np.float32)
        )
    size = max(found[name].shape[0] for name in tables)
    for name, axis, value in (
        *((name, 0, 0.0) for name in tables),
        (head, 0, 0.0),
        (bias, 1, NEVER),
    ):
        if name in found and found[name].shape[axis] < size:
            found[name] = _filled(found[name], axis, size, value)
    return found


def _filled(stored: StoredTensor, axis: int, size: int, value: float) -> StoredTensor:
    """Return a matrix with as many rows, or columns, as `size`."""
    widths = [(0, 0), (0, 0)]
    widths[axis] = (0, size - stored.shape[axis])
    shape = tuple(old + more for old, (_, more) in zip(stored.shape, widths, strict=True))
    return ComputedTensor.of(
        stored, shape, lambda: np.pad(stored.floats(), widths, constant_values=value)
    )


def _weights(config: Seq2SeqConfig) -> WeightTable:
    is_pre = schemes.get(config.scheme).plan(None).norm_slots == ("pre_norm",)
    rows = [row for side, index in layers(config) for row in _layer(config, side, index, is_pre)]
    for side in ("encoder", "decoder"):
        if schemes.get(config.scheme).needs_final_norm:
            rows += _norm(config.norm, f"{side}.final_norm", f"{side}_top_ln", "")
        if config.embedding_norm is not None:
            ours = f"{side}_embedding.embedding_norm"
            rows += _norm(config.embedding_norm, ours, f"{side}_emb_ln", "_pre")
    end = (OneMore(),)
    if config.share_embeddings:
        rows.append(Row(("decoder_embedding.embeddings",), "Wemb", end))
    else:
        rows += [
            Row((f"{side}_embedding.embeddings",), f"{side}_Wemb", end)
            for side in ("encoder", "decoder")
        ]
    bias = "decoder_embedding.logits_bias"
    if not config.tie_embeddings:
        bias = "vocabulary_projection.bias"
        rows.append(Row(("vocabulary_projection.kernel",), f"{_HEAD}_Wt", (*end, TRANSPOSED)))
    rows.append(Row((bias,), f"{_HEAD}_b", (ONE_ROW, OneMore(NEVER))))
    return WeightTable(tuple(rows))


def _layer(config: Seq2SeqConfig, side: str, index: int, is_pre: bool) -> Iterator[Row]:
    ours, theirs = f"{side}.layers.{index}", f"{side}_l{index + 1}"
    slot, suffix = ("pre_norm", "_pre") if is_pre else ("post_norm", "")
    attentions = [("self_attention", "self")]
    if side == "decoder":
        attentions.append(("cross_attention", "context"))
    for name, their_name in attentions:
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
            projection = f"{ours}.{name}.{part}_projection"
            yield Row((f"{projection}.kernel",), f"{theirs}_{their_name}_W{letter}")
            yield Row((f"{projection}.bias",), f"{theirs}_{their_name}_b{letter}", (ONE_ROW,))
        yield from _norm(
            config.norm, f"{ours}.{name}_add_norm.{slot}", f"{theirs}_{their_name}_Wo_ln", suffix
        )
    for number, part in enumerate(("intermediate", "output"), start=1):
        projection = f"{ours}.feed_forward.{part}_projection"
        yield Row((f"{projection}.kernel",), f"{theirs}_ffn_W{number}")
        yield Row((f"{projection}.bias",), f"{theirs}_ffn_b{number}", (ONE_ROW,))
    yield from _norm(
        config.norm, f"{ours}.feed_forward_add_norm.{slot}", f"{theirs}_ffn_ffn_ln", suffix
    )


def _norm(kind: norms.NormLike, ours: str, theirs: str, suffix: str) -> Iterator[Row]:
    for name, part in zip(norms.get(kind)().output_weights, ("scale", "bias"), strict=False):
        yield Row((f"{ours}.{name}",), f"{theirs}_{part}{suffix}", (ONE_ROW,))
