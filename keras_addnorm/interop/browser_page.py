"""A page that translates in the browser: static files around Bergamot's engine and a model."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import shutil
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import has_file, to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.integrity import sha256
from keras_addnorm.basics.languages import english_name, has_form_of_code
from keras_addnorm.basics.resources import read_resource
from keras_addnorm.basics.text import encodable_text, meaningful_text, read_json
from keras_addnorm.basics.web_page import (
    IN_BROWSER_POLICY,
    content_security_policy,
    json_in_html,
    translation_form,
    translation_style,
)
from keras_addnorm.decoding.checks import require_type

_PACKAGE, _VERSION, _SERIES = "@browsermt/bergamot-translator", "0.4.9", "0.4."
_INSTALL = f"npm install {_PACKAGE}@{_VERSION}"
_START = "translator-worker.js"
_SCRIPTS = (_START, "bergamot-translator-worker.js")
_PROGRAM = "bergamot-translator-worker.wasm"
_LICENCES = ("LICEN[SC]E*", "COPYING*")
_ENGINE = "engine"
_LONGEST_FACT = 200  # characters of what the package says of itself
_NOTICE = """\
The scripts and the program in this folder are those of the npm package {name} {version}, unchanged,
under the licence {licence}. Their source: {source}
"""
_SOURCE = "https://github.com/browsermt/bergamot-translator"


@dataclasses.dataclass(frozen=True)
class BrowserPage:
    """A page on which a model translates in the browser, without a server and offline.

    `export_bergamot` writes it beside the model: `index.html`, its style and scripts, and a copy of
    the engine. Any web server can serve the folder, under any path. The page asks for nothing
    outside of it, which its content security policy says; under https, and on the machine itself,
    the browser keeps it, and opens it without a network.

    Args:
        engine: The folder of the npm package `@browsermt/bergamot-translator`, which `npm install
            @browsermt/bergamot-translator@0.4.9` makes in `node_modules`.
        name: What the page calls the model.
        source: The language of the texts, such as `"en"`, if it is one.
        target: The language of the translations, if it is one.
        note: What those who try the model should know, in a sentence or two.
        facts: What else is said of the model, by headings, such as `{"BLEU": "38.2 on newstest"}`.

    Raises:
        ValueError: If `engine` is not this package, or something else is no text.

    Example:
        ```python
        from keras_addnorm.interop import BrowserPage

        try:
            BrowserPage(engine="elsewhere", source="en", target="de")
        except ValueError as error:
            assert "npm install @browsermt/bergamot-translator" in str(error)
        ```
    """

    engine: str | os.PathLike[str]
    name: str = "Translation"
    source: str = ""
    target: str = ""
    note: str = ""
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for field in ("name", "source", "target", "note"):
            require_type(f"The {field} on a page", getattr(self, field), str)
        require_type("Facts", self.facts, Mapping)
        for text in (*self.facts.keys(), *self.facts.values()):
            require_type("A fact or its heading", text, str)
        _package_of(self.engine)

    def write(
        self,
        folder: Path,
        parts: Mapping[str, Sequence[str]],
        precision: str,
        form: str | None,
    ) -> None:
        """Writes the page into the folder of a model.

        Args:
            folder: The folder, with the files of the model.
            parts: Names of the files of each part: `weights`, `shortlist` and `vocabularies`.
            precision: How the engine multiplies.
            form: The Unicode form that texts get before they are split, or `None`.
        """
        package = _package_of(self.engine)
        _copy_engine(to_path(self.engine), folder / _ENGINE, package)
        program = _file(folder, f"{_ENGINE}/{_PROGRAM}")
        scripts = {name: _file(folder, f"{_ENGINE}/{name}") for name in _SCRIPTS}
        read = {
            part: [_file(folder, name) for name in dict.fromkeys(names)]
            for part, names in parts.items()
        }
        own = [file for files in read.values() for file in files]
        style = _written(folder / "page.css", translation_style(), _template("page.css"))
        scripts_of_page = translation_form(), _template("engine.js"), _template("page.js")
        script = _written(folder / "page.js", *scripts_of_page)
        worker = _written(folder / "worker.js", _template("worker.js"))
        model = {
            **read,
            "worker": worker,
            "program": program,
            "scripts": {name: each["address"] for name, each in scripts.items()},
            "config": {"gemm-precision": precision},
            "form": form,
        }
        page = string.Template(_template("index.html")).substitute(
            policy=content_security_policy(IN_BROWSER_POLICY),
            name=_escaped(self.name),
            about=_escaped(self._about()),
            note=_escaped(self.note),
            source_lang=_lang(self.source),
            target_lang=_lang(self.target),
            style=style["address"],
            script=script["address"],
            facts=self._facts(sum(each["size"] for each in own), program["size"], package),
            model=json_in_html(model),
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
        kept = [style, script, worker, program, *scripts.values(), *own]
        addresses = json.dumps([each["address"] for each in kept], indent=1)
        # The file changes with the page, so that browsers fetch both anew.
        worker_text = string.Template(_template("service_worker.js")).substitute(
            files=addresses, page=sha256(folder / "index.html")
        )
        (folder / "service_worker.js").write_text(worker_text, encoding="utf-8")

    def _about(self) -> str:
        """What the page says below its heading."""
        if not (self.source and self.target):
            return "translates in this browser"
        return (
            f"translates {english_name(self.source)} into {english_name(self.target)}, "
            "in this browser"
        )

    def _facts(self, model: int, engine: int, package: Mapping[str, str]) -> str:
        """The rows of the table of facts."""
        size = f"{model / 1e6:.1f} MB in eight bits; the engine has {engine / 1e6:.1f} MB"
        rows = {name: _escaped(text) for name, text in {**self.facts, "Size": size}.items()}
        rows["Engine"] = (
            f"{_escaped(package['name'])} {_escaped(package['version'])} "
            f'(<a href="{_ENGINE}/NOTICE.txt">{_escaped(package["license"])}</a>)'
        )
        return "\n".join(
            f"    <dt>{_escaped(name)}</dt><dd>{text}</dd>" for name, text in rows.items()
        )


def _package_of(engine: Any) -> dict[str, str]:
    """Return name, version and licence of the engine's package, if it is one and whole."""
    expected = f"the folder of the npm package {_PACKAGE} {_VERSION}"
    remedy = f"Type `{_INSTALL}`, and give the folder that it makes, node_modules/{_PACKAGE}."
    given = os.fspath(engine) if isinstance(engine, str | os.PathLike) else engine

    def refusal(problem: str) -> ArgumentError:
        return ArgumentError(problem, expected, remedy, engine=given)

    if not isinstance(given, str):
        raise refusal("The engine is no folder.")
    folder = Path(given)
    try:
        found = read_json(folder / "package.json")
    except (OSError, ValueError) as error:
        raise refusal("There is no engine here.") from error
    if not isinstance(found, dict) or found.get("name") != _PACKAGE:
        raise refusal("This is another package.")
    package = {
        key: meaningful_text(str(found.get(key, ""))[:_LONGEST_FACT])
        for key in ("name", "version", "license")
    }
    if not package["version"].startswith(_SERIES):
        raise refusal(f"This is version {package['version']!r} of the engine.")
    files = [folder / "worker" / name for name in (*_SCRIPTS, _PROGRAM)]
    for path in files:
        if not has_file(path):
            raise refusal(f"The engine lacks its file worker/{path.name}.")
    # What is copied is published with the page.
    for path in (*files, *_licences(folder)):
        if not path.resolve().is_relative_to(folder.resolve()):
            raise refusal(f"The engine's file {path.name!r} is a link to a place outside of it.")
    return package


