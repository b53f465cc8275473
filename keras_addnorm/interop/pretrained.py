"""Pretrained encoder-decoder models of other toolkits as Keras models, and back."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import has_file, require_bool
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError, shown
from keras_addnorm.basics.text import require_moderate
from keras_addnorm.data import BaseTokenizer, TextFormat, TokenizerPair
from keras_addnorm.decoding import Search, Translations, translate
from keras_addnorm.decoding.search import OPTIONS
from keras_addnorm.decoding.strategies import StrategyLike
from keras_addnorm.interop import families
from keras_addnorm.interop.families.family import Family
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.marian_npz import is_marian_model
from keras_addnorm.interop.folders import require_intact, require_new, write_manifest
from keras_addnorm.interop.hub import find_checkpoint
from keras_addnorm.interop.tensor_files import StoredTensor
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, merge_lora
from keras_addnorm.models.checks import require_finite, require_tokenizers
from keras_addnorm.models.seq2seq import require_model

OF_THE_FOLDER = "folder"
"""`tokenizers=` of `load_pretrained`: those of the folder."""

FamilyLike = str | dict[str, Any] | Family

# A header stands at the beginning of a card.
_CARD, _HEADER = "README.md", 1 << 20
_LICENCE = re.compile(r"^license:\s*(?:-\s+)?['\"]?([^'\"\n]+)", re.MULTILINE)
_NOT_COMMERCIAL = re.compile(r"\bnc\b", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model that somebody else has trained, with all that belongs to it.

    Attributes:
        model: The model.
        tokenizers: Its tokenizers, or `None` if only weights were loaded.
        generation: How its makers search with it.
        family: The family of its files: what `save_pretrained` writes.
        licence: What its model card says, such as `"apache-2.0"`; `None` if it says nothing.
        text_files: The tokenizer's files by name, for the way back.
        notes: What the config of the checkpoint says, likewise.
    """

    model: Seq2SeqTransformer
    tokenizers: TokenizerPair | None
    generation: GenerationSettings
    family: Family
    licence: str | None = None
    text_files: Mapping[str, bytes] = dataclasses.field(default_factory=dict, repr=False)
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def text_format(self) -> TextFormat | None:
        """What stands around the tokens of a text: languages, prefixes, an end."""
        return None if self.tokenizers is None else self.tokenizers.text_format

    @property
    def _forced_language(self) -> str | None:
        """The language that the checkpoint translates into unless told otherwise."""
        forced = self.generation.forced_first
        if self.tokenizers is None or forced is None:
            return None
        text_format, target = self.tokenizers.text_format, self.tokenizers.target
        if "target" not in text_format.target_languages:
            return None
        piece = (target.pieces[forced].text,)
        for language in self.tokenizers.languages("target"):
            if text_format.with_languages(target=language).target_prefix == piece:
                return language
        return None

    def translate(
        self,
        texts: Sequence[str],
        source_language: str | None = None,
        target_language: str | None = None,
        *,
        search: Search | None = None,
        strategy: StrategyLike | None = None,
        num_beams: int | None = None,
        **options: Any,
    ) -> Translations:
        """Translate texts, by the search that the checkpoint asks for.

        Args:
            texts: The texts.
            source_language: Their language as the vocabulary names it, where the model has several.
            target_language: The language to translate into, likewise; `None` for that which the
                checkpoint forces, if it forces one.
            search: Another search; see `keras_addnorm.decoding.translate`.
            strategy: The checkpoint's search with another strategy.
            num_beams: The checkpoint's search with another number of hypotheses.
            **options: Other fields of the checkpoint's search, such as `max_length`, `constraints`
                and `splitting`, and further arguments of `keras_addnorm.decoding.translate`:
                `batch_size` and so on.

        Returns:
            The translations.

        Raises:
            ValueError: If there are no tokenizers, a language is missing or unknown, or both
                `strategy` and `num_beams` are given, or `max_length` is below the checkpoint's
                shortest output.
        """
        if self.tokenizers is None:
            raise ValueError(
                "There are no tokenizers: only weights were loaded. Expected a folder with the "
                "tokenizer's files and load_pretrained(folder), or model.generate on token ids."
            )
        if strategy is not None and num_beams is not None:
            raise ArgumentError(
                "A strategy has its own number of hypotheses.",
                "`strategy` or `num_beams`",
                received=f"both: {strategy!r} and {num_beams}",
            )
        if num_beams is not None:
            strategy = self.generation.with_beams(num_beams)
        given = {name: options.pop(name) for name in OPTIONS if name in options}
        if strategy is not None:
            given["strategy"] = strategy
        if search is None:
            search = dataclasses.replace(self.generation.search, **given)
            given = {}
            if search.constraints == self.generation.constraints:
                longest = search.max_length or self.model.config.max_length
                self.generation.require_length(longest)
        return translate(
            self.model,
            self.tokenizers,
            texts,
            search=search,
            source_language=source_language,
            target_language=target_language or self._forced_language,
            **given,
            **options,
        )


