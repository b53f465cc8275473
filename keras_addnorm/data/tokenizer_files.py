"""Reads tokenizers of all kinds from the files that they were saved in."""

from __future__ import annotations

import os

from keras_addnorm.basics.table import Table
from keras_addnorm.data import byte_level_bpe, byte_tokenizer, tokenizer
from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.byte_level_bpe import ByteLevelBPETokenizer
from keras_addnorm.data.byte_tokenizer import ByteTokenizer
from keras_addnorm.data.sentencepiece_model import existing_file
from keras_addnorm.data.tokenizer import Tokenizer
from keras_addnorm.data.tokenizer_documents import read_document

_TABLE: Table[BaseTokenizer] = Table(
    "tokenizer",
    BaseTokenizer,  # type: ignore[type-abstract]
    {
        tokenizer.NAME: Tokenizer,
        byte_tokenizer.NAME: ByteTokenizer,
        byte_level_bpe.NAME: ByteLevelBPETokenizer,
    },
)


def load_tokenizer(path: str | os.PathLike[str]) -> BaseTokenizer:
    """Reads a tokenizer of any kind.

    Args:
        path: A file that `save` wrote, or a SentencePiece model.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file holds something else.

    Example:
        ```python
        import pathlib, tempfile

        from keras_addnorm.data import ByteTokenizer, load_tokenizer

        path = ByteTokenizer().save(pathlib.Path(tempfile.mkdtemp(), "bytes.model"))
        assert load_tokenizer(path) == ByteTokenizer()
        ```
    """
    path = existing_file(path)
    content = path.read_bytes()
    try:
        values = read_document(content)
        if values is None:
            return Tokenizer(content)
        kind, _ = _TABLE.read(values.pop("name"))
        return kind.from_fields(values)
    except KeyError as error:
        raise ValueError(
            f"Cannot load the tokenizer '{path}': it has no field {error}, which "
            "BaseTokenizer.save writes. Expected the whole file; copy it again."
        ) from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"Cannot load the tokenizer '{path}'. {error}") from error
    except Exception as error:  # SentencePiece, which is C++, has errors of its own.
        raise ValueError(
            f"Cannot load the tokenizer '{path}': it is damaged ({error}). Expected the whole "
            "file; copy it again."
        ) from error
