"""What OpenNMT-py and Eole share: the same layers under two sets of names, and ids in lists.

Reference: the code of OpenNMT-py 3.5.1 and of Eole 0.6.4.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import TextFormat, Tokenizer, TokenizerPair
from keras_addnorm.interop.families.bart_like import PositionTable, layers, norm_rows
from keras_addnorm.interop.families.family import Checkpoint, ReadOnlyFamily
from keras_addnorm.interop.families.rows import (
    TRANSPOSED,
    Extra,
    Form,
    PairsOfChannels,
    Row,
    Scaled,
    WeightTable,
)
from keras_addnorm.interop.families.text_files import by_mapping, require_object
from keras_addnorm.layers.feed_forward import get_activation
from keras_addnorm.models import Seq2SeqConfig

HALVES: Mapping[str, Any] = {
    "name": "sinusoidal",
    "layout": "halves",
    "timescales": "half_minus_one",
}
SEARCH: Mapping[str, Any] = {
    "num_beams": 5,
    "length_penalty": 1.0,
    "max_length": 251,
}
"""How both search unless told otherwise; the start token counts here."""

_SIDES = ("encoder", "decoder")
_PAD, _END, _UNKNOWN = "<blank>", "</s>", "<unk>"
_BIAS = re.compile(r"\.(\w+_attn\.\w+|feed_forward\.w_\d|mlp\.\w+)\.bias$")
_ATTENTION = {
    "query": "linear_query",
    "key": "linear_keys",
    "value": "linear_values",
    "output": "final_linear",
}


@dataclasses.dataclass(frozen=True)
class FamilyOfOpenNMT(ReadOnlyFamily):
    """A family whose vocabularies stand in the checkpoint, and whose texts in SentencePiece models.

    Args:
        source_sentencepiece: The file of the model that sources were split with, beside the
            checkpoint, which need not name it; `None` for weights alone.
        target_sentencepiece: That of the targets; `None` for the same.
    """

    source_sentencepiece: str | None = None
    target_sentencepiece: str | None = None

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair | None:
        """Read the SentencePiece models that are named, with the ids of the checkpoint."""
        if self.source_sentencepiece is None:
            return None
        names = (self.source_sentencepiece, self.target_sentencepiece or self.source_sentencepiece)
        models = [checkpoint.folder / name for name in names]
        return tokenizers_of(checkpoint.settings["vocab"], models, config)


@dataclasses.dataclass(frozen=True)
class Names:
    """What the two call the same tensors differently.

    Attributes:
        layers: What the names of the layers begin with, by side.
        norms: The norms of a layer in the order of its sublayers, by side.
        activated: The projection of the feed-forward sublayer that the activation acts on.
        multiplied: What a gate is multiplied by.
        output: The projection behind them.
        tables: The token tables, by side.
        positions: What absolute positions are called, by side.
        divides_distances: Whether what Shaw's positions add to the logits is divided by `sqrt(K)`,
            as the paper and our layer do.
        unread: Regular expressions of names that no model of ours is made of.
    """

    layers: Mapping[str, str]
    norms: Mapping[str, tuple[str, ...]]
    activated: str
    multiplied: str
    output: str
    tables: Mapping[str, str]
    positions: Mapping[str, str]
    divides_distances: bool = True
    unread: tuple[str, ...] = ()

    def weight_table(self, config: Seq2SeqConfig, turns_pairs: Collection[str]) -> WeightTable:
        """Return the tensors of a model.

        Args:
            config: The model's config.
            turns_pairs: The sides whose rotary positions, if they have some, turn neighbouring
                channels.

        Returns:
            The tensors.
        """
        rows: list[Row] = []
        for side, index in layers(config):
            rows += self._layer(config, side, index, side in turns_pairs)
        for side in _SIDES:
            rows += norm_rows(config, f"{side}.final_norm", f"{side}.layer_norm")
        extras = list(map(Extra, self.unread))
        rows += self._embeddings(config, extras)
        return WeightTable(tuple(rows), tuple(extras))

    def _layer(
        self, config: Seq2SeqConfig, side: str, index: int, turns_pairs: bool
    ) -> Iterator[Row]:
        ours, theirs = f"{side}.layers.{index}", f"{self.layers[side]}.{index}"
        attentions = {"self_attention": "self_attn"}
        if side == "decoder":
            attentions["cross_attention"] = "context_attn"
        sublayers = (*attentions, "feed_forward")
        for name, norm in zip(sublayers, self.norms[side], strict=True):
            yield from norm_rows(config, f"{ours}.{name}_add_norm.pre_norm", f"{theirs}.{norm}")
        head_dim = config.head_dim or config.hidden_dim // config.num_heads
        is_rotary = turns_pairs and _kind(config.positions) == "rotary"
        pairs = (PairsOfChannels(head_dim),) if is_rotary else ()
        for name, their_name in attentions.items():
            for part, their_part in _ATTENTION.items():
                is_turned = name == "self_attention" and part in ("query", "key")
                yield from _linear(
                    config,
                    f"{ours}.{name}.{part}_projection",
                    f"{theirs}.{their_name}.{their_part}",
                    pairs if is_turned else (),
                )
        if _kind(config.positions) == "shaw":
            # One table for keys and values, where ours has two.
            table = f"{theirs}.self_attn.relative_positions_embeddings.weight"
            own = f"{ours}.self_attention.positions"
            scaled = () if self.divides_distances else (Scaled(head_dim**0.5),)
            yield Row((f"{own}.key_embeddings",), table, scaled)
            yield Row((f"{own}.value_embeddings",), table)
        projections = {"intermediate": self.activated, "output": self.output}
        if get_activation(config.activation).is_gated:
            projections |= {"gate": self.activated, "intermediate": self.multiplied}
        for part, name in projections.items():
            yield from _linear(config, f"{ours}.feed_forward.{part}_projection", f"{theirs}.{name}")

    def _embeddings(self, config: Seq2SeqConfig, extras: list[Extra]) -> Iterator[Row]:
        """Return the rows of tables, positions and logits; add what may be besides."""
        source, target = (self.tables[side] for side in _SIDES)
        if config.share_embeddings:
            yield Row(("decoder_embedding.embeddings",), source)
            extras.append(Extra(re.escape(target), same_as=source))
            target = source
        else:
            yield Row(("encoder_embedding.embeddings",), source)
            yield Row(("decoder_embedding.embeddings",), target)
        for side in _SIDES:
            if config.num_positions is not None:
                ours = f"{side}_embedding.position_encoding.embeddings"
                yield Row((ours,), f"{self.positions[side]}.weight")
            elif _kind(config.positions) == "sinusoidal":
                name = re.escape(f"{self.positions[side]}.pe")
                extras.append(Extra(name, value=PositionTable(config)))
        bias = "decoder_embedding.logits_bias"
        if config.tie_embeddings:
            extras.append(Extra(r"generator\.weight", same_as=target))
        else:
            bias = "vocabulary_projection.bias"
            yield Row(("vocabulary_projection.kernel",), "generator.weight", (TRANSPOSED,))
        if config.has_logits_bias:
            yield Row((bias,), "generator.bias")


def _linear(
    config: Seq2SeqConfig, ours: str, theirs: str, forms: tuple[Form, ...] = ()
) -> Iterator[Row]:
    """Return the rows of a projection, which may be without a bias beside others that have one."""
    yield Row((f"{ours}.kernel",), f"{theirs}.weight", (*forms, TRANSPOSED))
    if config.use_bias:
        yield Row((f"{ours}.bias",), f"{theirs}.bias", forms, is_optional=True)


def _kind(positions: str | Mapping[str, Any]) -> str:
    return positions if isinstance(positions, str) else positions["name"]


def have_biases(tensors: Iterable[str]) -> bool:
    """Return whether some projection of the layers has a bias, by the names of the tensors."""
    return any(_BIAS.search(name) for name in tensors)


def require_lists(vocabularies: Any, where: str) -> Mapping[str, Any]:
    """Return vocabularies as a checkpoint has them.

    Args:
        vocabularies: What `special_ids` takes.
        where: The file, as the beginning of a sentence.

    Returns:
        The vocabularies.

    Raises:
        ValueError: If they are something else.
    """
    found = require_object(vocabularies, where)
    require_object(found.get("specials"), f"'specials' of {where}")
    for side in ("src", "tgt"):
        tokens = found.get(side)
        if not isinstance(tokens, list | tuple) or not all(isinstance(t, str) for t in tokens):
            raise ArgumentError(
                f"{where} has no list of tokens '{side}'.",
                "names in the order of their ids",
                "Copy or download it again.",
                value=tokens,
            )
    return found


def special_ids(vocabularies: Mapping[str, Any]) -> dict[str, int]:
    """Return the special ids of a model as fields of our config.

    Args:
        vocabularies: The tokens of both sides as lists, `"src"` and `"tgt"`, with the name of what
            starts a target, and those of others where they have names of their own.

    Returns:
        The ids.

    Raises:
        ValueError: If a token is missing, or padding is another id on each side.
    """
    names = special_names(vocabularies)
    source, target = (list(vocabularies[side]) for side in ("src", "tgt"))
    missing = [name for name in (names["pad"], names["start"], names["end"]) if name not in target]
    if names["pad"] not in source:
        missing.append(f"{names['pad']} (of the source)")
    if missing:
        raise ValueError(
            "The vocabulary lacks special tokens that a model needs. Expected padding, start and "
            f"end among its tokens. Missing: {', '.join(missing)}."
        )
    pad = target.index(names["pad"])
    if source.index(names["pad"]) != pad:
        raise ArgumentError(
            "Padding has another id on each side.",
            "one for both",
            received=f"{source.index(names['pad'])} in the source, {pad} in the target",
        )
    return {
        "pad_id": pad,
        "start_id": target.index(names["start"]),
        "end_id": target.index(names["end"]),
    }


def special_names(vocabularies: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the special tokens, as `PieceIds` takes them."""
    named = vocabularies.get("specials") or {}
    return {
        "pad": named.get("pad_token", _PAD),
        "start": vocabularies.get("decoder_start_token", "<s>"),
        "end": named.get("eos_token", _END),
        "unknown": named.get("unk_token", _UNKNOWN),
    }


def tokenizers_of(
    vocabularies: Mapping[str, Any],
    models: Sequence[Path],
    config: Seq2SeqConfig,
) -> TokenizerPair:
    """Return the tokenizers of SentencePiece models whose ids stand in a checkpoint.

    Args:
        vocabularies: What `special_ids` takes.
        models: The models of the source and of the target.
        config: The model's config.

    Returns:
        The tokenizers, with the format of both toolkits: a source has no end.
    """
    sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
    found: list[Tokenizer] = []
    for side, model, size in zip(("src", "tgt"), models, sizes, strict=True):
        if not has_file(model):
            raise FileNotFoundError(
                f"There is no file '{model}'. Expected the SentencePiece model that the family's "
                "description names, beside the checkpoint."
            )
        ids = {name: index for index, name in enumerate(vocabularies[side])}
        found.append(by_mapping(model, ids, size, **special_names(vocabularies)))
    source, target = found
    return TokenizerPair(source, target, TextFormat(source_suffix=()))