def load_pretrained(
    name: str | os.PathLike[str],
    family: FamilyLike | None = None,
    *,
    tokenizers: TokenizerPair | BaseTokenizer | str | None = OF_THE_FOLDER,
    dtype: str | None = None,
    verify: bool = True,
    ignored: tuple[str, ...] = (),
    target_language: str | None = None,
) -> Pretrained:
    """Loads an encoder-decoder Transformer that another toolkit has trained.

    Nothing in the folder is run, and neither torch nor transformers is needed. Weights are read one
    after the other, and computed with in float32.

    Args:
        name: A folder of Hugging Face's; a folder, an `.npz` or a `.bin` of Marian's; a folder or a
            file of OpenNMT's, Eole's or Joey NMT's; a file of PyTorch's or of safetensors, for a
            family without a `config.json`; or the name of a model at huggingface.co, such as
            `"Helsinki-NLP/opus-mt-en-de"`.
        family: The kind of the files: a name of `keras_addnorm.interop.families`, its dict or
            object; `None` for what `config.json` says.
        tokenizers: `"folder"` for the folder's own; `None` for none; or tokenizers that you have.
        dtype: The dtype policy of the layers; `None` for Keras' default.
        verify: Whether files are compared with their digests, which only `save_pretrained` writes.
        ignored: Settings of the config that are not known here, and change nothing in what the
            model computes: the field `ignored` of every family.
        target_language: The language to translate into, as the vocabulary names it; `None` to name
            it with each call, or for that of the files where targets start with it.

    Returns:
        The model with what belongs to it.

    Raises:
        FileNotFoundError: If there is no such folder, or a file is missing in it.
        ValueError: If the family is unknown, the model has something that our layers do not
            compute, or a file is damaged; all reasons at once.
        ImportError: If an optional package is needed; the message names it.

    Example:
        ```python
        import pathlib, tempfile

        from keras_addnorm.interop import load_pretrained, make_random_folder

        folder = make_random_folder("marian", pathlib.Path(tempfile.mkdtemp()) / "opus")
        opus = load_pretrained(folder)
        translations = opus.translate(["A dog runs."], max_length=4).texts
        assert len(translations) == 1
        ```
    """
    require_bool(verify=verify)
    path = find_checkpoint(name)
    if verify:
        require_intact(path)
    given = None if family is None else families.get(family)
    pair: TokenizerPair | None = None
    if not isinstance(tokenizers, str):
        pair = None if tokenizers is None else TokenizerPair.of(tokenizers)
    elif tokenizers != OF_THE_FOLDER:
        raise ArgumentError(
            expected=f"`tokenizers={OF_THE_FOLDER!r}`, None, or tokenizers that you have",
            value=tokenizers,
        )
    with _reading(path):
        kind = given or _family_of(path)
    kind = kind.ignoring(ignored)
    if target_language is not None:
        kind = kind.into(target_language)
    with _reading(path, kind):
        checkpoint = kind.open(path)
        config = kind.config(checkpoint)
        _require_sizes(config, checkpoint.tensors)
        table = kind.weights_of(checkpoint, config)
        tensors = table.named(checkpoint.tensors, families.name_of(kind))
        if isinstance(tokenizers, str):
            pair = kind.tokenizers(checkpoint, config)
        generation = kind.generation(checkpoint, config)
        if pair is not None:
            require_tokenizers(config, pair)
            is_start = pair.target.pieces[config.start_id].text == target_language
            if target_language is not None and not is_start:
                pair = pair.with_languages(target=target_language)
            pair = _beginning_with(generation.forced_first, pair)
    model = table.load(lambda: Seq2SeqTransformer(config, dtype=dtype), tensors)
    licence = _licence(checkpoint.folder)
    if licence is not None and _NOT_COMMERCIAL.search(licence):
        warnings.warn(
            f"The weights of '{name}' may not be used commercially: its model card says "
            f"{licence!r}.",
            stacklevel=2,
        )
    return Pretrained(
        model,
        pair,
        generation,
        kind,
        licence,
        _text_files(checkpoint.folder, kind),
        checkpoint.settings,
    )


