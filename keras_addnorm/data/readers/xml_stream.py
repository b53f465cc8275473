"""Reads XML as a stream, in constant memory, and refuses what can harm: entities and references."""

from __future__ import annotations

import abc
import html.entities
import re
from collections.abc import Iterator, Mapping
from typing import Any

from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.printing import text_of
from keras_addnorm.basics.text import is_encoding_of_text
from keras_addnorm.data.readers.input_file import LONGEST_TEXT, InputFile
from keras_addnorm.data.readers.raw_pair import RawPair

_BYTES_AT_ONCE = 1 << 16  # a portion that is to be read at once gives its pairs at once
_MOST_DECLARED = 1000  # attributes; the DTD of XLIFF has a third of that
_ENCODING = re.compile(rb"""\s*<\?xml[^>]*\bencoding\s*=\s*["']([\w.:-]+)["']""")


class XmlHandler(abc.ABC):
    """What a format makes of XML's elements; it gathers pairs in `found`."""

    def __init__(self) -> None:
        self.found: list[RawPair] = []

    @abc.abstractmethod
    def start(self, name: str, attributes: Mapping[str, str], line: int) -> None:
        """An element begins."""

    @abc.abstractmethod
    def end(self, name: str) -> None:
        """An element ends."""

    @abc.abstractmethod
    def text(self, text: str) -> None:
        """Text inside the innermost element."""


class TextParts:
    """The text of an element, which comes in parts; what is far too long ends somewhere."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def add(self, part: str) -> None:
        """Adds a part."""
        if self._size <= LONGEST_TEXT:
            self._parts.append(part)
            self._size += len(part)

    def __str__(self) -> str:
        return "".join(self._parts)


class RefusedElementError(Exception):
    """An element that a handler refuses, with the reason."""


def parse(file: InputFile, handler: XmlHandler) -> Iterator[RawPair]:
    """Reads a file and gives what the handler finds, as it finds it.

    Args:
        file: The file.
        handler: The format.

    Yields:
        The pairs.

    Raises:
        ValueError: If the file is no XML, names an entity that is not known, or declares some,
            which can grow without limit or fetch other files; the message names the file and the
            line; or if a tag is longer than any text.
    """
    expat, common = require_extra(
        "data", "An XML file", "defusedxml.expatreader", "defusedxml.common"
    )
    from xml.sax import SAXException, SAXParseException
    from xml.sax.handler import ContentHandler, feature_external_ges

    elements = 0

    class Events(ContentHandler):
        def startElement(self, name: str, attrs: Any) -> None:  # noqa: N802
            nonlocal elements
            elements += 1
            handler.start(_local(name), attrs, parser.getLineNumber())

        def endElement(self, name: str) -> None:  # noqa: N802
            handler.end(_local(name))

        def characters(self, content: str) -> None:
            handler.text(content)

        def skippedEntity(self, name: str) -> None:  # noqa: N802
            # What a DTD would declare that is not read. Parts of the DTD itself are no text.
            character = html.entities.html5.get(f"{name};")
            if character is not None:
                handler.text(character)
            elif name[:1] not in ("%", "["):
                raise _UnknownEntityError(name)

    declared = 0

    def declare_attribute(element: str, name: str, kind: str, value: str | None, _: int) -> None:
        """Refuses what each element would get, or would be compared with."""
        nonlocal declared
        declared += 1
        if value is not None:
            raise RefusedElementError("a declaration of an attribute with a value for all elements")
        if declared > _MOST_DECLARED:
            raise RefusedElementError(f"declarations of more than {_MOST_DECLARED:,} attributes")

    class Parser(expat.DefusedExpatParser):  # type: ignore[misc, name-defined]
        def reset(self) -> None:
            super().reset()
            self._parser.AttlistDeclHandler = declare_attribute

    # A `<!DOCTYPE tmx SYSTEM "tmx14.dtd">` is usual; it is not followed. No entity can be declared.
    parser = Parser(forbid_entities=True, forbid_external=False)
    parser.setContentHandler(Events())
    parser.setFeature(feature_external_ges, False)

    read = 0

    def feed(chunk: bytes) -> int:
        """Parses a chunk; returns how many bytes of it are the beginning of a tag."""
        nonlocal read
        read += len(chunk)
        try:
            parser.feed(chunk)
        except common.DefusedXmlException:
            raise
        except (ValueError, LookupError) as error:  # Of expat, which asks Python for the encoding.
            raise _EncodingError(str(error)) from error
        left = read - parser._parser.CurrentByteIndex
        if left > LONGEST_TEXT:
            raise RefusedElementError(f"a tag of more than {LONGEST_TEXT:,} bytes")
        return left

    try:
        _require_encoding(file)
        waiting, left = b"", 0
        for chunk in _chunks(file):
            waiting += chunk
            # The parser looks at a tag from its start whenever it gets a part of it.
            if len(waiting) >= left:
                left, waiting = feed(waiting), b""
                if not file.is_seekable:
                    file.require_moderate(elements, "elements")
                yield from handler.found
                handler.found.clear()
        feed(waiting)
        parser.close()
        yield from handler.found
        handler.found.clear()
    except common.DefusedXmlException as error:
        raise ValueError(
            f"{file.label}, line {parser.getLineNumber()}: declares an entity or refers to another "
            f"file ({type(error).__name__}). Such declarations can fill the memory or read other "
            "files, and translation memories need none. Remove them."
        ) from error
    except SAXParseException as error:
        raise ValueError(
            f"{file.label}, line {error.getLineNumber()}: not well-formed XML "
            f"({error.getMessage()}). Fetch or export the file again."
        ) from error
    except RefusedElementError as error:
        raise ValueError(
            f"{file.label}, line {parser.getLineNumber()}: {text_of(error)}. Take it out of the "
            "file."
        ) from error
    except _UnknownEntityError as error:
        raise ValueError(
            f"{file.label}, line {parser.getLineNumber()}: the entity '&{str(error)[:80]};' is "
            "declared nowhere in the file, and is none of HTML. Write the character in its place, "
            "or its number, such as '&#160;'."
        ) from error
    except _EncodingError as error:
        raise ValueError(
            f"{file.label}, line 1: XML in an encoding that cannot be read ({text_of(error)}). "
            "Expected UTF-8, UTF-16 or one of one byte a character. Convert it with iconv, and "
            "name the new encoding in the first line."
        ) from error
    except SAXException as error:
        raise ValueError(f"{file.label}: cannot be read as XML ({text_of(error)}).") from error


class _UnknownEntityError(Exception):
    """An entity is named in a text, and declared nowhere."""


class _EncodingError(Exception):
    """A file names an encoding that cannot be read."""


def _chunks(file: InputFile) -> Iterator[bytes]:
    for block in file.blocks():
        for start in range(0, len(block), _BYTES_AT_ONCE):
            yield block[start : start + _BYTES_AT_ONCE]


def _require_encoding(file: InputFile) -> None:
    named = _ENCODING.match(file.read_start())
    encoding = named[1].decode("ascii") if named else "utf-8"
    # Of UTF-16 the parser finds the marks.
    if not is_encoding_of_text(encoding) and not encoding.lower().startswith("utf-16"):
        raise _EncodingError(f"{encoding!r} is no encoding of text")


def _local(name: str) -> str:
    return name.rpartition(":")[2]
