"""Exports a model to Bergamot's engine, which translates in Firefox, in eight bits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.resources import read_resource
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.decoding import Lexicon, translate
from keras_addnorm.decoding.checks import listed, require_type
from keras_addnorm.decoding.shortlist import require_fit
from keras_addnorm.interop.browser_page import BrowserPage
from keras_addnorm.interop.families.marian_npz import SETTINGS, MarianTensors
from keras_addnorm.interop.families.marian_settings import HEAD, as_yaml
from keras_addnorm.interop.families.marian_shortlist import write_shortlist
from keras_addnorm.interop.families.marian_tensors import ACTIVATIONS, BIAS
from keras_addnorm.interop.families.marian_vocabulary import MarianVocabulary, write_vocabularies
from keras_addnorm.interop.families.rows import NEVER, weight_at
from keras_addnorm.interop.folders import require_new, write_manifest
from keras_addnorm.interop.tensor_files import EightBitMatrix, write_marian_bin
from keras_addnorm.models import Seq2SeqTransformer, merge_lora
from keras_addnorm.models.checks import require_finite, require_vocabularies
from keras_addnorm.models.seq2seq import require_model

MODEL, SHORTLIST, CONFIG = "model.bin", "lex.bin", "config.yml"

# What the engine's products of whole numbers need of the two widths.
_COLUMNS, _INNER = 8, 64
# The multiplier of the logits' product is looked up under both names.
_LOGITS = ("none", "Wemb")
_LARGEST, _DEVIATIONS = 127, 1.1
_LONGEST_SAMPLE = 64
_SEARCH = {
    "beam-size": 1,
    "normalize": 1.0,
    "word-penalty": 0,
    "max-length-break": 128,
    "max-length-factor": 2.0,
    "mini-batch-words": 1024,
    "workspace": 128,
    "skip-cost": True,
    "cpu-threads": 0,
    "quiet": True,
    "quiet-translation": True,
    "alignment": "soft",
}


def export_bergamot(
    model: Seq2SeqTransformer,
    tokenizer: BaseTokenizer | TokenizerPair,
    directory: str | os.PathLike[str],
    *,
    samples: Sequence[str] = (),
    lexicon: Lexicon | None = None,
    page: BrowserPage | None = None,
) -> Path:
    """Writes a model as the engine of Bergamot and Firefox reads it, in eight bits.

    Each matrix W becomes `round(127 W / max|W|)`, and the engine multiplies it with activations x
    that are rounded to `round(q x)`. From samples the export measures one q for each product,
    `127 / (mean + 1.1 * standard deviation)` of `max|x|` over the sentences; without samples the
    engine takes `127 / max|x|` of each batch. Biases and norms stay in float32.

    Args:
        model: A model that Marian can have: Post-LN or Pre-LN, `start_embedding="zeros"`,
            sinusoidal positions in halves with `half_minus_one` timescales, one tied table for both
            sides; with self-attention, SSRU or average attention in the decoder. Its widths are
            multiples of 64.
        tokenizer: Its tokenizers, or the one for both languages; SentencePiece's.
        directory: The folder to make: `model.bin`, `lex.bin`, `vocab.spm` (or `source.spm` and
            `target.spm`), `config.yml` and a `README.md`. It appears whole or not at all.
        samples: Source texts, some dozens, that the activations are measured on.
        lexicon: What each source token is translated with, for the shortlist; `None` for a
            shortlist that holds all tokens.
        page: The page to put beside the model, on which it translates in a browser; `None` for
            none.

    Returns:
        The folder.

    Raises:
        TypeError: If `model` or `tokenizer` is something else.
        ValueError: If the engine cannot have such a model, the tokenizer does not belong to it, or
            a weight is not finite.
        FileExistsError: If `directory` exists.

    Example:
        ```python
        import pathlib, tempfile

        from keras_addnorm.data import Tokenizer
        from keras_addnorm.interop import export_bergamot, load_pretrained
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

        tokenizer = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
        config = Seq2SeqConfig.preset(
            "micro",
            source_vocabulary_size=14,
            target_vocabulary_size=14,
            scheme="post_ln",
            hidden_dim=64,
            activation="relu",
            self_attention="ssru",
            positions={"name": "sinusoidal", "layout": "halves", "timescales": "half_minus_one"},
            share_embeddings=True,
            start_embedding="zeros",
        )
        directory = pathlib.Path(tempfile.mkdtemp()) / "model"
        export_bergamot(Seq2SeqTransformer(config), tokenizer, directory)
        assert load_pretrained(directory).model.config.self_attention == "ssru"
        ```

    Reference:
        Bogoychev et al., "Edinburgh's Submissions to the 2020 Machine Translation Efficiency Task",
        2020, section 3.
    """
    require_finite(require_model(model))
    tokenizers = TokenizerPair.of(tokenizer)
    require_vocabularies(model.config, tokenizers)
    _check_widths(model)
    samples = [require_type("A sample", text, str) for text in listed("Samples", samples)]
    if lexicon is not None:
        require_type("A lexicon", lexicon, Lexicon)
        require_fit(lexicon, model.config)
    if page is not None:
        require_type("A page", page, BrowserPage)
    merged = merge_lora(model)
    vocabularies = [MarianVocabulary.of(each) for each in (tokenizers.source, tokenizers.target)]
    tensors = MarianTensors.of(merged, vocabularies)
    directory = require_new(directory)
    multipliers = _multipliers(merged, tensors, tokenizers, samples) if samples else {}
    size = _whole(len(vocabularies[1].ids))
    precision = "int8shiftAlphaAll" if samples else "int8shiftAll"
    with atomic_folder(directory) as folder:
        files = write_vocabularies(folder, vocabularies, size)
        write_marian_bin(folder / MODEL, {**_stored(tensors, size), **multipliers})
        source, target = (each.ids for each in vocabularies)
        write_shortlist(folder / SHORTLIST, lexicon, source, target, size)
        named = {"models": [MODEL], "vocabs": files, "shortlist": [SHORTLIST, False]}
        settings = {"relative-paths": True, **named, **_SEARCH, "gemm-precision": precision}
        (folder / CONFIG).write_text(as_yaml(settings), encoding="utf-8")
        _write_readme(folder, files, precision, page)
        if page is not None:
            parts = {"weights": [MODEL], "shortlist": [SHORTLIST], "vocabularies": files}
            page.write(folder, parts, precision, vocabularies[0].tokenizer.normalizer.rule.form)
        write_manifest(folder)
    return directory


def _write_readme(
    folder: Path, vocabularies: Sequence[str], precision: str, page: BrowserPage | None
) -> None:
    readme = read_resource(__package__, "templates", "bergamot.md")
    about = "" if page is None else read_resource(__package__, "templates", "bergamot_page.md")
    text = readme.replace("VOCABULARIES", ", ".join(dict.fromkeys(vocabularies)))
    text = text.replace("PRECISION", precision).replace("PAGE\n", about)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _whole(size: int) -> int:
    """Return the next number of columns that the engine's products take."""
    return -(-size // _COLUMNS) * _COLUMNS


def _check_widths(model: Seq2SeqTransformer) -> None:
    config = model.config
    widths = {"hidden_dim": config.hidden_dim, "intermediate_dim": config.intermediate_dim}
    if wrong := {name: width for name, width in widths.items() if width % _INNER}:
        raise ArgumentError(
            "The engine's eight-bit products take whole blocks.",
            f"widths that are multiples of {_INNER}",
            "Train a model of such widths; 'student-tiny' is one.",
            value=wrong,
        )
    if not (config.tie_embeddings and config.share_embeddings):
        raise ArgumentError(
            "The engine has one table for both sides and the logits.",
            "`share_embeddings=True` and `tie_embeddings=True`",
            share_embeddings=config.share_embeddings,
            tie_embeddings=config.tie_embeddings,
        )


def _stored(tensors: MarianTensors, size: int) -> dict[str, Any]:
    """Return the tensors as the file holds them: matrices in eight bits, rows of a round number."""
    found: dict[str, Any] = {}
    for name in tensors.names:
        numbers = tensors.read(name)
        if name == SETTINGS:
            found[name] = as_yaml({**tensors.settings, "dim-vocabs": [size, size]}).encode() + b"\0"
        elif name == BIAS:
            more = size - numbers.shape[1]
            found[name] = np.pad(numbers, ((0, 0), (0, more)), constant_values=NEVER)
        elif name == "Wemb":
            found[name] = EightBitMatrix.of(np.pad(numbers, ((0, size - len(numbers)), (0, 0))))
        elif _is_matrix(numbers):
            found[name] = EightBitMatrix.of(numbers)
        else:
            found[name] = numbers
    return found


def _is_matrix(numbers: np.ndarray) -> bool:
    return numbers.ndim == 2 and numbers.shape[0] > 1


def _multipliers(
    model: Seq2SeqTransformer,
    tensors: MarianTensors,
    tokenizers: TokenizerPair,
    samples: Sequence[str],
) -> dict[str, np.ndarray]:
    """Return what the engine multiplies the activations of each product by."""
    names = {
        path.removesuffix(".kernel"): row.theirs
        for row in tensors.table.rows
        for path in row.ours
        if path.endswith(".kernel")
    }
    texts = list(samples)
    found = translate(model, tokenizers, texts, num_beams=1, max_length=_LONGEST_SAMPLE).texts
    layers = {their: weight_at(model, path) for path, their in names.items()}
    end, start = tokenizers.target.end_id, model.config.start_id
    with _largest_inputs(layers, model.decoder) as largest:
        for text, translation in zip(texts, found, strict=True):
            source = [*tokenizers.source.encode(text)[:_LONGEST_SAMPLE], tokenizers.source.end_id]
            target = [start, *tokenizers.target.encode(translation)[:_LONGEST_SAMPLE]]
            ids = {"source": source, "target": target if target[1:] else [start, end]}
            model({side: np.array([row], "int32") for side, row in ids.items()}, training=False)
    multipliers = {name: _LARGEST / _usual(values) for name, values in largest.items()}
    logits = multipliers.pop(HEAD)
    multipliers |= dict.fromkeys(_LOGITS, logits)
    return {
        f"{name}{ACTIVATIONS}": np.full((1, 1), value, np.float32)
        for name, value in multipliers.items()
    }


def _usual(values: Sequence[float]) -> float:
    """Return the largest number that a product usually reads."""
    return max(float(np.mean(values) + _DEVIATIONS * np.std(values)), 1e-6)


@contextlib.contextmanager
def _largest_inputs(layers: dict[str, Any], decoder: Any) -> Iterator[dict[str, list[float]]]:
    """Record `max|x|` of what each layer reads, and of what the logits are made of, `HEAD`."""
    found: dict[str, list[float]] = {}

    def note(name: str, x: Any) -> None:
        found.setdefault(name, []).append(float(ops.max(ops.abs(ops.convert_to_tensor(x)))))

    def reading(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(x: Any, *args: Any, **kwargs: Any) -> Any:
            note(name, x)
            return call(x, *args, **kwargs)

        return noted

    def returning(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            note(HEAD, outputs[0] if isinstance(outputs, tuple) else outputs)
            return outputs

        return noted

    try:
        for name, layer in layers.items():
            layer.call = reading(name, layer.call)
        decoder.call = returning(decoder.call)
        yield found
    finally:
        for layer in (*layers.values(), decoder):
            del layer.call
