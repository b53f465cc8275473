"""The notebooks: made of their sources, with outputs, without errors, and their exercises work."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from tiers import for_releases

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
ORIGINALS = sorted(path.stem for path in (NOTEBOOKS / "src").glob("*.py"))
TRANSLATIONS = sorted(path.stem for path in (NOTEBOOKS / "src").glob("*.*.md"))
NAMES = ORIGINALS + TRANSLATIONS
WHAT_TO_SEE = {"": "*What to see: ", "zh": "*看点："}
LARGEST = 400_000  # bytes of a notebook with its outputs


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build", NOTEBOOKS / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(name):
    return json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))


def text_of(cell):
    return "".join(cell["source"])


def printed(cell):
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_seven():
    assert len(ORIGINALS) == 7
    assert TRANSLATIONS == ["03_add_and_norm_from_scratch.zh"]
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(NAMES)
    assert [path.stem for path in sorted((NOTEBOOKS / "solutions").glob("*.py"))] == ORIGINALS


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_a_translation_has_the_code_of_its_original_and_its_formulas(name, build):
    cells, originals = build.read(name).cells, build.read(name.partition(".")[0]).cells
    assert len(cells) == len(originals)
    for cell, original in zip(cells, originals, strict=True):
        assert cell.cell_type == original.cell_type
        if cell.cell_type == "code":
            assert cell.source == original.source
            continue
        assert cell.source != original.source
        for pattern in (r"^#+ ", r"^> .*", r"^\*\*\d\.\*\*", r"`[^`]+`", r"^- "):
            found = (re.findall(pattern, each.source, re.MULTILINE) for each in (cell, original))
            assert next(found) == next(found), cell.source


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_made_of_its_source(name, build):
    """`python notebooks/build.py NAME` was run after the last change."""

    def parts(cells):
        return [(c["cell_type"], dict(c["metadata"]), text_of(c), c["id"]) for c in cells]

    assert parts(stored(name)["cells"]) == parts(build.read(name).cells)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_begins_with_its_way_to_colab(name, build):
    last = text_of(stored(name)["cells"][0]).splitlines()[-1]
    assert last == build.in_colab(name, build.address())
    assert "](https://colab.research.google.com" in last


def test_colab_reads_from_github(build):
    link = "https://colab.research.google.com/github/o/r/blob/main/notebooks/04_why_norm.ipynb"
    for address in ("https://github.com/o/r", "https://github.com/o/r/"):
        assert build.in_colab("04_why_norm", address) == f"[Open in Colab]({link})"
    assert "upload this notebook" in build.in_colab("04_why_norm", "https://codeberg.org/o/r")


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [
        (NOTEBOOKS, '-c ../constraints.txt "..[demo,serve]"'),
        (None, '"keras-addnorm[demo,serve]"'),
    ],
    ids=["in a clone", "alone"],
)
@pytest.mark.parametrize("arrives", [True, False])
def test_the_first_cell_installs_what_is_missing(folder, wanted, arrives, tmp_path, monkeypatch):
    there = []

    def run_line_magic(magic, line):
        asked.append((magic, line))
        there.extend(["it"] * arrives)

    asked = []
    shell = SimpleNamespace(run_line_magic=run_line_magic)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there or None)
    monkeypatch.chdir(folder or tmp_path)
    source = (NOTEBOOKS / "src" / "parts" / "setup.py").read_text(encoding="utf-8")
    first, _, _ = source.partition("os.environ[")
    if arrives:
        exec(first, {})
    else:
        with pytest.raises(SystemExit, match=r"Not installed\. Clone the repository"):
            exec(first, {})
    assert asked == [("pip", f"install -q {wanted}")]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_can_be_read_without_running(name):
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < LARGEST
    cells = code_cells(stored(name))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell["outputs"] for cell in cells)
    outputs = [output for cell in cells for output in cell["outputs"]]
    # Nothing on the standard error, where warnings and notes of other libraries go, and no error.
    assert {output.get("name") for output in outputs} <= {None, "stdout"}
    assert "error" not in {output["output_type"] for output in outputs}
    # No path of the machine that ran it.
    assert not re.search(r"(?<![\w.])/(work|root|home|usr|tmp)/", json.dumps(outputs))


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_says_what_to_see(name):
    cells = stored(name)["cells"]
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", ())):
            assert following is not None and text_of(following).startswith(
                WHAT_TO_SEE[name.partition(".")[2]]
            )


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_opens_with_the_installation_and_ends_with_three_exercises(name, build):
    cells = code_cells(stored(name))
    assert '-c ../constraints.txt "..[demo,serve]"' in text_of(cells[0])
    kinds = [dict(cell["metadata"]) for cell in cells if cell["metadata"]]
    assert kinds == [{kind: n} for n in (1, 2, 3) for kind in ("exercise", "check")]
    for cell in cells:
        if "check" in cell["metadata"]:
            assert printed(cell).startswith(f"Exercise {cell['metadata']['check']}: not yet. ")
    solutions = build._read_percent(NOTEBOOKS / "solutions" / f"{name.partition('.')[0]}.py").cells
    assert [dict(cell.metadata) for cell in solutions] == [{"exercise": n} for n in (1, 2, 3)]


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name):
    texts = [text_of(cell) for cell in stored(name)["cells"] if cell["cell_type"] == "markdown"]
    links = re.findall(r"\]\(([^)]+)\)", "\n".join(texts))
    assert links
    inside = [link for link in links if not link.startswith("https://")]
    assert [link for link in inside if not (NOTEBOOKS / link).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_formulas_can_be_read_where_no_tex_is_set(name):
    """On the site, and where the source is read."""
    texts = [text_of(cell) for cell in stored(name)["cells"] if cell["cell_type"] == "markdown"]
    assert not re.search(r"\$\$|\\(frac|sqrt|sum|mathrm)", "\n".join(texts))


def test_an_answer_is_judged_in_a_sentence(build, capsys):
    names = {}
    exec((build.PARTS / "check.py").read_text(encoding="utf-8"), names)
    check = names["check"]
    check(1, lambda: None, lambda value: True, "Think.")
    check(2, lambda: 3, lambda value: value == 4, "Think.")
    check(3, lambda: 1 / 0, lambda value: True, "Think.")
    check(4, lambda: 4, lambda value: value == 4, "Think.")
    assert capsys.readouterr().out.splitlines() == [
        "Exercise 1: not yet. Think.",
        "Exercise 2: not yet. Think.",
        "Exercise 3: not yet. Your answer raised ZeroDivisionError('division by zero'). Think.",
        "Exercise 4: right.",
    ]


def test_a_check_that_says_something_else_is_found(build):
    def cell(said, **metadata):
        outputs = [nbformat.v4.new_output("stream", text=said)]
        return nbformat.v4.new_code_cell(outputs=outputs, metadata=metadata)

    right, open_still = "Exercise 1: right.\n", "Exercise 1: not yet. Think.\n"
    cells = [cell("1"), cell(open_still, check=1), cell(right, check=1, added=True)]
    assert build.unsolved(nbformat.v4.new_notebook(cells=cells)) == []
    cells = [cell(right, check=1), cell(open_still, check=1, added=True), cell("", check=1)]
    assert build.unsolved(nbformat.v4.new_notebook(cells=cells)) == [right, open_still, ""]


# The others train as these do; a translation has the code of its original.
OFTEN = ("01_translate_with_fit", "03_add_and_norm_from_scratch")


@pytest.mark.slow
@pytest.mark.parametrize("name", for_releases(NAMES, but=OFTEN))
def test_a_notebook_runs_and_its_solutions_are_right(name, tmp_path):
    """One run for both: each check comes twice, in front of the solution and behind it."""
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    done = subprocess.run(
        [sys.executable, NOTEBOOKS / "build.py", name, "--into", tmp_path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / f"{name}.ipynb").read_text(encoding="utf-8"))
    for new, old in zip(made["cells"], stored(name)["cells"], strict=True):
        kinds = [{output["output_type"] for output in c.get("outputs", ())} for c in (new, old)]
        assert kinds[0] == kinds[1], text_of(new)
