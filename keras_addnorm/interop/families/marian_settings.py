"""The settings inside of a model of Marian, `special:model.yml`, and our config, both ways."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.interop.families.fields import ConfigFile, Field, SameAs, copied, fixed, names
from keras_addnorm.interop.tensor_files import StoredTensor
from keras_addnorm.models import Seq2SeqConfig

HEAD = "decoder_ff_logit_out"
"""The projection to the vocabulary."""

# Sinusoids have no end; this is as far as transformers takes Marian's models.
_LONGEST = 512
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

# What stands in the place of the decoder's self-attention.
_MULTI_HEAD, _SSRU, _AVERAGE = "multi_head_attention", "ssru", "average_attention"
_DECODERS = {"self-attention": _MULTI_HEAD, "rnn": _SSRU, "average-attention": _AVERAGE}
_SWITCHES_OF_CELLS = {"transformer-rnn-projection": False, "layer-normalization": False}
_FIELDS_OF_AVERAGES = {"transformer-aan-depth": 2, "transformer-aan-nogate": False}
_ACTIVATIONS = {"swish": "silu", "relu": "relu", "gelu": "gelu_sigmoid"}

# Of trainings, of models of other types, of layers that are refused; and what the tensors say.
_IGNORED = names(
    """
    version max-length dim-vocabs tied-embeddings tied-embeddings-src tied-embeddings-all
    transformer-dropout transformer-dropout-attention transformer-dropout-ffn
    transformer-depth-scaling transformer-guided-alignment-layer dropout-rnn dropout-src dropout-trg
    dim-rnn enc-type enc-cell enc-cell-depth dec-cell dec-cell-base-depth dec-cell-high-depth skip
    layer-normalization transformer-rnn-projection transformer-dim-aan transformer-aan-depth
    transformer-aan-activation transformer-aan-nogate
    bert-train-type-embeddings bert-type-vocab-size ulr-trainable-transformation factors-combine
    separator-symbol
    transformer-preprocess transformer-postprocess transformer-postprocess-top
    """
)

_CONFIG_FILE = ConfigFile(
    "Marian .npz",
    (
        fixed("type", "transformer"),
        fixed("transformer-decoder-autoreg", *_DECODERS),
        fixed("dec-cell of the decoder", "ssru"),
        *(fixed(f"{name} of the decoder", value) for name, value in _SWITCHES_OF_CELLS.items()),
        *(fixed(f"{name} of the decoder", value) for name, value in _FIELDS_OF_AVERAGES.items()),
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
            _ACTIVATIONS,
        ),
        Field(
            "transformer-postprocess-emb",
            "",
            ("embedding_norm",),
            {"": None, "n": "layer_norm", "r": "rms_norm"},
        ),
        Field("output-omit-bias", False, (), {False: None, True: None}),
        # Made of what stands in the file.
        copied("self-attention of the decoder", _MULTI_HEAD, "self_attention"),
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
        "start_embedding": "zeros",
    },
    _IGNORED,
)


def read_config(
    settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor], ignored: tuple[str, ...]
) -> Seq2SeqConfig:
    """Return our config of a model; raise a `ValueError` for what our layers do not compute."""
    # An empty list or text says nothing.
    said = {name: value for name, value in settings.items() if value not in ([], "", None)}
    config = _CONFIG_FILE.read({**said, **_derived(settings, tensors)}, ignored)
    # How it was trained the file does not say; a student learns from what a teacher said, which is
    # regular already.
    if config.self_attention == _MULTI_HEAD:
        return config
    return dataclasses.replace(config, dropout=0.0)


def write_config(config: Seq2SeqConfig, sizes: tuple[int, int]) -> dict[str, Any]:
    """Return the settings of a model of Marian that is like one of ours.

    Args:
        config: Our config. Its special ids may be any: the vocabulary is written in Marian's order.
        sizes: The numbers of tokens of both sides that Marian's model has.

    Returns:
        What `special:model.yml` says, with all that Marian asks for.

    Raises:
        ValueError: If Marian cannot have such a model: all reasons at once.
    """
    _places(config), _cell_settings(config)  # They name what Marian has.
    size = max(sizes) + 1
    as_marian = dataclasses.replace(
        config,
        source_vocabulary_size=size,
        target_vocabulary_size=size,
        pad_id=size - 1,
        start_id=size - 1,
        end_id=0,
        logits_bias=True,
        max_length=_LONGEST,
    )
    written = _CONFIG_FILE.write(as_marian)
    # Of the others Marian's own default, for which there are several ways to say it.
    known = {each.name: written[each.name] for each in _CONFIG_FILE.fields if each.ours}
    known = {name: value for name, value in known.items() if name in _DEFAULTS}
    norm = "r" if config.norm == "rms_norm" else "n"
    pre, post, top = (place.replace("a", "da", 1) for place in _places(config))
    return {
        **_DEFAULTS,
        **known,
        **_cell_settings(config),
        "transformer-preprocess": pre,
        "transformer-postprocess": post,
        "transformer-postprocess-top": top,
        "transformer-postprocess-emb": "d" + (norm if config.embedding_norm else ""),
        "tied-embeddings-all": config.tie_embeddings and config.share_embeddings,
        "tied-embeddings-src": config.share_embeddings and not config.tie_embeddings,
        "tied-embeddings": config.tie_embeddings and not config.share_embeddings,
        "dim-vocabs": list(sizes),
    }


def _places(config: Seq2SeqConfig) -> tuple[str, ...]:
    """Return what stands before a sublayer, behind it, and behind the stack."""
    for places, (scheme, norm) in _PLACES.items():
        if (config.scheme, config.norm) == (scheme, norm):
            return places
    known = ", ".join(f"{scheme} with {norm}" for scheme, norm in _PLACES.values())
    raise ArgumentError(
        "Marian has no Add & Norm like this model's.",
        known,
        "Use keras_addnorm.serving.export_saved_model, which exports every model.",
        received=f"{config.scheme!r} with {config.norm!r}",
    )


def _cell_settings(config: Seq2SeqConfig) -> dict[str, Any]:
    """Return what says which cell the decoder has in the place of its self-attention."""
    kind = config.self_attention
    fields = dict(kind) if isinstance(kind, dict) else {"name": kind}
    names_there = {ours: theirs for theirs, ours in _DECODERS.items()}
    if fields["name"] not in names_there:
        raise ArgumentError(
            "Marian has no such self-attention of a decoder.",
            f"one of {', '.join(names_there)}",
            "Use keras_addnorm.serving.export_saved_model, which exports every model.",
            value=kind,
        )
    found: dict[str, Any] = {"transformer-decoder-autoreg": names_there[fields["name"]]}
    if fields["name"] == _AVERAGE:
        inner = fields.get("intermediate_dim") or config.intermediate_dim
        found["transformer-dim-aan"] = inner
        activations = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
        activation = fields.get("activation", "swish")
        found["transformer-aan-activation"] = activations.get(activation, activation)
    return found


def _cell(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stands in the place of the decoder's self-attention, and what it depends on."""
    depends_on: dict[str, Any] = {}
    kind: Any = _DECODERS.get(settings.get("transformer-decoder-autoreg") or "self-attention")
    if kind == _SSRU:
        depends_on = {"dec-cell": "gru", **_SWITCHES_OF_CELLS}
    elif kind == _AVERAGE:
        depends_on = dict(_FIELDS_OF_AVERAGES)
        activation = settings.get("transformer-aan-activation", "swish")
        kind = {
            "name": _AVERAGE,
            "intermediate_dim": settings.get("transformer-dim-aan", 2048),
            "activation": _ACTIVATIONS.get(activation, activation),
        }
    said = {
        f"{name} of the decoder": settings.get(name, value) for name, value in depends_on.items()
    }
    return {"self-attention of the decoder": kind, **said}


