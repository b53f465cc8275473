"""Many texts translated in portions on the disk: a killed command goes on, and several may share.

The portions are in a folder beside what is made of them, under a digest of all that they depend
on: texts, model, search, languages. Another text or setting has a folder of its own, so nothing is
mixed. When all is translated, whoever finds it so makes the output, and the folder is removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import digest_of_values
from keras_addnorm.basics.locks import alone, lock_soon
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.nearest import nearest
from keras_addnorm.runs.portion_progress import filling
from keras_addnorm.runs.portions import (
    TEXTS_IN_PORTION,
    WHOLE,
    Portions,
    Share,
    are_translations,
    fill_in_processes,
    is_translation,
)
from keras_addnorm.runs.rows import Rows, write_rows
from keras_addnorm.runs.settings import SEARCH_SETTINGS, RunConfig

_TEXTS = "texts.jsonl"
# The names of folders of portions, and of one that has none yet.
_NAMED = re.compile(r"[0-9a-f]{32}")
_OURS = re.compile(rf"{_NAMED.pattern}|new-[a-z0-9_]{{8}}")
# Fewer texts are divided into smaller portions, so that several processes have some.
_SMALL_PORTION = TEXTS_IN_PORTION // 4
_MANY = 16 * TEXTS_IN_PORTION
# An export divides these further, by itself.
_TEXTS_OF_EXPORT = 256


@dataclass(frozen=True)
class RunTranslator:
    """A run that translates.

    Attributes:
        directory: Its directory.
        config: Its configuration, with the search that is asked for.
        n_best: The number of translations of each text.
        languages: `source_language` and `target_language`, where it is told them.
        choose_by: The metric by which the translation nearest to a reference is chosen. Then the
            texts are pairs with their references, and a result is one translation, its score and
            its nearness. `None` for all translations of each text.
        digested: The search settings that its digest tells.
    """

    directory: RunDirectory
    config: RunConfig
    n_best: int = 1
    languages: Mapping[str, Any] = field(default_factory=dict)
    choose_by: str | None = None
    digested: Sequence[str] = SEARCH_SETTINGS

    @functools.cached_property
    def digest(self) -> str:
        """That of the run, as it was when this was asked for first."""
        from keras_addnorm.runs.trained_run import digest_of_run

        with as_user_errors():
            return digest_of_run(self.directory, self.config, self.digested)

    def made_from(self) -> dict[str, Any]:
        """All that its translations depend on beside the texts."""
        return {
            "run": self.digest,
            "n_best": self.n_best,
            # Sums are rounded otherwise in batches of another size.
            "batch_size": self.config.evaluation.batch_size,
            "languages": dict(self.languages),
        }

    def job(self) -> tuple[Callable[..., None], dict[str, Any]]:
        """The function that translates a share, and its own arguments."""
        return translate_with_run, {
            "run": str(self.directory.path),
            "verify": self.directory.verify,
            "digest": self.digest,
            "digested": list(self.digested),
            "search": dataclasses.asdict(self.config.evaluation),
            "n_best": self.n_best,
            "languages": dict(self.languages),
            "choose_by": self.choose_by,
        }

    def fill(
        self, portions: Portions[Any], texts: Path, processes: int, done: Callable[[], object]
    ) -> None:
        """Translates what a folder of portions does not have, of texts in a file of rows."""
        _fill_portions(self, portions, texts, processes, done)


@dataclass(frozen=True)
class ExportTranslator:
    """An exported model that translates.

    Attributes:
        path: The folder of a version, or that of all versions.
        verify: Whether its files are compared with their digests.
        languages: `source_language` and `target_language`, where it is told them.
    """

    path: Path
    verify: bool = True
    languages: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def _version(self) -> Path:
        from keras_addnorm.serving.versions import find_version

        # The newest one now, whatever is exported while this works.
        with as_user_errors():
            return find_version(self.path)

    def made_from(self) -> dict[str, Any]:
        """All that its translations depend on beside the texts."""
        from keras_addnorm.serving.versions import digest_of_version

        with as_user_errors():
            digest = digest_of_version(self._version)
        return {"export": digest, "languages": dict(self.languages)}

    def job(self) -> tuple[Callable[..., None], dict[str, Any]]:
        """The function that translates a share, and its own arguments."""
        return translate_with_export, {
            "export": str(self._version),
            "verify": self.verify,
            "languages": dict(self.languages),
        }


@contextlib.contextmanager
def in_portions(
    folder: Path,
    texts: Iterable[str],
    translator: RunTranslator | ExportTranslator,
    *,
    processes: int = 1,
    shard: Share = WHOLE,
    say: Callable[[str], None],
    going_on: Callable[[int], object] = lambda count: None,
) -> Iterator[Portions[str] | None]:
    """Translates texts, as far as that is not done, and gives all translations if they are there.

    Args:
        folder: Where portions are kept, of this output alone.
        texts: The texts.
        translator: What translates them.
        processes: The number of processes.
        shard: The part of the portions that this command works on.
        say: Takes lines for the user, such as how far it is.
        going_on: Takes the number of translations that are there already, if there are any.

    Yields:
        The translations of each text, with their scores, in order: lists of pairs. `None` if other
        shards are not done, or another one has made the output. At the end of the block the
        folder is removed, unless there was an error.

    Raises:
        UserError: If a text, the model or the disk cannot be used.
    """
    with as_user_errors():
        place, held = _place(folder, texts, translator, say)
    total = len(Rows(place / _TEXTS))
    size = TEXTS_IN_PORTION if total >= _MANY else _SMALL_PORTION
    portions = Portions[str](place, total, size, are_translations)
    try:
        if before := portions.count_done():
            going_on(before)
        if not portions.has(shard):
            with as_user_errors(), filling(portions, say) as done:
                _fill_portions(translator, portions, place / _TEXTS, processes, done, shard)
    except BaseException:
        os.close(held)
        if not portions.count_done():
            _remove_idle(folder, [place])
        raise
    os.close(held)
    with alone(folder):
        # Another shard may have made the output meanwhile.
        is_whole = place.exists() and portions.is_full
        yield portions if is_whole else None
        if is_whole:
            # What was made from something else, too; what somebody has put there is not ours.
            _remove_idle(folder, (one for one in folder.iterdir() if _OURS.fullmatch(one.name)))


def _place(
    folder: Path,
    texts: Iterable[str],
    translator: RunTranslator | ExportTranslator,
    say: Callable[[str], None],
) -> tuple[Path, int]:
    """Finds or makes the folder of these texts and this translator, with the texts in it.

    Returns the folder, and its descriptor with a shared lock.
    """
    if folder.is_symlink():
        raise UserError(
            f"{str(folder)!r} is a link, and translations are kept there and removed. Expected a "
            "folder, or nothing. Remove it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        new = Path(tempfile.mkdtemp(dir=folder, prefix="new-"))
        held = _hold(new)
    try:
        made_from = {"texts": write_rows(new / _TEXTS, texts), **translator.made_from()}
        place = folder / digest_of_values(made_from)
        with alone(folder):
            if place.exists():
                known = _hold(place)
                os.close(held)
                held = known
                # The name tells what the texts are. What is there may be somebody else's.
                os.replace(new / _TEXTS, place / _TEXTS)
                return place, held
            if any(_NAMED.fullmatch(one.name) and _is_idle(one) for one in folder.iterdir()):
                say(
                    f"In {str(folder)!r} are translations of other texts, by another model or with "
                    "other settings: these begin anew."
                )
            new.rename(place)
            return place, held
    except BaseException:
        os.close(held)
        raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _hold(folder: Path) -> int:
    """Opens a folder, and keeps others from removing it until it is closed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # Some file systems have no locks.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _is_idle(folder: Path) -> bool:
    """Whether no process holds a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            return lock_soon(descriptor, 0.0)
        finally:
            os.close(descriptor)
    return False


def _remove_idle(folder: Path, places: Iterable[Path]) -> None:
    """Removes those places that no process holds, and the folder if nothing is left in it."""
    for place in places:
        if _is_idle(place):
            shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _fill_portions(
    translator: RunTranslator | ExportTranslator,
    portions: Portions[Any],
    texts: Path,
    processes: int,
    done: Callable[[], object],
    shard: Share = WHOLE,
) -> None:
    function, job = translator.job()
    job |= {"texts": str(texts), "folder": str(portions.folder), "size": portions.size}
    fill_in_processes(function, job, portions, processes, done, shard)


def translate_with_run(
    run: str,
    verify: bool,
    digest: str,
    digested: Sequence[str],
    search: Mapping[str, Any],
    n_best: int,
    languages: Mapping[str, Any],
    choose_by: str | None,
    texts: str,
    folder: str,
    size: int,
    share: Sequence[int],
    done: Callable[[], object] = lambda: None,
) -> None:
    """Translates a share of texts with a run, which has to be the one of that digest."""
    from keras_addnorm.runs.trained_run import load_run_of
    from keras_addnorm.runs.translate import n_best_translations

    found = load_run_of(RunDirectory(run, verify=verify), digest, search, digested)

    def translate(batch: Sequence[str]) -> list[Any]:
        return n_best_translations(found, batch, n_best, **languages)

    size_of_batch = found.config.evaluation.batch_size
    work = texts, folder, size, share, done
    if choose_by is None:
        _fill(translate, size_of_batch, *work)
    else:
        choose = _choosing(translate, choose_by, found.config.target)
        _fill(choose, size_of_batch, *work, _length_of_source, is_translation)


def _choosing(
    translate: Callable[[Sequence[str]], list[Any]], metric: str, language: str
) -> Callable[[Sequence[Any]], list[Any]]:
    """Takes pairs of a text and its reference; gives the translation nearest to the reference."""
    from keras_addnorm.training import sentence_scorer

    nearness = sentence_scorer(metric, language=language)

    def compute(batch: Sequence[tuple[str, str | None]]) -> list[Any]:
        found = translate([source for source, _ in batch])
        return [
            nearest(hypotheses, reference, nearness)
            for hypotheses, (_, reference) in zip(found, batch, strict=True)
        ]

    return compute


def _length_of_source(pair: Sequence[Any]) -> int:
    return len(pair[0])


def translate_with_export(
    export: str,
    verify: bool,
    languages: Mapping[str, Any],
    texts: str,
    folder: str,
    size: int,
    share: Sequence[int],
    done: Callable[[], object] = lambda: None,
) -> None:
    """Translates a share of texts with an exported model."""
    from keras_addnorm.serving import load_translator

    with as_user_errors():
        translator = load_translator(export, verify=verify)

    def compute(batch: Sequence[str]) -> list[Any]:
        with as_user_errors():
            return [[found] for found in translator(batch, **languages)]

    _fill(compute, _TEXTS_OF_EXPORT, texts, folder, size, share, done)


def _fill(
    compute: Callable[[Sequence[Any]], Sequence[Any]],
    batch_size: int,
    texts: str,
    folder: str,
    size: int,
    share: Sequence[int],
    done: Callable[[], object],
    length: Callable[[Any], int] = len,
    is_result: Callable[[Any], bool] = are_translations,
) -> None:
    rows = Rows(texts)
    Portions[Any](folder, len(rows), size, is_result).fill(
        compute, rows.read, length, batch_size=batch_size, share=Share(*share), done=done
    )
