"""Marian's own files, `model.npz` with its settings inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm import norms, schemes
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.data import TokenizerPair
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.fields import ConfigFile, Field, copied, fixed
from keras_addnorm.interop.families.rows import ONE_ROW, TRANSPOSED, Row, WeightTable, ZeroAtEnd
from keras_addnorm.interop.families.text_files import moved
from keras_addnorm.interop.tensor_files import StoredTensor, read_npz
from keras_addnorm.models import Seq2SeqConfig

_SETTINGS = "special:model.yml"

# What stands before a sublayer, behind it, and behind the stack: d dropout, a add, n norm, r RMS.
_PLACES: dict[tuple[str, ...], tuple[Any, str]] = {
    ("", "an", ""): ("post_ln", "layer_norm"),
    ("", "an", "n"): ({"name": "post_ln", "final_norm": True}, "layer_norm"),
    ("n", "a", "n"): ("pre_ln", "layer_norm"),
    ("", "ar", ""): ("post_ln", "rms_norm"),
    ("r", "a", "r"): ("pre_ln", "rms_norm"),
}

_REASONS = {
    "rnn": "SSRU, a recurrence in place of the decoder's self-attention",
    "average-attention": "average attention in place of the decoder's self-attention",
}

_CONFIG_FILE = ConfigFile(
    "Marian .npz",
    (
        fixed("type", "transformer"),
        fixed("transformer-decoder-autoreg", "self-attention"),
        fixed("transformer-ffn-depth", 2),
        fixed("transformer-decoder-ffn-depth", 0, 2),
        fixed("transformer-dim-decoder-ffn", 0),
        fixed("transformer-no-projection", False),
        fixed("transformer-train-position-embeddings", False),
        fixed("transformer-pool", False),
        fixed("transformer-no-bias", False),
        fixed("transformer-no-affine", False),
        fixed("transformer-alibi", False),
        fixed("transformer-postprocess-emb", "d", ""),
        fixed("transformer-tied-layers", "none"),
        fixed("ulr-dim-emb", 0),
        fixed("lemma-dim-emb", 0),
        copied("enc-depth", 6, "num_encoder_layers"),
        copied("dec-depth", 6, "num_decoder_layers"),
        copied("dim-emb", 512, "hidden_dim"),
        copied("transformer-heads", 8, "num_heads"),
        copied("transformer-dim-ffn", 2048, "intermediate_dim"),
        Field(
            "transformer-ffn-activation",
            "swish",
            ("activation",),
            {"swish": "silu", "relu": "relu", "gelu": "gelu_sigmoid"},
        ),
        copied("max-length", 512, "max_length"),
        # Made of what stands in the file.
        copied("scheme", "post_ln", "scheme"),
        copied("norm", "layer_norm", "norm"),
        copied("source-vocabulary", 0, "source_vocabulary_size"),
        copied("target-vocabulary", 0, "target_vocabulary_size"),
        copied("pad", 0, "pad_id", "start_id"),
        copied("share", True, "share_embeddings"),
        copied("tie", True, "tie_embeddings"),
    ),
    {
        "epsilon": 1e-6,
        "positions": {"name": "sinusoidal", "layout": "halves", "timescales": "half_minus_one"},
        "end_id": 0,
        "logits_bias": True,
    },
)


@dataclasses.dataclass(frozen=True)
class MarianNpz(Family):
    """A model that Marian itself wrote.

    Marian starts a target with a vector of zeros; here that is a token behind the vocabulary, which
    is the padding, too. Its positions are not those that `transformers` gives the same weights:
    each is right for its own numbers.

    Reference:
        Junczys-Dowmunt et al., "Marian: Fast Neural Machine Translation in C++", 2018.
    """

    def open(self, path: Path) -> Checkpoint:
        """Find the one `.npz` of a folder, and the settings in it."""
        if path.is_dir():
            found = sorted(path.glob("*.npz"))
            if len(found) != 1:
                raise FileNotFoundError(
                    f"Expected one .npz file in '{path}'. Received: "
                    f"{', '.join(each.name for each in found) or 'none'}. Pass the file itself."
                )
            path = found[0]
        tensors = dict(read_npz(path))
        if _SETTINGS not in tensors:
            raise ValueError(
                f"'{path}' has no '{_SETTINGS}'. Expected a model of Marian 1.0 or newer. Load and "
                "save it once with Marian."
            )
        (yaml,) = require_extra("pretrained", "A model of Marian", "yaml")
        text = bytes(np.asarray(tensors.pop(_SETTINGS).read()).tobytes()).rstrip(b"\0")
        return Checkpoint(path, yaml.safe_load(text.decode("utf-8")), tensors)

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
        known = {field.name for field in _CONFIG_FILE.fields}
        return _CONFIG_FILE.read(
            {
                **{name: value for name, value in settings.items() if name in known},
                **_derived(settings, tensors),
            }
        )

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors. Matrices lie as ours do."""
        return _weights(config)

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read the one model of pieces, or one a side, whose ids are their own."""
        models = sorted(checkpoint.folder.glob("*.spm"))
        if len(models) not in (1, 2):
            raise FileNotFoundError(
                f"Expected one or two .spm files in '{checkpoint.folder}'. Received: "
                f"{', '.join(each.name for each in models) or 'none'}. Vocabularies in other forms "
                "are not read. Pass tokenizers=None to load the weights alone."
            )
        # source.spm and target.spm, or vocab.<language>.spm in the order of decoder.yml
        listed = read_decoder_settings(checkpoint.folder).get("vocabs", [])
        order = {Path(name).name: index for index, name in enumerate(listed)}
        models.sort(key=lambda path: order.get(path.name, 0))
        sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
        source, target = (
            moved(model, size, last=("<pad>",), pad="<pad>", start="<pad>")
            for model, size in zip((models[0], models[-1]), sizes, strict=True)
        )
        return TokenizerPair(source, target)

    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> None:
        """Refuse: nothing writes such a file here."""
        raise ValueError(
            "Marian's own files are only read. Expected a family that is written, such as "
            "'marian' for transformers, whose positions and epsilon are others; or "
            "keras_addnorm.serving.export_saved_model, which exports every model."
        )


def read_decoder_settings(folder: Path) -> dict[str, Any]:
    """Return what the `decoder.yml` of a folder says; nothing if there is none."""
    path = folder / "decoder.yml"
    if not path.is_file():
        return {}
    (yaml,) = require_extra("pretrained", "A model of Marian", "yaml")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {})


def _derived(settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Return what several settings, or the tensors, say together."""
    found: dict[str, Any] = {}
    places = [
        str(settings.get(f"transformer-{name}", default) or "").replace("d", "")
        for name, default in (("preprocess", ""), ("postprocess", "dan"), ("postprocess-top", ""))
    ]
    if tuple(places) in _PLACES:
        found["scheme"], found["norm"] = _PLACES[tuple(places)]
    else:
        found["transformer-preprocess, -postprocess, -postprocess-top"] = ", ".join(places)
    found["transformer-tied-layers"] = "some" if settings.get("transformer-tied-layers") else "none"
    postprocess = settings.get("transformer-postprocess-emb", "d")
    found["transformer-postprocess-emb"] = postprocess or ""
    share = "Wemb" in tensors
    sides = ("Wemb", "Wemb") if share else ("encoder_Wemb", "decoder_Wemb")
    if missing := [name for name in sides if name not in tensors]:
        raise ValueError(
            f"The file has no table of embeddings. Expected 'Wemb', or one a side. Missing: "
            f"{', '.join(missing)}. Factored vocabularies (Wtype) are not read."
        )
    sizes = [tensors[name].shape[0] + 1 for name in sides]
    found |= {"source-vocabulary": sizes[0], "target-vocabulary": sizes[1], "pad": sizes[1] - 1}
    found["share"] = share
    found["tie"] = not any(f"decoder_ff_logit_out_W{t}" in tensors for t in ("", "t"))
    return found