def _derived(settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Return what several settings, or the tensors, say together."""
    found = _cell(settings)

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
    tables = tables_of(tensors)
    size = tensors[tables[0]].shape[0] + 1
    found |= {"vocabulary": size, "pad": size - 1, "share": tables == ("Wemb",)}
    ties = [
        settings[name] for name in ("tied-embeddings", "tied-embeddings-all") if name in settings
    ]
    found["tie"] = any(ties) if ties else f"{HEAD}_Wt" not in tensors
    return found


def as_yaml(settings: Mapping[str, Any]) -> str:
    """Return settings as lines of YAML, whose values are JSON."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())


def tables_of(tensors: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the tables of embeddings: one, or one a side."""
    tables = ("Wemb",) if "Wemb" in tensors else ("encoder_Wemb", "decoder_Wemb")
    if missing := [name for name in tables if name not in tensors]:
        raise ValueError(
            f"The file has no table of embeddings. Expected 'Wemb', or one a side. Missing: "
            f"{', '.join(missing)}. Factored vocabularies (Wtype) are not read."
        )
    return tables


# All settings that Marian's own models name, as its parser has them.
_DEFAULTS: dict[str, Any] = {
    "bert-train-type-embeddings": True,
    "bert-type-vocab-size": 2,
    "dec-cell": "ssru",
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "dec-depth": 6,
    "dim-emb": 512,
    "dim-rnn": 1024,
    "dim-vocabs": [0, 0],
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-depth": 6,
    "enc-type": "bidirectional",
    "factors-combine": "sum",
    "factors-dim-emb": 0,
    "input-types": [],
    "layer-normalization": False,
    "lemma-dependency": "",
    "lemma-dim-emb": 0,
    "output-omit-bias": False,
    "right-left": False,
    "separator-symbol": "[eos]",
    "skip": False,
    "tied-embeddings": False,
    "tied-embeddings-all": True,
    "tied-embeddings-src": False,
    "transformer-aan-activation": "swish",
    "transformer-aan-depth": 2,
    "transformer-aan-nogate": False,
    "transformer-alibi-shift": False,
    "transformer-alibi-trainable": False,
    "transformer-attention-mask": "default",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-decoder-dim-ffn": 0,
    "transformer-decoder-ffn-depth": 0,
    "transformer-dim-aan": 2048,
    "transformer-dim-ffn": 2048,
    "transformer-disable-position-embeddings": False,
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-guided-alignment-layer": "last",
    "transformer-heads": 8,
    "transformer-no-affine": False,
    "transformer-no-bias": False,
    "transformer-no-projection": False,
    "transformer-pool": False,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-preprocess": "",
    "transformer-rnn-projection": False,
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "type": "transformer",
    "ulr": False,
    "ulr-dim-emb": 0,
    "ulr-trainable-transformation": False,
    "version": "v1.12.42",
}
