"""Folders of untrained models, in the form of each family, to try everything without a network.

python -m keras_addnorm.interop.random_folder marian opus-random
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.data import byte_alphabet, sentencepiece_pieces
from keras_addnorm.interop import families
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.generation_settings import special_ids
from keras_addnorm.interop.families.huggingface import HuggingFaceFamily
from keras_addnorm.interop.families.languages import M2M_100, MBART_50
from keras_addnorm.interop.families.text_files import write_json
from keras_addnorm.interop.folders import require_new
from keras_addnorm.interop.random_folder import other_toolkits
from keras_addnorm.interop.tensor_files import write_safetensors
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

_SENTENCES = """\
A dog runs through the garden.
A small child sleeps in the house.
Two birds sing in a tall tree.
The old woman reads a book by the window.
My brother drinks coffee and eats bread.
Ein Hund läuft durch den Garten.
Ein kleines Kind schläft im Haus.
Zwei Vögel singen in einem hohen Baum.
Die alte Frau liest am Fenster ein Buch.
Mein Bruder trinkt Kaffee und isst Brot.
""".splitlines()

_SIZES: dict[str, Any] = {
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "num_heads": 2,
    "head_dim": 8,
    "max_length": 64,
}

TextFiles = Mapping[str, bytes]


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """How a folder is made.

    Attributes:
        family: The family.
        text_files: Makes the tokenizer's files, and returns the number of ids besides.
        settings: Fields of `config.json` besides the sizes.
        search: Fields of `generation_config.json`.
        pad_is_last: Whether the last id is that of padding, and starts targets.
        write: Writes everything but the tokenizer's files, in a toolkit's own form.
    """

    family: str
    text_files: Callable[[], tuple[TextFiles, int]]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    search: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pad_is_last: bool = False
    write: Callable[[Path, Mapping[str, Any], other_toolkits.MakeModel], None] | None = None


def make_random_folder(
    name: str,
    directory: str | os.PathLike[str],
    *,
    seed: int = 0,
    **fields: Any,
) -> Path:
    """Writes a folder as one of a pretrained model, with random weights and a small vocabulary.

    Args:
        name: `"marian"`, `"marian_multilingual"`, `"m2m_100"`, `"nllb"`, `"mbart"`, `"bart"`,
            `"pegasus"`, `"t5"`, `"t5_v1_1"`, `"mt5"`, `"umt5"`, `"byt5"`, `"marian_npz"`,
            `"opennmt_py"`, `"eole"`, `"joey_nmt"` or `"opennmt_tf"`; the last two and
            `"opennmt_py"` need torch or TensorFlow.
        directory: The folder to make; it appears whole or not at all.
        seed: Another one gives other weights.
        **fields: Sizes of the model as fields of `Seq2SeqConfig`, such as `hidden_dim=512`;
            `vocabulary_size` adds rows to the tables.

    Returns:
        The folder.

    Raises:
        ValueError: If there is no such name or field, or a number does not fit.
        FileExistsError: If `directory` exists.

    Example:
        ```python
        import pathlib, tempfile

        from keras_addnorm.interop import make_random_folder

        folder = make_random_folder("nllb", pathlib.Path(tempfile.mkdtemp()) / "nllb")
        assert (folder / "config.json").is_file()
        ```
    """
    require_int("A seed draws the weights.", least=0, seed=seed)
    if not isinstance(name, str) or name not in _RECIPES:
        raise ArgumentError(
            "There is no such folder to make.", f"one of {', '.join(_RECIPES)}", value=name
        )
    recipe = _RECIPES[name]
    text_files, number = recipe.text_files()
    size = fields.pop("vocabulary_size", number)
    if recipe.write is not None and size != number:
        raise ArgumentError(
            f"The table of a random folder of {name} has one row for each token.",
            "no `vocabulary_size`",
            value=size,
        )
    if unknown := sorted(set(fields) - set(_SIZES)):
        raise ArgumentError(
            "A random folder has no such size.",
            f"some of {', '.join(_SIZES)} and `vocabulary_size`",
            received=", ".join(unknown),
        )
    sizes = {
        **_SIZES,
        **fields,
        "source_vocabulary_size": size,
        "target_vocabulary_size": size,
    }
    if recipe.pad_is_last:
        sizes |= {"pad_id": number - 1, "start_id": number - 1}
    directory = require_new(directory)
    with atomic_folder(directory) as folder:
        for file, content in text_files.items():
            (folder / file).write_bytes(content)
        if recipe.write is not None:
            recipe.write(folder, sizes, lambda config: _random_model(config, seed))
        else:
            family = families.get(recipe.family)
            write = _write_huggingface if isinstance(family, HuggingFaceFamily) else _write_npz
            write(folder, family, sizes, recipe, seed)
    return directory


def _write_huggingface(
    folder: Path, family: Family, sizes: Mapping[str, Any], recipe: _Recipe, seed: int
) -> None:
    assert isinstance(family, HuggingFaceFamily)
    settings = dict(recipe.settings)
    for field in family.config_file.fields:
        for ours in field.ours:
            if ours in sizes and field.name not in settings:
                settings[field.name] = sizes[ours]
    config = family.config_file.read(settings)
    model = _random_model(config, seed)
    table = family.weights(config)
    write_safetensors(
        folder / "model.safetensors", table.shapes(model), lambda name: table.read(model, name)
    )
    write_json(folder / "config.json", family.settings(config, settings))
    search = {"max_length": config.max_length, **special_ids(config), **recipe.search}
    write_json(folder / "generation_config.json", search)


def _write_npz(
    folder: Path, family: Family, sizes: Mapping[str, Any], recipe: _Recipe, seed: int
) -> None:
    settings = {
        "type": "transformer",
        "dim-emb": sizes["hidden_dim"],
        "enc-depth": sizes["num_encoder_layers"],
        "dec-depth": sizes["num_decoder_layers"],
        "transformer-heads": sizes["num_heads"],
        "transformer-dim-ffn": sizes["intermediate_dim"],
        **recipe.settings,
    }
    shape = sizes["source_vocabulary_size"] - 1, sizes["hidden_dim"]  # without padding
    table_only: Any = {"Wemb": np.broadcast_to(np.float32(0), shape)}
    config = family.config(Checkpoint(folder, settings, table_only))
    model = _random_model(config, seed)
    table = family.weights(config)
    arrays: dict[str, Any] = {name: table.read(model, name) for name in table.shapes(model)}
    text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
    arrays["special:model.yml"] = np.frombuffer(text.encode() + b"\0", "int8")
    np.savez(folder / "model.npz", **arrays)
    (folder / "decoder.yml").write_text(
        "models: [model.npz]\nvocabs: [vocab.spm, vocab.spm]\nbeam-size: 4\nnormalize: 1\n"
    )


def _random_model(config: Seq2SeqConfig, seed: int) -> Seq2SeqTransformer:
    model = Seq2SeqTransformer(config)
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        shape = tuple(weight.shape)
        # Gains of ones and biases of zeros would hide mistakes.
        center, scale = (to_numpy(weight), 0.1) if len(shape) == 1 else (0.0, shape[-1] ** -0.5)
        weight.assign(center + scale * generator.standard_normal(shape, "float32"))
    return model


def _sentencepiece(kind: str = "unigram", **ids: Any) -> bytes:
    """Train a small model of pieces."""
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_SENTENCES),
        model_writer=writer,
        model_type=kind,
        vocab_size=90 if kind == "unigram" else 80,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
        **ids,
    )
    return writer.getvalue()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _marian(*languages: str) -> tuple[TextFiles, int]:
    model = _sentencepiece()
    pieces = [p for p in sentencepiece_pieces(model) if p not in ("<s>", "</s>", "<unk>")]
    names = ["</s>", "<unk>", *languages, *pieces, "<pad>"]
    ids = {name: index for index, name in enumerate(names)}
    return {"source.spm": model, "target.spm": model, "vocab.json": _json(ids)}, len(names)


def _marian_npz() -> tuple[TextFiles, int]:
    model = _sentencepiece(eos_id=0, unk_id=1, bos_id=-1, pad_id=-1)
    return {"vocab.spm": model}, len(sentencepiece_pieces(model)) + 1


def _list_of_tokens(*first: str) -> tuple[TextFiles, int]:
    """Return a model of pieces, and their names one a line behind special ones."""
    model = _sentencepiece()
    pieces = [p for p in sentencepiece_pieces(model) if p not in ("<s>", "</s>", "<unk>")]
    names = [*first, *pieces]
    text = "".join(f"{name}\n" for name in names).encode()
    return {"vocab.spm": model, other_toolkits.VOCABULARY: text}, len(names)


def _m2m_100() -> tuple[TextFiles, int]:
    model = _sentencepiece("bpe")
    pieces = [p for p in sentencepiece_pieces(model) if p not in ("<s>", "</s>", "<unk>")]
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    languages = [f"__{language}__" for language in M2M_100]
    files = {
        "sentencepiece.bpe.model": model,
        "vocab.json": _json({name: index for index, name in enumerate(names)}),
        "special_tokens_map.json": _json({"additional_special_tokens": languages}),
    }
    return files, len(names) + len(languages) + 8  # made-up words, as there


def _nllb() -> tuple[TextFiles, int]:
    return _moved_by_one("bpe", "deu_Latn", "eng_Latn", "fra_Latn")


def _mbart() -> tuple[TextFiles, int]:
    return _moved_by_one("unigram", *MBART_50)


def _moved_by_one(kind: str, *languages: str) -> tuple[TextFiles, int]:
    model = _sentencepiece(kind)
    first = len(sentencepiece_pieces(model)) + 1
    added = {
        str(first + index): {"content": name, "special": True}
        for index, name in enumerate((*languages, "<mask>"))
    }
    files = {
        "sentencepiece.bpe.model": model,
        "special_tokens_map.json": _json({"additional_special_tokens": languages}),
        "tokenizer_config.json": _json({"added_tokens_decoder": added}),
    }
    return files, first + len(added)


def _pegasus() -> tuple[TextFiles, int]:
    model = _sentencepiece(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return {"spiece.model": model}, len(sentencepiece_pieces(model)) + 103


def _t5() -> tuple[TextFiles, int]:
    model = _sentencepiece(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return {"spiece.model": model}, len(sentencepiece_pieces(model)) + 100 + 28


def _byt5() -> tuple[TextFiles, int]:
    return {"tokenizer_config.json": _json({"tokenizer_class": "ByT5Tokenizer"})}, 384


def _bart() -> tuple[TextFiles, int]:
    merges = ["\u0120 t", "h e", "\u0120t he", "i n", "e n"]
    names = ["<s>", "<pad>", "</s>", "<unk>", *byte_alphabet()]
    names += [merge.replace(" ", "") for merge in merges] + ["<mask>"]
    files = {
        "vocab.json": _json({name: index for index, name in enumerate(names)}),
        "merges.txt": "\n".join(["#version: 0.2", *merges, ""]).encode(),
    }
    return files, len(names)


_BEAM = {"num_beams": 4, "early_stopping": True}
_T5_TASKS = {"task_specific_params": {"translation_en_to_de": {}}, "decoder_start_token_id": 0}
_RECIPES: dict[str, _Recipe] = {
    "marian": _Recipe("marian", _marian, {"scale_embedding": True}, _BEAM, True),
    "marian_multilingual": _Recipe(
        "marian", lambda: _marian(">>deu<<", ">>fra<<"), {"scale_embedding": True}, _BEAM, True
    ),
    "marian_npz": _Recipe("marian_npz", _marian_npz),
    "t5": _Recipe("t5", _t5, _T5_TASKS),
    "t5_v1_1": _Recipe(
        "t5", _t5, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    ),
    "mt5": _Recipe("mt5", _t5, {"tie_word_embeddings": False, "scale_decoder_outputs": False}),
    "umt5": _Recipe("umt5", _t5, {"tie_word_embeddings": False}),
    "byt5": _Recipe("t5", _byt5, {"tokenizer_class": "ByT5Tokenizer"}),
    "m2m_100": _Recipe("m2m_100", _m2m_100, {}, _BEAM),
    "nllb": _Recipe("m2m_100", _nllb),
    "mbart": _Recipe(
        "mbart", _mbart, {"scale_embedding": True, "decoder_start_token_id": 2}, _BEAM
    ),
    "bart": _Recipe("bart", _bart, {"forced_bos_token_id": 0}, {**_BEAM, "forced_bos_token_id": 0}),
    "pegasus": _Recipe("pegasus", _pegasus, {"scale_embedding": True}, _BEAM),
    "opennmt_py": _Recipe(
        "opennmt_py",
        lambda: _list_of_tokens("<unk>", "<blank>", "<s>", "</s>"),
        write=other_toolkits.write_opennmt_py,
    ),
    "eole": _Recipe(
        "eole",
        lambda: _list_of_tokens("<unk>", "<blank>", "<s>", "</s>"),
        write=other_toolkits.write_eole,
    ),
    "joey_nmt": _Recipe(
        "joey_nmt",
        lambda: _list_of_tokens("<unk>", "<pad>", "<s>", "</s>"),
        write=other_toolkits.write_joey_nmt,
    ),
    "opennmt_tf": _Recipe(
        "opennmt_tf",
        lambda: _list_of_tokens("<blank>", "<s>", "</s>"),
        write=other_toolkits.write_opennmt_tf,
    ),
}
names = tuple(_RECIPES)
"""The folders that can be made."""
