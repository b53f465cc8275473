"""Makes the notebooks of their sources: runs them and stores what they print and draw.

A notebook is made of `src/NAME.py`, plain Python in the percent format, and of the cells in
`src/parts/` that all of them share. The solutions of its exercises are in `solutions/NAME.py`.
Where there is `src/NAME.LANGUAGE.md`, `NAME.LANGUAGE` is the same notebook with the texts of that
file, one for each that the source has, between lines of `%%`.

python notebooks/build.py                # all of them, some minutes
python notebooks/build.py 04_why_norm    # one
python notebooks/build.py 04_why_norm --into /tmp    # elsewhere, to compare
"""

from __future__ import annotations

import argparse
import copy
import tomllib
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat

from keras_addnorm.basics import atomic_file

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
PARTS = SOURCES / "parts"
SOLUTIONS = HERE / "solutions"
NAMES = tuple(sorted(path.stem for path in (*SOURCES.glob("*.py"), *SOURCES.glob("*.*.md"))))
COLAB = "https://colab.research.google.com"
COLAB_WORDS = {  # by language: a link, and what to do without one
    "": (
        "Open in Colab",
        f"*For [Colab]({COLAB}): upload this notebook. Its first cell installs the package, "
        "and says so if no registry has it.*",
    ),
    "zh": (
        "在 Colab 中打开",
        f"*要在 [Colab]({COLAB}) 中使用，请上传本 notebook。第一个代码单元会安装所需的包；"
        "如果软件仓库中没有这个包，它会说明。*",
    ),
}
CELL_SECONDS = 900  # the longest that a cell may take, on a very busy machine

_KINDS = ("include", "exercise", "check")  # what the metadata of a cell may say
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read(name: str) -> Any:
    """The notebook that a source describes, not yet run."""
    original, _, language = name.partition(".")
    notebook = _read_percent(SOURCES / f"{original}.py")
    if language:
        texts = (SOURCES / f"{name}.md").read_text(encoding="utf-8").split("\n%%\n")
        places = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
        for cell, text in zip(places, texts, strict=True):
            cell.source = text.strip()
    for cell in notebook.cells:
        part = cell.metadata.pop("include", None)
        if part is not None:
            cell.source = (PARTS / part).read_text(encoding="utf-8").strip()
    notebook.cells[0].source += f"\n\n{in_colab(name, address())}"
    return _with_ids(notebook)


def address() -> str:
    """The address of the repository, from where it stands alone."""
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["project"]["urls"]["Repository"]


def in_colab(name: str, repository: str) -> str:
    """What opens a notebook in Colab, which reads from GitHub alone."""
    link, upload = COLAB_WORDS[name.partition(".")[2]]
    place = repository.removesuffix("/").removeprefix("https://github.com/")
    if place == repository.removesuffix("/"):
        return upload
    return f"[{link}]({COLAB}/github/{place}/blob/main/notebooks/{name}.ipynb)"


def read_solved(name: str) -> Any:
    """The same, and behind each check of an open exercise the solution and the check once more."""
    notebook = read(name)
    answers = _read_percent(SOLUTIONS / f"{name.partition('.')[0]}.py").cells
    solutions = {cell.metadata["exercise"]: cell for cell in answers if "exercise" in cell.metadata}
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if "check" in cell.metadata:
            again = copy.deepcopy(cell)
            for added in (solutions[cell.metadata["check"]], again):
                added.metadata["added"] = True
                cells.append(added)
    notebook.cells = cells
    return _with_ids(notebook)


def unsolved(notebook: Any) -> list[str]:
    """What checks say wrongly: "right" of an open exercise, or "not yet" of a solution."""
    wrong = []
    for cell in notebook.cells:
        if "check" in cell.metadata:
            said = "".join(output.get("text", "") for output in cell.outputs)
            verdict = "right." if "added" in cell.metadata else "not yet. "
            if not said.startswith(f"Exercise {cell.metadata['check']}: {verdict}"):
                wrong.append(said)
    return wrong


def without_solutions(notebook: Any) -> Any:
    """What `read_solved` has added is taken away again, after the notebook was run with it."""
    notebook.cells = [cell for cell in notebook.cells if "added" not in cell.metadata]
    codes = (cell for cell in notebook.cells if cell.cell_type == "code")
    for number, cell in enumerate(codes, start=1):
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
    return _with_ids(notebook)


def run(notebook: Any) -> Any:
    """Run all cells in a process of their own; an error in one of them is an error here."""
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(HERE)}},
    )
    client.execute()
    # What TensorFlow says when it starts is of the machine that ran this.
    setup = next(cell for cell in notebook.cells if cell.cell_type == "code")
    setup.outputs = [output for output in setup.outputs if output.get("name") != "stderr"]
    return notebook


def _read_percent(path: Path) -> Any:
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(_METADATA)
    for cell in notebook.cells:
        # Not how many blank lines followed it in the source.
        kinds = {kind: cell.metadata[kind] for kind in _KINDS if kind in cell.metadata}
        cell.metadata = nbformat.from_dict(kinds)
    return notebook


def _with_ids(notebook: Any) -> Any:
    """Number the cells: ids by chance would make every build another file."""
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
    return notebook


def _write(notebook: Any, path: Path) -> None:
    with atomic_file(path) as temporary:
        nbformat.write(notebook, temporary)


def main() -> None:
    """Make the notebooks that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--into", type=Path, default=HERE, help="the folder they are written to")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for name in options.names or NAMES:
        print(name, flush=True)
        # With the solutions, so that an exercise that they do not solve is seen here.
        notebook = run(read_solved(name))
        if wrong := unsolved(notebook):
            raise SystemExit(f"{name}: these checks do not say what they should: {wrong}")
        _write(without_solutions(notebook), options.into / f"{name}.ipynb")


if __name__ == "__main__":
    main()