def _weights(config: Seq2SeqConfig) -> WeightTable:
    rows: list[Row] = []
    is_pre = schemes.get(config.scheme).plan(None).norm_slots == ("pre_norm",)
    for side, layers in (
        ("encoder", config.num_encoder_layers),
        ("decoder", config.num_decoder_layers),
    ):
        for index in range(layers):
            rows += _layer(config, side, index, is_pre)
        if schemes.get(config.scheme).needs_final_norm:
            rows += _norm(config, f"{side}.final_norm", f"{side}_top_ln", "")
    end = (ZeroAtEnd(),)
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
        rows.append(
            Row(
                ("vocabulary_projection.kernel",),
                "decoder_ff_logit_out_W",
                (TRANSPOSED, *end, TRANSPOSED),
            )
        )
    rows.append(Row((bias,), "decoder_ff_logit_out_b", (ONE_ROW, *end)))
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
            config, f"{ours}.{name}_add_norm.{slot}", f"{theirs}_{their_name}_Wo_ln", suffix
        )
    for number, part in enumerate(("intermediate", "output"), start=1):
        projection = f"{ours}.feed_forward.{part}_projection"
        yield Row((f"{projection}.kernel",), f"{theirs}_ffn_W{number}")
        yield Row((f"{projection}.bias",), f"{theirs}_ffn_b{number}", (ONE_ROW,))
    yield from _norm(config, f"{ours}.feed_forward_add_norm.{slot}", f"{theirs}_ffn_ffn_ln", suffix)


def _norm(config: Seq2SeqConfig, ours: str, theirs: str, suffix: str) -> Iterator[Row]:
    for name, part in zip(norms.get(config.norm)().output_weights, ("scale", "bias"), strict=False):
        yield Row((f"{ours}.{name}",), f"{theirs}_{part}{suffix}", (ONE_ROW,))
