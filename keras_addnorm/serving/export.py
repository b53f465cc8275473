"""One SavedModel that takes strings and returns strings."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_addnorm import __version__
from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.decoding import decode
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer
from keras_addnorm.serving.versions import choose_version, new_version

_LIBRARIES = ("keras", "tensorflow", "sentencepiece")

_README = """\
# A translation model

A TensorFlow SavedModel. Its signature `serving_default` takes `texts` (strings, any number) and
returns `translations` (strings) and `scores` (the log-probability of each translation, divided by
its length penalty). The tokenizer is inside. Blank texts give "" and the score 0; a text of more
than {max_source_tokens} tokens is cut there. `model.json` says how the model was made.

With TensorFlow alone:

```python
import tensorflow as tf

model = tf.saved_model.load("{path}")
print(model.signatures["serving_default"](texts=tf.constant(["a text"])))
```

With keras-addnorm, which also brings texts into Unicode form NFKC, the form the model was trained
on:

```python
from keras_addnorm.serving import load_translator

print(load_translator("{directory}")(["a text"]))
```

With TensorFlow Serving, which loads the directory of the versions:

```
curl -d '{{"instances": ["a text"]}}' http://localhost:8501/v1/models/{name}:predict
```
"""


def export_saved_model(
    model: Seq2SeqTransformer,
    tokenizer: Tokenizer | TokenizerPair,
    directory: str | os.PathLike[str],
    version: int | None = None,
    *,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    max_length: int | None = None,
) -> Path:
    """Writes a model with its tokenizer and its search as one SavedModel.

    `serving_default` maps `texts: string[None]` to `translations: string[None]` and
    `scores: float32[None]`, and equals `keras_addnorm.decoding.translate`. It needs neither Keras
    nor this package nor XLA, which TensorFlow Serving switches off. The version appears whole or
    not at all; `assets.extra/` in it holds a `README.md` and a `model.json`.

    Args:
        model: The trained model, on the TensorFlow backend of Keras.
        tokenizer: Its tokenizers, or the one for both languages.
        directory: The folder of the versions, such as `saved_models/<name>`.
        version: Number of the version, or `None` for the highest one and one more.
        num_beams: Number of hypotheses; 1 is greedy search.
        length_penalty: The exponent of the GNMT penalty that scores are divided by.
        max_length: Number of tokens to generate at most; `None` for `model.config.max_length`.

    Returns:
        The folder of the version.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        TypeError: If `model` or `tokenizer` is something else.
        ValueError: If the tokenizer does not belong to the model, or a number does not fit.
        FileExistsError: If the version exists.

    Example:
        ```python
        import tempfile

        from keras_addnorm.data import Tokenizer
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
        from keras_addnorm.serving import export_saved_model, load_translator

        tokenizer = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
        config = Seq2SeqConfig.preset(
            "tiny", source_vocabulary_size=14, target_vocabulary_size=14, num_encoder_layers=1,
            num_decoder_layers=1, hidden_dim=16, intermediate_dim=32, max_length=8,
        )
        directory = tempfile.mkdtemp()
        export_saved_model(Seq2SeqTransformer(config), tokenizer, directory, num_beams=2)
        translator = load_translator(directory)
        (text, score), (nothing, zero) = translator(["a house", ""])
        assert (nothing, zero, translator.version) == ("", 0.0, 1)
        ```
    """
    _check_backend()
    tokenizers = TokenizerPair.of(tokenizer)
    _check_model(model, tokenizers)
    settings = _settings(model, num_beams, length_penalty, max_length)
    directory = Path(directory)
    version = choose_version(directory, version)
    module = _Translation(model, tokenizers, settings)
    with new_version(directory, version) as folder:
        tf.saved_model.save(module, str(folder), signatures={"serving_default": module.translate})
        _write_card(folder / "assets.extra", directory / str(version), model, tokenizers, settings)
    return directory / str(version)


class _Translation(tf.Module):
    """What is saved: the lookup tables, the weights, and one function."""

    def __init__(
        self, model: Seq2SeqTransformer, tokenizers: TokenizerPair, settings: dict[str, Any]
    ) -> None:
        super().__init__(name="translation")
        self.source_tokenizer = GraphTokenizer(tokenizers.source)
        self.target_tokenizer = (
            self.source_tokenizer if tokenizers.is_joint else GraphTokenizer(tokenizers.target)
        )
        # The variables by themselves: the model as an attribute would be saved, too, and every
        # weight twice.
        self.weights = [weight.value for weight in model.weights]
        self._decode = lambda source_ids: decode(model, source_ids, **settings)
        self._max_source_tokens = model.config.max_length - 1
        self._end_id, self._pad_id = model.config.end_id, model.config.pad_id

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")], autograph=False)
    def translate(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates texts, of shape (B,)."""
        ids, scores = self._decode(self._source_ids(texts))
        return {
            "translations": self.target_tokenizer.detokenize(ids),
            "scores": scores,
        }

    def _source_ids(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the rows that the encoder reads, (B, S); those of blank texts are padding."""
        tokens = self.source_tokenizer.tokenize(texts)[:, : self._max_source_tokens]
        is_filled = tf.cast(tokens.row_lengths() > 0, tf.int64)
        ends = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(is_filled)], self._end_id), is_filled
        )
        ids = tf.concat([tokens, ends], 1).to_tensor(self._pad_id)
        # The encoder wants a column even if there is no text at all.
        missing = tf.maximum(1 - tf.shape(ids)[1], 0)
        return tf.pad(ids, [[0, 0], [0, missing]], constant_values=self._pad_id)


def _check_backend() -> None:
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"A SavedModel can only be exported with Keras on TensorFlow; it runs on {backend!r}. "
            "Save the weights with model.save_weights(path), start again with the environment "
            "variable KERAS_BACKEND=tensorflow, load them into a model of the same config and "
            "export that one. Weights are the same on every backend."
        )


def _check_model(model: Any, tokenizers: TokenizerPair) -> None:
    if not isinstance(model, Seq2SeqTransformer):
        raise TypeError(
            f"Expected a Seq2SeqTransformer to export; received a {type(model).__name__}."
        )
    config = model.config
    for side, expected in (
        ("source", config.source_vocabulary_size),
        ("target", config.target_vocabulary_size),
    ):
        received = getattr(tokenizers, side).vocabulary_size
        if received != expected:
            raise ValueError(
                f"The tokenizer does not belong to the model: expected a {side} vocabulary of "
                f"{expected} pieces; received {received}. Pass the tokenizer it was trained with."
            )
    ids = (config.pad_id, config.start_id, config.end_id)
    own = (Tokenizer.pad_id, Tokenizer.start_id, Tokenizer.end_id)
    if ids != own:
        raise ValueError(
            "The model has other special ids than the tokenizer: expected pad, start and end "
            f"{own}; received {ids}. Leave them at their defaults in Seq2SeqConfig."
        )


def _settings(
    model: Seq2SeqTransformer, num_beams: int, length_penalty: float, max_length: int | None
) -> dict[str, Any]:
    longest = model.config.max_length
    max_length = longest if max_length is None else max_length
    for name, value in (("num_beams", num_beams), ("max_length", max_length)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"Expected a positive int as {name}; received {value!r}.")
    if model.config.positions == "learned" and max_length > longest:
        raise ValueError(
            f"The model has learned {longest} positions and cannot generate past them. Expected "
            f"max_length <= {longest}; received {max_length}."
        )
    return {
        "num_beams": num_beams,
        "length_penalty": float(length_penalty),
        "max_length": max_length,
    }


def _write_card(
    folder: Path,
    path: Path,
    model: Seq2SeqTransformer,
    tokenizers: TokenizerPair,
    settings: dict[str, Any],
) -> None:
    """Writes what the version is, for people and for programs."""
    folder.mkdir()
    card = {
        "config": model.config.to_dict(),
        "parameters": model.count_params(),
        "tokenizer": {
            "joint": tokenizers.is_joint,
            **{
                side: {"kind": tokenizer.kind, "vocabulary_size": tokenizer.vocabulary_size}
                for side, tokenizer in (
                    ("source", tokenizers.source),
                    ("target", tokenizers.target),
                )
            },
        },
        "decoding": settings,
        "versions": {
            "keras-addnorm": __version__,
            **{library: importlib.metadata.version(library) for library in _LIBRARIES},
        },
    }
    (folder / "model.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    readme = _README.format(
        path="/".join(path.parts[-2:]),
        directory=path.parent.name,
        name=path.parent.name,
        max_source_tokens=model.config.max_length - 1,
    )
    (folder / "README.md").write_text(readme, encoding="utf-8")
