"""Text to token ids and back, with one SentencePiece vocabulary.

Text is normalised by `Tokenizer.normalizer`, and SentencePiece only splits it. So the vocabulary
can be applied by anything that can look up a string, TensorFlow's own graph operations included
(`keras_addnorm.serving.GraphTokenizer`).
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from keras_addnorm.basics.argument_checks import is_number, require_bool, require_int
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError, UserError
from keras_addnorm.basics.text import normalized
from keras_addnorm.data.added_tokens import Cutter
from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.long_words import has_long_word, parts_of_text
from keras_addnorm.data.normalization import get_rule, training_normalizer, utf8_text
from keras_addnorm.data.piece_ids import PieceIds
from keras_addnorm.data.sentencepiece_model import (
    Layout,
    byte_ids,
    existing_file,
    ids_of_runs,
    kind_of,
    normalizer_of,
    not_a_model,
    parse_model,
    pieces_of,
    require_supported,
    splitting_only,
    with_ids,
)
from keras_addnorm.data.sentencepiece_training import VocabularyTooLargeError, train_model
from keras_addnorm.data.strings import describe, several_names, strings
from keras_addnorm.data.subword_sampling import Sampler, SubwordSampling
from keras_addnorm.data.tokenizer_documents import document, from_text, read_document, to_text
from keras_addnorm.data.vocabulary import (
    END_ID,
    KINDS,
    PAD_ID,
    SPACE_MARK,
    START_ID,
    UNKNOWN_ID,
    Piece,
)

NAME = "sentencepiece"
_LARGEST = 2**31 - 1  # SentencePiece has it in 32 bits.
UNKNOWN_SURFACE = "\u2047"

_RESERVED = frozenset(("<pad>", "<s>", "</s>", "<unk>"))
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")


class Tokenizer(BaseTokenizer):
    """A SentencePiece vocabulary.

    One that `train` makes has padding 0, start 1, end 2 and unknown 3; others have the ids of their
    model, or those that `ids` gives to its pieces. `encode` adds neither start nor end; a run of
    characters that the vocabulary lacks becomes one unknown id, or, with byte fallback, the bytes
    of their UTF-8. With `ids`, a run that the list names has the id of its name, and a piece of the
    model that the list lacks is an unknown one by itself.

    Before it is split, a text is normalised as the vocabulary was trained: it gets a Unicode form,
    loses the invisible characters that the vocabulary lacks, and every run of white space becomes
    one space. docs/text.md has the rules. Models that SentencePiece trained with a normaliser of
    its own, or without a dummy prefix, are read as SentencePiece reads them, but for words of more
    than 1,000 characters, which are split in parts of that many.

    Args:
        proto: A serialised SentencePiece model, as `Tokenizer.proto` gives it.
        ids: Which id each piece has; `None` for the model's own.

    Attributes:
        proto: The serialised model.
        ids: As given.
        kind: `"unigram"` or `"bpe"`.
        pieces: All pieces, in the order of their ids.
        surfaces: The text of each piece in a decoded sentence; of a byte, its name in the
            vocabulary.
        model_pieces: The pieces of the model, in its own order: those that texts are split into.
        model_ids: The id of each of them; -1 of one that is unknown here.
        ids_of_runs: The ids of names in `ids` that are no pieces of the model: a run of characters
            that the model lacks is read as the one of its name.
        normalizer: Normalises a text; called with one, it returns what is split.
        layout: Where the mark of a space stands in the text that is split.
        byte_ids: With byte fallback, the id of each of the 256 bytes; else empty.

    Raises:
        TypeError: If `proto` is not bytes, or `ids` are no `PieceIds`.
        ValueError: If `proto` is no SentencePiece model, has no padding or end of its own, or an
            option that is not known here.

    Example:
        ```python
        from keras_addnorm.data import Tokenizer

        tokenizer = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
        ids = tokenizer.encode("a  small house")
        assert tokenizer.decode(ids) == "a small house"
        ```

    Reference:
        Kudo and Richardson 2018, "SentencePiece: A simple and language independent subword
        tokenizer and detokenizer for Neural Text Processing", arXiv:1808.06226.
    """

    # Those of a vocabulary that `train` makes; each instance has its own.
    pad_id: int = PAD_ID
    start_id: int = START_ID
    end_id: int = END_ID
    unknown_id: int = UNKNOWN_ID

    def __init__(self, proto: bytes, ids: PieceIds | None = None) -> None:
        model = parse_model(proto)
        if not isinstance(ids, PieceIds | None):
            raise ArgumentTypeError(expected="PieceIds, or None", received=describe(ids))
        kind = kind_of(model)
        self.proto = proto
        self.ids = ids
        self.model_pieces = pieces_of(model)
        require_supported(model)
        pieces, self.model_ids, special = with_ids(model, self.model_pieces, ids)
        surfaces = tuple(map(_surface, pieces))
        has_bytes = model.trainer_spec.byte_fallback
        self.byte_ids = byte_ids(pieces) if has_bytes else ()
        super().__init__(
            kind,
            pieces,
            surfaces,
            special,
            _with_bytes(surfaces, self.byte_ids) if has_bytes else None,
            () if ids is None else ids.added,
        )
        self.layout = Layout.of(model, self.model_pieces)
        self.normalizer = normalizer_of(model, self.model_pieces, has_bytes)
        # None if they are the model's own, so that nothing is looked up.
        unknown = self.unknown_id
        self._id_of_model_piece = (
            None if ids is None else [unknown if i < 0 else i for i in self.model_ids]
        )
        has_list = ids is not None and not has_bytes
        self.ids_of_runs = ids_of_runs(pieces, self.model_pieces) if has_list else {}
        sentencepiece.set_min_log_level(2)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(
                model_proto=splitting_only(model, self.normalizer) or proto
            )
        except RuntimeError as error:  # Of pieces that are empty, or there twice.
            raise ValueError(f"{not_a_model(proto)} SentencePiece: {error}") from error
        _ = self.cutter  # What cannot be looked for is refused now.

    @classmethod
    def train(
        cls,
        texts: Iterable[Any],
        *,
        vocabulary_size: int = 8000,
        kind: str = "unigram",
        character_coverage: float = 1.0,
        normalization: str = "nfc",
        user_defined_symbols: Sequence[str] = (),
        byte_fallback: bool = False,
        allow_smaller: bool = False,
    ) -> Tokenizer:
        """Trains a vocabulary. The same texts give the same vocabulary.

        Args:
            texts: Sentences: any iterable of strings, or a `tf.data.Dataset` of string scalars.
            vocabulary_size: Number of pieces, the four special ones included.
            kind: `"unigram"` (Kudo 2018) or `"bpe"` (Sennrich et al. 2016).
            character_coverage: Share of the characters of `texts` that the vocabulary must spell.
                The rarest characters beyond it become unknown. Lower it (0.9995) for text of many
                scripts.
            normalization: The Unicode form of the texts. `"nfc"` keeps what is to be written apart:
                `m²` and `m2`, `，` and `,`, `…` and `...`; a character that the vocabulary lacks
                still becomes its compatible form, if the vocabulary has that. `"nfkc"` makes them
                equal everywhere. `"none"` leaves characters as they are.
            user_defined_symbols: Texts that are always one piece of their own, such as `<2de>` or a
                placeholder, and never changed.
            byte_fallback: Whether a character that the vocabulary lacks is split into the bytes of
                its UTF-8, for which there are 256 more pieces, in place of the unknown one.
            allow_smaller: Whether a vocabulary larger than the texts allow becomes the largest that
                they do, instead of an error.

        Returns:
            The trained tokenizer.

        Raises:
            TypeError: If an element of `texts`, or a symbol, is not a string.
            ValueError: If `kind` or `normalization` is unknown, `texts` holds no text, a symbol is
                impossible, or `vocabulary_size` is larger or smaller than the texts allow; the
                message then names the limit.
        """
        require_bool(byte_fallback=byte_fallback, allow_smaller=allow_smaller)
        rule = get_rule(normalization)
        if not isinstance(kind, str) or kind not in KINDS:
            raise ArgumentError(
                "Unknown kind of tokenizer.", f"one of {', '.join(map(repr, KINDS))}", value=kind
            )
        if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
            raise ArgumentTypeError(
                expected="many sentences: a list, another iterable or a tf.data.Dataset of strings",
                remedy="Put it in a list.",
                received=f"one {type(texts).__name__}",
            )
        require_int(
            "A vocabulary has four special pieces and others.",
            least=5,
            vocabulary_size=vocabulary_size,
        )
        if vocabulary_size > _LARGEST:
            raise ArgumentError(
                f"A vocabulary has at most {_LARGEST} pieces.", vocabulary_size=vocabulary_size
            )
        if not is_number(character_coverage, above=0, most=1):
            raise ArgumentError(
                "The character coverage is a share of the characters.",
                "a number above 0, at most 1",
                character_coverage=character_coverage,
            )
        symbols = _checked_symbols(user_defined_symbols)
        normalizer = training_normalizer(rule, symbols)
        # A sequence can be read again, a stream has to be kept for it.
        again = texts if isinstance(texts, Sequence) or not allow_smaller else list(strings(texts))

        def normalized() -> Iterator[str]:
            return filter(None, map(normalizer, strings(again)))

        sentences = normalized()
        first = next(sentences, None)
        if first is None:
            raise ValueError(
                "Cannot train a tokenizer: the texts are empty. Expected at least one sentence "
                "with a visible character. (An iterator that was read before is empty, too.)"
            )
        every = itertools.chain([first], sentences)
        train = functools.partial(
            train_model,
            kind=kind,
            character_coverage=character_coverage,
            rule_name=rule.name,
            symbols={normalizer.marks[symbol]: symbol for symbol in symbols},
            byte_fallback=byte_fallback,
        )
        try:
            return cls(train(every, vocabulary_size))
        except VocabularyTooLargeError as error:
            if not allow_smaller:
                raise
            return cls(train(normalized(), error.largest))

    @classmethod
    def from_sentencepiece(
        cls, model: bytes | str | os.PathLike[str], ids: PieceIds | None = None
    ) -> Tokenizer:
        """Makes a tokenizer of a SentencePiece model and a list of ids, as checkpoints have them.

        Args:
            model: The model: a file, or its content.
            ids: Which id each piece has; `None` for the model's own, which then has to have
                padding and an end. Without a start of its own, padding is read first, as by T5.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is no SentencePiece model, or one that is not known here.

        Example:
            ```python
            from keras_addnorm.data import PieceIds, Tokenizer, sentencepiece_pieces

            model = Tokenizer.train(["a small house", "a mouse"], vocabulary_size=14).proto
            ids = PieceIds.around(
                sentencepiece_pieces(model),
                first=("<s>", "<pad>", "</s>", "<unk>"), last=("en_XX", "de_DE"), start="</s>",
            )
            tokenizer = Tokenizer.from_sentencepiece(model, ids)
            assert (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id) == (1, 2, 2)
            assert tokenizer.decode(tokenizer.encode("a house")) == "a house"
            ```
        """
        return cls(model if isinstance(model, bytes) else existing_file(model).read_bytes(), ids)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer that `save` wrote, or a SentencePiece model.

        Args:
            path: The file.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is neither.
        """
        path = existing_file(path)
        try:
            return cls.from_bytes(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"Cannot load the tokenizer '{path}'. {error}") from error

    @classmethod
    def from_bytes(cls, content: bytes) -> Tokenizer:
        """The tokenizer of a file's content, which `to_bytes` gave or SentencePiece wrote."""
        values = read_document(content)
        if values is None:
            return cls(content)
        if values["name"] != NAME:
            raise ArgumentError(
                "It holds a tokenizer of another kind.",
                f"{NAME!r}",
                "Read it with load_tokenizer(path).",
                value=values["name"],
            )
        return cls.from_fields(values)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Tokenizer:
        """The tokenizer whose document has these values."""
        return cls(from_text(fields["model"]), PieceIds.from_dict(fields["ids"]))

    def to_bytes(self) -> bytes:
        """The content of its file: the model itself; where ids are given, with these."""
        if self.ids is None:
            return self.proto
        return document(NAME, {"model": to_text(self.proto), "ids": self.ids.to_dict()})

    @property
    def _state(self) -> tuple[Any, ...]:
        return self.proto, self.ids

    @staticmethod
    def normalize(text: str) -> str:
        """Normalises a text as vocabularies without a rule of their own expect it: with form NFKC.

        Exports of such a vocabulary may not do it themselves. A tokenizer normalises a text as
        its own vocabulary expects it: see `normalizer`.

        The text gets form NFKC, and every run of white space (tabs and line breaks included)
        becomes one space. U+2581, SentencePiece's mark for a space, counts as a space. NULs and
        halves of surrogate pairs, which mean nothing, are left out.

        Args:
            text: Any text.

        Returns:
            The normalised text.

        Raises:
            TypeError: If `text` is not a string.
        """
        text = utf8_text(text)
        if not text.isascii():
            text = normalized("NFKC", text).replace(SPACE_MARK, " ")
        return " ".join(text.split())

    @property
    def normalization(self) -> str:
        """The name of the rule that texts are normalised by."""
        return self.normalizer.rule.name

    @property
    def keeps_outer_space(self) -> bool:
        """No."""
        return False

    def _split(self, texts: list[str]) -> list[list[int]]:
        return self._split_normal(list(map(self.normalizer, texts)))

    def _split_prepared(self, texts: list[str]) -> list[list[int]]:
        return self._split_normal(list(map(self.normalizer.finished, texts)))

    def _make_cutter(self) -> Cutter:
        normalizer = self.normalizer
        has_table = normalizer.charsmap is not None
        return Cutter(self.added, self.ids_of_pieces, normalizer.prepared, has_table)

    @property
    def id_of_space(self) -> int:
        """The id of U+2581 alone."""
        return self.ids_of_pieces.get(SPACE_MARK, self.unknown_id)

    def _split_normal(self, normal: list[str]) -> list[list[int]]:
        """The ids of normalised texts."""
        rows = self._encode(normal, int)
        own = self._id_of_model_piece
        if own is None:
            return rows
        found = [[own[token] for token in row] for row in rows]
        if self.ids_of_runs:
            unknown = self._processor.unk_id()
            places = [place for place, row in enumerate(rows) if unknown in row]
            names = self._encode([normal[place] for place in places], str)
            for place, texts in zip(places, names, strict=True):
                found[place] = [
                    self.ids_of_runs.get(text, own[token]) if token == unknown else own[token]
                    for token, text in zip(rows[place], texts, strict=True)
                ]
        return found

    def _encode(self, normal: list[str], out_type: type) -> list[list[Any]]:
        """The pieces of normalised texts: their numbers in the model, or themselves as strings."""
        if len(normal) == 1:
            (text,) = normal
            if has_long_word(text):
                return [self._encode_in_parts(text, out_type)]
            return [self._processor.encode(text, out_type=out_type)]
        # Many texts are split on all cores, which one does not pay for.
        long = {place for place, text in enumerate(normal) if has_long_word(text)}
        short = ["" if place in long else text for place, text in enumerate(normal)]
        rows: list[list[Any]] = self._processor.encode(short, out_type=out_type)
        for place in long:
            rows[place] = self._encode_in_parts(normal[place], out_type)
        return rows

    def _encode_in_parts(self, text: str, out_type: type) -> list[Any]:
        """The same of a text with a word that is too long."""
        processor, unknown = self._processor_of_parts, self._processor.unk_id()
        before, after = (" ", "") if not self.layout.is_suffix else ("", " ")
        if self.layout.has_outer_mark:
            text = f"{before}{text}{after}"
        parts = parts_of_text(text)
        numbers: list[int] = []
        pieces: list[Any] = []
        for row, found in zip(
            processor.encode(parts), processor.encode(parts, out_type=out_type), strict=True
        ):
            # What the model lacks is one run on both sides of a cut.
            goes_on = numbers[-1:] == row[:1] == [unknown]
            if goes_on and out_type is str:
                pieces[-1] += found[0]
            numbers += row[goes_on:]
            pieces += found[goes_on:]
        return pieces

    @functools.cached_property
    def _processor_of_parts(self) -> sentencepiece.SentencePieceProcessor:
        """Splits parts of a text, which get no mark of a space."""
        model = parse_model(self._processor.serialized_model_proto())
        model.normalizer_spec.add_dummy_prefix = False
        model.normalizer_spec.remove_extra_whitespaces = False
        return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())

    def _sampler(self, sampling: SubwordSampling) -> Sampler:
        if self.kind == "bpe" and sampling.alpha >= 1:
            raise ArgumentError(
                "With a BPE vocabulary, alpha is the probability of leaving a merge out.",
                "alpha below 1",
                value=sampling,
            )
        return Sampler(self.pieces, self.kind, sampling)


def _checked_symbols(symbols: Sequence[str]) -> list[str]:
    symbols = several_names("user_defined_symbols", symbols)
    for symbol in symbols:
        if symbol in _RESERVED or _BYTE_NAME.fullmatch(symbol) or SPACE_MARK in symbol:
            raise UserError(
                f"{symbol!r} cannot be a user-defined symbol: it is the name of a special piece, "
                "or holds U+2581, the mark of a space. Choose another."
            )
    return list(symbols)


def _with_bytes(surfaces: Sequence[str], byte_ids: Sequence[int]) -> list[bytes]:
    found = [surface.encode("utf-8") for surface in surfaces]
    for value, token in enumerate(byte_ids):
        found[token] = bytes([value])
    return found


def _surface(piece: Piece) -> str:
    """The text of a piece in a decoded sentence."""
    if piece.type == "control":
        return ""
    if piece.type == "unknown":
        return UNKNOWN_SURFACE
    return piece.text.replace(SPACE_MARK, " ")