def save_pretrained(
    pretrained: Pretrained,
    directory: str | os.PathLike[str],
    family: FamilyLike | None = None,
) -> Path:
    """Writes a model as the toolkit of its family reads it.

    What LoRA has learned is merged into the weights.

    Args:
        pretrained: The model with what belongs to it, from `load_pretrained`; for a model that was
            trained further, `dataclasses.replace(pretrained, model=model)`.
        directory: The folder to make: `model.safetensors` in float32, `config.json` and
            `generation_config.json`, where the family has them (of Marian `model.npz`, its
            vocabularies and `decoder.yml`), the tokenizer's files, a model card that names the
            licence, and the digests of the files. It appears whole or not at all.
        family: The family to write; `None` for that of `pretrained`.

    Returns:
        The folder.

    Raises:
        TypeError: If `pretrained` is something else.
        ValueError: If a model of the family cannot be like this one, all reasons at once; or if a
            weight is not finite.
        FileExistsError: If `directory` exists.

    Example:
        ```python
        import pathlib, tempfile

        from keras_addnorm.interop import load_pretrained, make_random_folder, save_pretrained

        folder = pathlib.Path(tempfile.mkdtemp())
        t5 = load_pretrained(make_random_folder("t5", folder / "t5"))
        save_pretrained(t5, folder / "mine")
        assert (folder / "mine" / "model.safetensors").is_file()
        ```
    """
    if not isinstance(pretrained, Pretrained):
        raise ArgumentTypeError(
            "A folder holds a model with what belongs to it.",
            "a Pretrained, as load_pretrained returns it",
            value=pretrained,
        )
    kind = pretrained.family if family is None else families.get(family)
    model = merge_lora(require_model(pretrained.model))
    require_finite(model)
    directory = require_new(directory)
    with atomic_folder(directory) as folder:
        kind.write(folder, model, pretrained.tokenizers, pretrained.generation, pretrained.notes)
        if pretrained.licence is not None:
            (folder / _CARD).write_text(f"---\nlicense: {pretrained.licence}\n---\n")
        for name, content in pretrained.text_files.items():
            (folder / name).write_bytes(content)
        write_manifest(folder)
    return directory


