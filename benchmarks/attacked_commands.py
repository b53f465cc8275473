"""The tries of `attacks.py` that run commands: kills, full disks, pages, and the server."""

from __future__ import annotations

import contextlib
import functools
import html.parser
import io
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import bit_flips
from attacks import Try, said

if TYPE_CHECKING:
    from keras_addnorm.runs import RunConfig

_HERE = Path(__file__).parent
_COMMAND = functools.partial(Try, seconds=10**6, megabytes=None, patience=4 * 3600)
_FILE_SIZES = (0, 700, 20_000, 60_000)


def resume(smoke: bool) -> Iterator[Try]:
    """Trainings and exports that are killed, and a second command at the same run."""
    kills = ("--trainings", "1" if smoke else "20", "--exports", "1" if smoke else "20")
    yield _COMMAND(
        "trainings and exports killed",
        " ".join(kills),
        functools.partial(_script, "kills.py", kills),
    )
    yield _COMMAND("a second training in the directory", "train", _train_twice, _write_corpus)


def disks(smoke: bool) -> Iterator[Try]:
    """Commands that find no room, or may not write."""
    for command in ("data", "import", "train", "export")[: 2 if smoke else None]:
        for size in _FILE_SIZES[1:3] if smoke else _FILE_SIZES:
            attack = functools.partial(_without_room, command, size)
            make = functools.partial(_make_for, command)
            yield _COMMAND("no room on the disk", f"{command} {size}", attack, make)
    for command in ("data", "import", "train"):
        attack = functools.partial(_read_only, command)
        make = functools.partial(_make_for, command)
        yield _COMMAND("folders that are read-only", command, attack, make)


def pages(smoke: bool) -> Iterator[Try]:
    """Pages that show texts and names of others, with what a browser would run."""
    for kind in ("inspect",) if smoke else ("inspect", "explain"):
        yield _COMMAND(
            "scripts in pages", kind, functools.partial(_page, kind), _write_run_with_scripts
        )


def server(smoke: bool) -> Iterator[Try]:
    """An ordinary client of the server beside those who ask for too much."""
    words = ("--attack", *(("--seconds", "1") if smoke else ()))
    attack = functools.partial(_script, "serving.py", words)
    yield _COMMAND("the server", f"serving.py {' '.join(words)}", attack)