def _licences(folder: Path) -> list[Path]:
    found = (path for pattern in _LICENCES for path in folder.glob(pattern))
    return [path for path in found if has_file(path)]


def _copy_engine(source: Path, folder: Path, package: Mapping[str, str]) -> None:
    """Copy what the page needs of the engine, and whose it is."""
    folder.mkdir()
    for name in (*_SCRIPTS, _PROGRAM):
        shutil.copyfile(source / "worker" / name, folder / name)
    for path in _licences(source):
        shutil.copyfile(path, folder / path.name)
    notice = _NOTICE.format(
        name=package["name"],
        version=package["version"],
        licence=package["license"],
        source=_SOURCE,
    )
    (folder / "NOTICE.txt").write_text(notice, encoding="utf-8")


def _template(name: str) -> str:
    return read_resource(__package__, "templates", "browser_page", name)


def _written(path: Path, *parts: str) -> dict[str, Any]:
    """Write a file of these parts; return what the page has to know of it."""
    path.write_text("\n".join(part.rstrip("\n") for part in parts) + "\n", encoding="utf-8")
    return _file(path.parent, path.name)


def _file(folder: Path, name: str) -> dict[str, Any]:
    """Return what the page has to know of a file: its address has the file's digest."""
    path = folder / name
    return {"name": name, "size": path.stat().st_size, "address": f"{name}?{sha256(path)}"}


def _escaped(text: str) -> str:
    """Return a text for the page, which is in UTF-8."""
    return html.escape(encodable_text(text))


def _lang(language: str) -> str:
    """Return an attribute with the language, if it is a code that browsers may know."""
    code = language.replace("_", "-")
    return f' lang="{html.escape(code)}"' if code and has_form_of_code(code) else ""