def _require_sizes(config: Seq2SeqConfig, tensors: Mapping[str, StoredTensor]) -> None:
    """Refuse sizes that no model of these tensors has, before anything of such a size is made."""
    vocabulary = max(config.source_vocabulary_size, config.target_vocabulary_size)
    numbers = sum(math.prod(tensor.shape) for tensor in tensors.values())
    limits = {
        "num_encoder_layers": (config.num_encoder_layers, len(tensors)),
        "num_decoder_layers": (config.num_decoder_layers, len(tensors)),
        "hidden_dim x vocabulary": (config.hidden_dim * vocabulary, numbers),
    }
    if config.positions == "learned":  # Their table is one of the tensors.
        limits["max_length"] = (config.max_length, numbers // config.hidden_dim)
    if wrong := [
        f"{name} = {size} (at most {limit})"
        for name, (size, limit) in limits.items()
        if size > limit
    ]:
        raise ArgumentError(
            "The config has sizes that its weights do not have.",
            f"those of {len(tensors)} tensors with {numbers} numbers",
            "Copy or download the folder again.",
            received=", ".join(wrong),
        )


def _family_of(path: Path) -> Family:
    """Return the family that a folder or a file belongs to."""
    if path.is_dir():
        if has_file(path / "config.json"):
            return families.of_settings(families.read_settings(path))
        if any(map(is_marian_model, path.iterdir())):
            return families.get("marian_npz")
        raise FileNotFoundError(
            f"'{path}' says nowhere what kind of model it holds. Expected a 'config.json', or an "
            f".npz or .bin of Marian. Pass the family, one of {', '.join(families.names())}."
        )
    if is_marian_model(path):
        return families.get("marian_npz")
    raise ArgumentError(
        "A file of weights does not say what kind of model it holds.",
        f"a family, one of {', '.join(families.names())}",
        "Pass its folder if there is a config.json beside it, or family={'name': "
        "'torch_transformer', ...}.",
        received=f"family=None for '{path}'",
    )


def _beginning_with(forced: int | None, pair: TokenizerPair) -> TokenizerPair:
    """Return tokenizers whose targets begin with a forced token, unless they have a first piece."""
    if forced is None or pair.text_format.target_prefix:
        return pair
    pieces = pair.target.pieces
    piece = pieces[forced].text if 0 <= forced < len(pieces) else ""
    if pair.target.ids_of_pieces.get(piece) != forced:
        raise ArgumentError(
            "The forced_bos_token_id of the checkpoint is no piece of its vocabulary.",
            f"an id below {pair.target.vocabulary_size} that has a piece",
            value=forced,
        )
    text_format = dataclasses.replace(pair.text_format, target_prefix=(piece,))
    return dataclasses.replace(pair, text_format=text_format)


def _licence(folder: Path) -> str | None:
    """Return the licence that the model card, a README with a header, names."""
    card = folder / _CARD
    if not card.is_file():
        return None
    with card.open("rb") as file:
        text = file.read(_HEADER).decode("utf-8", errors="replace")
    _, *rest = text.replace("\r\n", "\n").split("---\n", 2)
    match = _LICENCE.search(rest[0]) if rest else None
    return match[1].strip() if match else None


def _text_files(folder: Path, family: Family) -> dict[str, bytes]:
    """Return the files that the family's tokenizers are made of, and no others."""
    names = [name for name in family.text_files if (folder / name).is_file()]
    for name in names:
        require_moderate(folder / name)
    return {name: (folder / name).read_bytes() for name in names}


@contextlib.contextmanager
def _reading(path: Path, family: Family | None = None) -> Iterator[None]:
    """Name the checkpoint, and where its settings stand, in errors about what its files hold."""
    known = [name for name in family.settings_files if (path / name).is_file()] if family else []
    place = f"'{path}' ({', '.join(known)})" if known else f"'{path}'"
    try:
        yield
    except ArgumentError as error:
        if str(path) in str(error):
            raise
        remedy = f"This was read from {place}."
        raise ArgumentError(remedy=remedy, because=error) from error
    except FileNotFoundError as error:
        if error.errno is not None:  # The system's, which has a number.
            raise
        raise FileNotFoundError(shown(str(error))) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(
            f"A file of {place} holds a value of another kind than its toolkit writes: "
            f"{type(error).__name__}, {error}. Expected the files as they were published. Copy or "
            "download them again."
        ) from error
    except ValueError as error:
        # Classes of errors of their own say more than a text.
        if type(error) is not ValueError:
            raise
        said = shown(str(error))
        if str(path) not in said:
            said = f"{said.rstrip('.')}. This was read from {place}."
        raise ValueError(said) from error
