"""Writes `assets.extra/` of an export: model card, README, server settings, warm-up requests.

TensorFlow Serving reads the warm-up requests from this folder.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_addnorm import __version__
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.printing import printable, shortened
from keras_addnorm.basics.resources import read_resource
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.data.vocabulary import SPACE_MARK
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.serving.graph_text_format import LANGUAGE_INPUTS, SIDES
from keras_addnorm.serving.request_batches import Buckets

FOLDER = "assets.extra"
_LIBRARIES = ("keras", "tensorflow", "sentencepiece")
_DEFAULT = "serving_default"
_template = functools.partial(read_resource, __package__, "templates")
_MOST_WARMUP_RECORDS = 1000  # TensorFlow Serving refuses a version with more of them

_SPLITTINGS = {
    "sentences": """\
A text may be of any length: it is split into lines and sentences, whose translations are joined.
`score` cuts a source off at {max_source_tokens} tokens.""",
    "long_texts": """\
A text of more than {max_source_tokens} tokens is split into lines and sentences, whose translations
are joined. `score` cuts a source off at that length.""",
    "none": """\
A text of more than {max_source_tokens} tokens is cut there.""",
}

_LANGUAGE_INPUTS = """
The languages are inputs, {inputs}: one string for each text, or one for all of a request; a server
that puts requests together needs one for each. The names are those of `languages` in `model.json`,
such as {names}.
"""

_LEADING_PIECE = """
A text may begin with a piece of its own, such as {example}, which says what the model is to do.
"""

_WORDS = """
The export puts the words {words} before each text.
"""

_SHORTLIST = """
The search considers only the {size:,} target pieces that the texts of a batch are likely to need.
This is faster than the whole vocabulary, and not exact: a translation can depend on the other texts
of its batch, and scores are a little higher than those of `score`.
"""


def write_extras(
    folder: Path,
    place: Path,
    model: Seq2SeqTransformer,
    tokenizers: TokenizerPair,
    signatures: Mapping[str, tf.types.experimental.ConcreteFunction],
    buckets: Buckets,
    settings: Mapping[str, Any],
    card: Mapping[str, Any],
    languages: Mapping[str, str] | None = None,
) -> None:
    """Writes the folder `assets.extra` of a version.

    Args:
        folder: The folder of the version, as it is being written.
        place: The final folder of the version: `<name>/<version>`.
        model: The model.
        tokenizers: Its tokenizers.
        signatures: The exported functions.
        buckets: The shapes of `translate_xla`, and of the warm-up.
        settings: Settings of decoding and storage, for the card.
        card: Entries of the user, for the card.
        languages: A language for each input that is one; `None` if there are none.
    """
    languages = languages or {}
    around = tokenizers.with_languages(*map(languages.get, LANGUAGE_INPUTS.values())).bound_format
    name, version = place.parent.resolve().name, place.name  # resolved: it may be "."
    extras = folder / FOLDER
    extras.mkdir()
    largest = buckets.batch[-1]
    size = settings["decoding"]["shortlist"]
    texts = {
        "model.json": json.dumps(_card(model, tokenizers, settings, card), indent=2) + "\n",
        "models.config": _template("models.config").format(name=name),
        "batching.config": _template("batching.config").format(
            largest=largest,
            allowed="\n".join(f"allowed_batch_sizes: {size}" for size in buckets.batch),
        ),
        "README.md": _template("README.md").format(
            name=name,
            version=version,
            folder=FOLDER,
            signatures="\n".join(_describe(*item) for item in signatures.items()),
            splitting=_splitting(settings["decoding"]["splitting"]["name"]).format(
                max_source_tokens=around.longest_source(model.config.max_length)
            ),
            around="".join(_around(tokenizers, languages)),
            **_example(languages),
            batch_size=largest,
            shortlist="" if size is None else _SHORTLIST.format(size=size),
        ),
    }
    for file, text in texts.items():
        (extras / file).write_text(text, encoding="utf-8")
    with tf.io.TFRecordWriter(str(extras / "tf_serving_warmup_requests")) as writer:
        for record in warmup_records(
            name, tokenizers.source, signatures, buckets, languages, around.source_length
        ):
            writer.write(record)


def checked_card(card: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the entries of the user, or raise a `ValueError` if JSON cannot hold them."""
    card = {} if card is None else card
    try:
        if not isinstance(card, Mapping):
            raise TypeError(f"it is a {type(card).__name__}")
        json.dumps(dict(card), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            "The card is written as JSON.",
            "a dict of plain values: texts, finite numbers, lists and dicts",
            received=f"another one: {error}",
        ) from error
    return card


