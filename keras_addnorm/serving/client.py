"""A client of exported models, over REST or gRPC, of our server or of TensorFlow Serving."""

from __future__ import annotations

import math
import random
import time
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import numpy as np

from keras_addnorm.basics.argument_checks import is_number, is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import encodable_text
from keras_addnorm.basics.translation import Translation
from keras_addnorm.serving.errors import ServingError, VersionStatus, understood

_T = TypeVar("_T")

# What may pass by waiting. A call computes and changes nothing, so it can be made again.
_PASSING = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})
# What says nothing about the model.
_NO_ANSWER = _PASSING | {"DEADLINE_EXCEEDED"}
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_LONGEST_TIMEOUT = 10_000_000  # A socket takes no more than nine digits.


class Transport(Protocol):
    """How calls travel; each raises `ServingError`."""

    def predict(
        self, signature: str, inputs: dict[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        """Computes a signature."""

    def status(self, timeout: float) -> list[VersionStatus]:
        """Tells how the versions fare."""

    def close(self) -> None:
        """Ends the connection."""


class Client:
    """Asks a server for translations.

    The same calls work with `keras-addnorm serve` and with TensorFlow Serving. A client may be used
    by several threads. Calls that fail because the server is away or full are made again, after
    pauses that double.

    Args:
        target: `"http://host:8501"` for REST (or `https`), `"host:8500"` for gRPC.
        model: The model's name.
        version: A version; `None` for the one that is served.
        timeout: Seconds that a call may take, with all that is tried again.
        retries: How often a call is tried again.

    Raises:
        ValueError: If an argument makes no sense.

    Example:
        ```python
        from keras_addnorm.serving import Client, ServingError

        client = Client("http://127.0.0.1:9", model="mine", timeout=5, retries=0)
        try:
            client.translate(["A dog runs through the snow."])
        except ServingError as error:  # no server listens there
            assert error.code == "UNAVAILABLE"
        ```
    """

    def __init__(
        self,
        target: str,
        *,
        model: str,
        version: int | None = None,
        timeout: float = 60.0,
        retries: int = 3,
    ) -> None:
        is_named = all(isinstance(name, str) and name for name in (target, model))
        is_named = is_named and encodable_text(model) == model  # It stands in an address.
        if not is_named or not (version is None or is_whole(version, 0, 2**63 - 1)):
            raise ArgumentError(
                expected="a server, such as 'http://localhost:8501' or 'localhost:8500', the name "
                "of a model, and the number of a version or None",
                received=f"{target!r}, {model!r} and {version!r}",
            )
        if not is_number(timeout, above=0, most=_LONGEST_TIMEOUT) or not is_whole(retries, 0):
            raise ArgumentError(
                expected=f"a positive timeout of at most {_LONGEST_TIMEOUT:,} seconds, and an int "
                "of retries, 0 or more",
                received=f"{timeout!r} and {retries!r}",
            )
        self._model_normalizes: bool | None = None  # Not known before it matters.
        self._timeout = float(timeout)
        self._retries = retries
        self._transport = _transport(target, model, version)

    def translate(
        self,
        texts: Iterable[str],
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> list[Translation]:
        """Translates texts.

        Args:
            texts: The texts, of any length; a blank one gives an empty translation with the
                score 0.
            source_language: The language of the texts, of an export whose input it is.
            target_language: The language to translate into, likewise.

        Returns:
            One translation a text, in order, as `load_translator` gives them.

        Raises:
            TypeError: If `texts` is one string, or an element is not a string.
            ServingError: If the server does not answer, or refuses.
        """
        from keras_addnorm.data import Tokenizer
        from keras_addnorm.data.normalization import utf8_text
        from keras_addnorm.data.strings import several_texts

        texts = [utf8_text(text) for text in several_texts(texts)]
        if not texts:
            return []
        given = {"source_language": source_language, "target_language": target_language}
        # One for each text, so that a server may put requests together.
        languages = {k: [v] * len(texts) for k, v in given.items() if v is not None}
        # Exports that ask for a language normalise texts themselves.
        if not languages and self._needs_nfkc(texts):
            texts = [Tokenizer.normalize(text) for text in texts]
        found = self.predict("serving_default", texts=texts, **languages)
        with understood():
            translations = [
                _translation(text, score)
                for text, score in zip(found["translations"], found["scores"], strict=True)
            ]
            if len(translations) != len(texts):
                raise ValueError(f"{len(translations):,} translations of {len(texts):,} texts")
        return translations

    def _needs_nfkc(self, texts: list[str]) -> bool:
        """Whether the texts have to be brought into form NFKC, as for exports that cannot do it."""
        if all(unicodedata.is_normalized("NFKC", text) for text in texts):
            return False
        if self._model_normalizes is None:
            try:
                found = self.predict("tokenize", texts=["a"])
            except ServingError as error:
                if error.code in _NO_ANSWER:
                    raise
                return True  # An export without this signature, or another kind of model.
            self._model_normalizes = "normalized" in found
        return not self._model_normalizes

    def predict(self, signature: str = "serving_default", /, **inputs: Any) -> dict[str, Any]:
        """Computes a signature.

        Args:
            signature: Its name.
            **inputs: Its inputs: arrays, or lists of values.

        Returns:
            Its outputs as arrays; strings are `str`, and bytes where the output's name ends in
            `_bytes`.

        Raises:
            ValueError: If an input is no array.
            ServingError: If the server does not answer, or refuses.
        """
        arrays = {name: _array(name, value) for name, value in inputs.items()}
        return self._try(lambda timeout: self._transport.predict(signature, arrays, timeout))

    def status(self) -> list[VersionStatus]:
        """Returns the states of the model's versions, the highest version first.

        Returns:
            The states.

        Raises:
            ServingError: If the server does not answer, or has no such model.
        """
        return self._try(self._transport.status)

    def close(self) -> None:
        """Ends the connection."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _try(self, call: Callable[[float], _T]) -> _T:
        end = time.monotonic() + self._timeout
        pause = _FIRST_PAUSE
        for left in range(self._retries, -1, -1):
            try:
                return call(max(end - time.monotonic(), 1e-3))
            except ServingError as error:
                # Many clients that were refused together shall not come back together.
                rest = pause * random.uniform(0.5, 1.0)
                if error.code not in _PASSING or not left or time.monotonic() + rest > end:
                    raise
            time.sleep(rest)
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("the last try has returned or raised")


def _translation(text: Any, score: Any) -> Translation:
    """One of an answer, which may have anything in its place."""
    if not isinstance(text, str) or math.isnan(score):
        raise ValueError(f"{text!r:.40} with the score {score!r:.40} is no translation")
    return Translation(str(text), float(score))


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except UnicodeDecodeError:  # texts and bytes side by side
        array = np.asarray(value, object)
    except ValueError as error:  # lists of different lengths
        raise ArgumentError(
            expected=f"input '{name}' as an array, or lists of one length", value=value
        ) from error
    # As objects, or NumPy forgets zero characters at the end of strings.
    if array.dtype.kind not in "USO":
        return array
    texts = np.array(value, object)
    values = [encodable_text(text) if isinstance(text, str) else text for text in texts.ravel()]
    found = np.empty(texts.size, object)
    found[:] = values
    return found.reshape(texts.shape)


def _transport(target: str, model: str, version: int | None) -> Transport:
    if target.startswith(("http://", "https://")):
        from keras_addnorm.serving.client_rest import RestTransport

        return RestTransport(target, model, version)
    from keras_addnorm.serving.client_grpc import GrpcTransport

    return GrpcTransport(target.removeprefix("grpc://"), model, version)
