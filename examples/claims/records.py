"""What was measured, as JSON lines: a second run resumes where the first one stopped."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.data.demo import fingerprint

Key = dict[str, Any]
Result = dict[str, Any]


class Records:
    """Results by what was measured; every new one is on disk before the next begins.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, str] = {}
        if not path.exists():
            return
        for number, line in enumerate(to_file(path).read_text(encoding="utf-8").splitlines(), 1):
            try:
                record = parse_json(line.encode())
                if not {"measured", "result"} <= record.keys() or not isinstance(
                    record["result"], dict
                ):
                    raise ValueError("'measured' and 'result' are not both there")
            except (ValueError, AttributeError) as error:
                raise UserError(
                    f"Line {number} of {str(path)!r} is no record: {error}. Expected lines as an "
                    "experiment has written them. Remove it, to have it measured again."
                ) from error
            self._lines[_canonical(record["measured"])] = line

    def find(self, key: Key) -> Result | None:
        """Return the result of an earlier run, or `None`."""
        line = self._lines.get(_canonical(key))
        return None if line is None else json.loads(line)["result"]

    def keep(self, key: Key, result: Result) -> None:
        """Put a result on record."""
        self._lines[_canonical(key)] = json.dumps({"measured": key, "result": result})
        with atomic_file(self.path) as temporary:
            text = "".join(f"{line}\n" for line in self._lines.values())
            temporary.write_text(text, encoding="utf-8")

    def get_or_measure(self, key: Key, measure: Callable[[], Result]) -> Result:
        """Return the result of an earlier run, or measure now and keep it."""
        if self.find(key) is None:
            self.keep(key, measure())
        # Always what the file says, so that a page from new results is the page from old ones.
        result = self.find(key)
        assert result is not None
        return result

    def seconds(self) -> float:
        """How long all trainings on record took together."""
        results = (json.loads(line)["result"] for line in self._lines.values())
        return float(sum(result.get("seconds", 0.0) for result in results))


@functools.cache
def built_in_texts() -> str:
    """What changes with the sentences of the built-in set: other texts give other records."""
    return fingerprint("de")


def _canonical(key: Key) -> str:
    return json.dumps(key, sort_keys=True)