def warmup_records(
    name: str,
    tokenizer: BaseTokenizer,
    signatures: Mapping[str, tf.types.experimental.ConcreteFunction],
    buckets: Buckets,
    languages: Mapping[str, str],
    num_around: int = 1,
) -> Iterator[bytes]:
    """Makes the warm-up requests, so that no user waits for TensorFlow to prepare a signature.

    TensorFlow prepares each signature at its first request, whatever its shape. So there is one
    request of each bucket's shape for `serving_default`, and one for each other signature. None
    uses XLA: a server that refuses XLA would refuse the whole version.

    Args:
        name: The model's name.
        tokenizer: The tokenizer of the source.
        signatures: The exported functions.
        buckets: The shapes.
        languages: A language for each input that is one.
        num_around: Number of tokens that stand around those of a text.

    Yields:
        Serialised `PredictionLog` messages.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    of_length = functools.cache(functools.partial(text_of, tokenizer))
    others = [key for key in signatures if key != _DEFAULT and not key.endswith("_xla")]
    most_shapes = _MOST_WARMUP_RECORDS - len(others)
    shapes = [(_DEFAULT, *shape) for shape in buckets.shapes[:most_shapes]]
    for signature, rows, columns in [*shapes, *((key, 1, 1) for key in others)]:
        log = prediction_log_pb2.PredictionLog()
        request = log.predict_log.request
        request.model_spec.name = name
        request.model_spec.signature_name = signature
        text = of_length(max(1, columns - num_around))
        for argument in _inputs(signatures[signature]):
            value = languages.get(argument, text)
            request.inputs[argument].CopyFrom(tf.make_tensor_proto([value] * rows))
        yield log.SerializeToString()


def _splitting(name: str) -> str:
    """What the README says of a way of splitting; of one of the user's own only its name."""
    return _SPLITTINGS.get(name, f"Texts are split in the way `{name}`.")


def _around(tokenizers: TokenizerPair, languages: Mapping[str, str]) -> Iterator[str]:
    """What the README says of what stands around a text."""
    found = tokenizers.text_format
    if languages:
        names = {name: f"`{name}`" for name in languages}
        yield _LANGUAGE_INPUTS.format(
            inputs=" and ".join(names.values()),
            names=" and ".join(map(_in_line, languages.values())),
        )
    if found.leading_piece is not None:
        opening, closing = found.leading_piece
        pieces = (piece.text for piece in tokenizers.source.pieces)
        example = next((p for p in pieces if p.startswith(opening) and p.endswith(closing)), None)
        yield _LEADING_PIECE.format(example=_in_line(example or f"{opening}...{closing}"))
    if found.text_prefix:
        yield _WORDS.format(words=_in_line(found.text_prefix))


def _in_line(text: str) -> str:
    """A piece of a vocabulary within a line of the README."""
    return f"`{printable(shortened(text.replace('`', '')))}`"


def _example(languages: Mapping[str, str]) -> dict[str, str]:
    """What the README's requests have besides a text."""
    instance = {"texts": "a text", **languages} if languages else "a text"
    # A language is a piece of a vocabulary, which may come from a file: here it is code.
    languages = {name: json.dumps(language) for name, language in languages.items()}
    return {
        # It stands in the quotation marks of a shell.
        "instance": json.dumps(instance, ensure_ascii=False).replace("'", r"\u0027"),
        "requested": "".join(
            f'request.inputs["{name}"].CopyFrom(tf.make_tensor_proto([{language}]))\n'
            for name, language in languages.items()
        ),
        "constants": "".join(
            f", {name}=tf.constant([{language}])" for name, language in languages.items()
        ),
        "arguments": "".join(f", {name}={language}" for name, language in languages.items()),
    }


def text_of(tokenizer: BaseTokenizer, count: int) -> str:
    """A text of so many tokens; of fewer, if the tokenizer does not make it of one word."""
    word = _word_of_one_token(tokenizer)
    for joint in (" ", ""):
        text = joint.join([word] * count)
        if len(tokenizer.encode(text)) == count:
            return text
    each = len(tokenizer.encode(" ".join([word] * count))) / count
    return " ".join([word] * max(1, int(count / each)))


def _word_of_one_token(tokenizer: BaseTokenizer) -> str:
    """A word that the tokenizer does not split; "a" if there is none."""
    for token, piece in enumerate(tokenizer.pieces):
        word = piece.text.removeprefix(SPACE_MARK)
        if word and word != piece.text and tokenizer.encode(word) == [token]:
            return word
    return "a"


def _card(
    model: Seq2SeqTransformer,
    tokenizers: TokenizerPair,
    settings: Mapping[str, Any],
    card: Mapping[str, Any],
) -> dict[str, Any]:
    sides = {side: getattr(tokenizers, side) for side in SIDES}
    return {
        "config": model.config.to_dict(),
        "parameters": model.count_params(),
        "tokenizer": {
            "joint": tokenizers.is_joint,
            **{
                side: {
                    "kind": tokenizer.kind,
                    "vocabulary_size": tokenizer.vocabulary_size,
                    "normalization": tokenizer.normalization,
                }
                for side, tokenizer in sides.items()
            },
        },
        "text_format": tokenizers.text_format.to_dict(),
        "languages": {side: names for side in SIDES if (names := tokenizers.languages(side))},
        **settings,
        **card,
        "versions": {
            "keras-addnorm": __version__,
            **{library: importlib.metadata.version(library) for library in _LIBRARIES},
        },
    }


def _describe(name: str, function: Any) -> str:
    return f"| `{name}` | {_list(_inputs(function))} | {_list(function.structured_outputs)} |"


def _inputs(function: Any) -> dict[str, tf.TensorSpec]:
    positional, named = function.structured_input_signature
    return {**{spec.name: spec for spec in positional}, **named}


def _list(specs: Mapping[str, tf.TensorSpec]) -> str:
    def shape(spec: tf.TensorSpec) -> str:
        return ", ".join("?" if size is None else str(size) for size in spec.shape)

    return ", ".join(f"`{n}`: {spec.dtype.name} [{shape(spec)}]" for n, spec in specs.items())
