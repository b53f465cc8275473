"""A hook of the site: files of the repository that its pages link to are pages, too.

Pages in `docs/` link to files beside that folder: examples, tests, the measurement log. Such links
work where the repository is read. On the site, Markdown of the repository becomes a page as it is,
a notebook a page of its cells, any other text a page with code, and links lead to these pages.
"""

from __future__ import annotations

import json
import posixpath
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import menu

FOLDER = "repository"
"""Where the pages are on the site."""

_LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".sh": "bash", ".json": "json"}
_PICTURES = (".png", ".svg", ".jpg", ".gif")
# Characters of what a cell prints that fit between the site's menus, beside the button to copy it.
_WIDTH = 86
# Code is left alone; of a link, the part from its closing bracket on is enough.
_CODE_OR_LINK = re.compile(
    r"^ *(?P<fence>```+|~~~+).*?^ *(?P=fence) *$"
    r"|(?P<ticks>`+)[^`].*?(?P=ticks)(?!`)"
    r"|\]\((?P<link>[^()\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def targets(text: str, page: str) -> list[str]:
    """List the files that a page links to.

    Args:
        text: The page's Markdown.
        page: Its path in the repository.

    Returns:
        The paths of the files in the repository.
    """
    links = (match["link"] for match in _CODE_OR_LINK.finditer(text))
    return [path for path in (_target(link, page) for link in links if link) if path]


def turn_links(text: str, page: str) -> str:
    """Turn links to files outside of `docs/` to the pages of the site that show them.

    Args:
        text: A page's Markdown.
        page: Its path in the repository.

    Returns:
        The Markdown for the site.
    """

    def turned(match: re.Match[str]) -> str:
        path = match["link"] and _target(match["link"], page)
        if not path or (_is_page(path) and _is_page(page)):
            return match[0]
        link = posixpath.relpath(place(path), posixpath.dirname(place(page)) or ".")
        _, has_anchor, anchor = match["link"].partition("#")
        return f"]({link}{has_anchor}{anchor})"

    return _CODE_OR_LINK.sub(turned, text)


def place(path: str) -> str:
    """Tell where a file of the repository is on the site.

    Args:
        path: Its path in the repository.

    Returns:
        The path of the page, or of the picture, below the site's sources.
    """
    if _is_page(path):
        return path.removeprefix("docs/")
    suffix = "" if path.endswith((".md", *_PICTURES)) else ".md"
    return f"{FOLDER}/{path}{suffix}"


def pages(root: Path, first: Iterable[str]) -> dict[str, str | bytes]:
    """Make the pages of files, and of all files that these link to.

    Args:
        root: The repository.
        first: Paths of files in it. Those in `docs/` are read for their links only.

    Returns:
        The content by the path on the site.
    """
    found, todo = {}, list(first)
    seen = set(todo)
    for path in todo:  # It grows.
        file = root / path
        text = file.read_text("utf-8") if file.suffix == ".md" and file.is_file() else ""
        todo += (new := [new for new in targets(text, path) if new not in seen])
        seen.update(new)
        if file.is_file() and not _is_page(path):
            found.update(_shown(file, path, text))
    return found


def _is_page(path: str) -> bool:
    """Tell whether a file is in `docs/`, which the site has as it is."""
    return path.startswith("docs/")


def _target(link: str, page: str) -> str | None:
    """Return the file in the repository that a link of a page leads to, if it is one."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z][a-z+.-]*:|/", path):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return None if target.startswith("..") else target


def _shown(file: Path, path: str, text: str) -> dict[str, str | bytes]:
    """Make the page of one file, and the pictures of a notebook."""
    if file.suffix == ".md":
        return {place(path): turn_links(text, path)}
    if file.suffix in _PICTURES:
        return {place(path): file.read_bytes()}
    if file.suffix == ".ipynb":
        return _notebook(file, path)
    fence = "`" * 6
    code = file.read_text("utf-8")
    language = _LANGUAGES.get(file.suffix, "text")
    return {place(path): f"# {file.name}\n\n`{path}`\n\n{fence}{language}\n{code}\n{fence}\n"}


def _notebook(file: Path, path: str) -> dict[str, str | bytes]:
    """Make the page of a notebook with its stored outputs."""
    import nbformat
    from nbconvert import MarkdownExporter

    notebook = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "text" in output:
                output["text"] = wrap(output["text"])
    text, resources = MarkdownExporter().from_notebook_node(notebook)
    parts = sorted((file.parent / "src" / "parts").glob("*.py"))
    text = fold_cells(text, {part.stem: part.read_text("utf-8") for part in parts})
    folder = posixpath.basename(place(path)).removesuffix(".md")
    pictures = resources["outputs"]
    for name in pictures:
        text = text.replace(f"]({name})", f"]({folder}/{name})")
    beside = posixpath.dirname(place(path))
    return {
        place(path): turn_links(text, path),
        **{f"{beside}/{folder}/{name}": content for name, content in pictures.items()},
    }


def fold_cells(text: str, shared: Mapping[str, str]) -> str:
    """Fold the cells that all notebooks share: who reads has come for the others.

    Args:
        text: A notebook as Markdown.
        shared: The code of such cells by their names.

    Returns:
        The Markdown, in which a line stands for each of them and opens it.
    """
    for name, code in shared.items():
        cell = f"```python\n{code.strip()}\n```"
        summary = f"<summary>{name.capitalize()}, a cell that all notebooks share</summary>"
        text = text.replace(cell, f'<details markdown="1">{summary}\n\n{cell}\n\n</details>')
    return text


def wrap(printed: str) -> str:
    """Break long sentences that a cell has printed, whose end nobody would see on the site.

    Args:
        printed: The text.

    Returns:
        The text with lines that fit. A line with columns stays whole: one with two spaces in it or
        a bar before it.
    """
    found: list[str] = []
    for line in printed.split("\n"):
        has_columns = line.startswith("|") or "  " in line.strip()
        if len(line) <= _WIDTH or has_columns:
            found.append(line)
        else:
            found += textwrap.wrap(line, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(found)


def notebooks(root: Path) -> list[dict[str, str]]:
    """List the notebooks.

    Args:
        root: The repository.

    Returns:
        The title of each, its first heading, and its page.
    """
    found = []
    for file in sorted(root.glob("notebooks/*.ipynb")):
        cells = json.loads(file.read_text("utf-8"))["cells"]
        text = "".join(cells[0]["source"])
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        path = place(file.relative_to(root).as_posix())
        # A menu shows no code.
        found.append({title[1].replace("`", "") if title else file.stem: path})
    return found


def on_config(config: Any) -> Any:
    """Fill the menu (MkDocs calls this)."""
    root = Path(config.config_file_path).parent
    config.nav = menu.fill(config.nav, f"{FOLDER}/notebooks/", notebooks(root))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the site's files (MkDocs calls this)."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    first = [f"docs/{file.src_uri}" for file in files.documentation_pages() if file.src_dir]
    named = re.findall(rf"\b{FOLDER}/([^\s'\"]+)\.md\b", Path(config.config_file_path).read_text())
    first += [name if (root / name).exists() else f"{name}.md" for name in named]
    first += [file.relative_to(root).as_posix() for file in root.glob("notebooks/*.ipynb")]
    for uri, content in pages(root, first).items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn the links of a page of `docs/` (MkDocs calls this)."""
    if page.file.generated_by:
        return markdown
    return turn_links(markdown, f"docs/{page.file.src_uri}")