def _script(name: str, words: tuple[str, ...], folder: Path) -> str:
    """Runs another script of this folder, whose exit status is its verdict."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(_HERE / name), *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_HERE), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()] or ["nothing"]
    if done.returncode:
        return f"raw: status {done.returncode}: {' / '.join(lines[-3:])} {done.stderr[-300:]}"
    return f"said: {lines[-1]}"


def _cli(*words: object) -> tuple[int, str]:
    """Runs a command in this process; returns its status and what it says to the terminal."""
    from keras_addnorm import cli

    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        status = cli.main([str(word) for word in words])
    return status, printed.getvalue().strip().rpartition("\n")[2]


def _write_corpus(folder: Path) -> None:
    bit_flips.write_corpus(folder / "corpus")


def _config(folder: Path, epochs: int = 1, longest: int = 13) -> RunConfig:
    from keras_addnorm.runs import RunConfig

    return RunConfig.from_dict(bit_flips.run_settings(str(folder / "corpus"))).replace(
        {
            "training.epochs": epochs,
            "training.bucket_lengths": [longest],
            "training.tokens_per_batch": 16 * longest,
            "model.max_length": longest,
        }
    )


def _train(folder: Path, epochs: int = 1, longest: int = 13) -> None:
    from keras_addnorm.runs.train import train

    train(_config(folder, epochs, longest), folder / "run", say=lambda line: None, verbose=0)


def _train_twice(folder: Path) -> str:
    """A second process trains in a directory where one is at work."""
    child = os.fork()
    if not child:
        try:
            _train(folder, 50)
        except BaseException as error:
            (folder / "ended").write_text(repr(error))
        os._exit(0)
    try:
        while not (folder / "run" / "log.csv").exists():
            if os.waitpid(child, os.WNOHANG)[0]:
                why = folder / "ended"
                said_why = why.read_text() if why.exists() else "too soon"
                return f"raw: the first training ended: {said_why}"
            time.sleep(0.05)
        before = (folder / "run" / "config.toml").read_bytes()
        try:
            _train(folder, 3)
        except ValueError as error:
            is_same = (folder / "run" / "config.toml").read_bytes() == before
            return said(error) if is_same else "raw: the settings were changed"
        return "raw: both trained"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _make_for(command: str, folder: Path) -> None:
    """Makes what a command works on."""
    from keras_addnorm.interop import make_random_folder

    if command == "import":
        make_random_folder("marian", folder / "marian", num_encoder_layers=1, num_decoder_layers=1)
        return
    _write_corpus(folder)
    if command == "export":
        _train(folder)


def _words(command: str, folder: Path, out: Path) -> tuple[object, ...]:
    if command == "data":
        return ("data", folder / "corpus", "--source", "en", "--target", "de", "--out", out)
    if command == "import":
        return ("import", folder / "marian", "--run-dir", out)
    if command == "export":
        return ("export", folder / "run", out)
    (folder / "settings.toml").write_text(_config(folder).to_toml())
    return ("train", out, "--config", folder / "settings.toml")


def _names(folder: Path) -> set[str]:
    """The files; what an export looks up in a run, its lexicon, is whole there or not there."""
    files = (str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    return {name for name in files if name != "run/lexicon.npz"}


def _without_room(command: str, size: int, folder: Path) -> str:
    """Files end at a size, as those of a full disk do; then the command has room."""
    words = _words(command, folder, folder / "out")
    # Python itself would leave halves of compiled modules, which no later process could read.
    sys.dont_write_bytecode = True
    before, (soft, hard) = _names(folder), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        status, line = _cli(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    left = sorted(_names(folder) - before)
    # A training goes on from what it has; of the others nothing is left.
    if status == 2 and left and command != "train":
        return f"raw: left over: {', '.join(left[:5])}; {line}"
    if status == 0:
        return f"read: {command} has room"
    again, what = _cli(*words)
    return said(line) if status == 2 and again == 0 else f"raw: {status}, then {again}: {what}"


def _read_only(command: str, folder: Path) -> str:
    """A folder in which nothing can be made, for root too."""
    status, line = _cli(*_words(command, folder, Path("/sys/kernel/out")))
    return said(line) if status == 2 else f"raw: status {status}"


_MARK = "hostile"
_TEXTS = (
    f"</script><{_MARK}>",
    f'"><{_MARK} onload=alert(1)>',
    f"'><{_MARK}>",
    f"<!--<script><{_MARK}>",
    f"&lt;{_MARK}&gt;`${{{_MARK}}}",
)


class _Tags(html.parser.HTMLParser):
    """Gathers the names of elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{name}=" for name, _ in attrs)}


def _write_run_with_scripts(folder: Path) -> None:
    """A run whose words, languages' texts and folder have what a browser would follow."""
    words = dict(zip(_TEXTS, reversed(_TEXTS), strict=True))
    known, bit_flips.WORDS = bit_flips.WORDS, words
    try:
        _write_corpus(folder)
    finally:
        bit_flips.WORDS = known
    _train(folder, longest=128)
    (folder / "run").rename(folder / f"<{_MARK}>")


def _page(kind: str, folder: Path) -> str:
    page = folder / "page.html"
    words = {"inspect": ("--sentence", _TEXTS[0]), "explain": ()}[kind]
    status, line = _cli(kind, folder / f"<{_MARK}>", "--html", page, *words)
    if status:
        return f"raw: {line}"
    text = page.read_text(encoding="utf-8")
    tags = _Tags()
    tags.feed(text)
    wrong = {_MARK, "onload="} & tags.found
    if wrong or _MARK not in text:
        return f"raw: the page has {', '.join(wrong) or 'not the texts'}"
    return f"read: {len(tags.found)} kinds of elements and attributes, none of the texts'"
