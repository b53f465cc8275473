"""What each stage of a distillation was made from, so that none goes on with what is another's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.basics.integrity import Manifest
from keras_addnorm.basics.text import parse_json
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.distillation.settings import TABLE
from keras_addnorm.runs.errors import as_user_errors

_NAME = "stages.json"
# What stages are made from that is a setting: its name there, and its dotted key.
_OF_TABLE = ("beams", "n_best", "length_penalty", "choose_by", "drop_worst", "noise")
_SETTINGS = {name: f"{TABLE}.{name}" for name in _OF_TABLE} | {"seed": "training.seed"}


class Stages:
    """The stages in the folder `distillation/` of a run.

    Args:
        directory: The student's run directory.
        say: Takes lines for the user.
    """

    def __init__(self, directory: RunDirectory, say: Callable[[str], None]) -> None:
        self._directory, self._say = directory, say
        self.folder = directory.distillation
        self._path = self.folder / _NAME
        self._manifest = Manifest(self.folder)

    def begin(
        self,
        name: str,
        made_from: Mapping[str, Any],
        *,
        is_text: bool = True,
        place: Path | None = None,
    ) -> Path:
        """Returns the place of a stage, which is as a killed process has left it, or empty.

        What was made from something else is removed, and that is said. Text that the student has
        been trained on is not: with other text it would be another student.

        Args:
            name: The stage.
            made_from: All that decides what comes out, as JSON has it.
            is_text: Whether the student is trained on what comes out.
            place: Its folder, where that is not the one of its name.

        Returns:
            A folder, which may not exist yet.

        Raises:
            UserError: If the student is trained on what was made from something else.
        """
        place, known = place or self.folder / name, self._read()
        before, now = known.get(name, {}), dict(made_from)
        if before == now:
            return place
        if place.exists():
            changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
            if is_text and self._directory.holds_parts():
                raise self._other_text(before, now, changed)
            self._say(f"Made anew: {name}, as there was a change of {', '.join(changed)}.")
        if place.exists():
            shutil.rmtree(place)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._manifest.rewriting(self._path):
            text = json.dumps({**known, name: now}, indent=1, sort_keys=True)
            write_text(self._path, text + "\n")
        return place

    def _read(self) -> dict[str, Any]:
        with as_user_errors():
            self._manifest.check(self._path)
        if not self._path.exists():
            return {}
        try:
            known = parse_json(to_file(self._path).read_bytes())
            if isinstance(known, dict) and all(isinstance(one, dict) for one in known.values()):
                return known
            reason = "it has no stages"
        except ValueError as error:
            reason = str(error)
        raise damaged(self._path, reason)

    def _other_text(
        self, before: Mapping[str, Any], now: Mapping[str, Any], changed: list[str]
    ) -> ArgumentError:
        """The error of text that the student is not trained on; digests tell nothing to people."""
        settings = [key for key in changed if key in _SETTINGS and key in before and key in now]
        others = [key for key in changed if key not in settings]
        expected = [f"`{_SETTINGS[key]}={before[key]!r}`" for key in settings]
        expected += [f"the {key} of before" for key in others]
        return ArgumentError(
            f"The student in {str(self._directory.path)!r} is trained on text that was made "
            "otherwise.",
            ", ".join(expected),
            "Leave it as it was, or choose another run directory.",
            received=", ".join(f"other {key}" for key in others),
            **{_SETTINGS[key]: now[key] for key in settings},
        )


def damaged(path: Path, reason: Exception | str) -> UserError:
    """The error of a file that a distillation has written, and that has changed since."""
    return UserError(
        f"{str(path)!r} is damaged: {reason}. Expected JSON, as a distillation writes it. Copy it "
        "again from where it is whole, or choose another run directory."
    )
