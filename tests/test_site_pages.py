"""The pages of the documentation site that are made at its build."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from keras_addnorm.basics.fields import list_settings
from keras_addnorm.runs.commands import COMMANDS
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.settings import RunConfig

ROOT = Path(__file__).parents[1]
# What outside checks rely on, by subpackage; a change of it breaks other people's code.
PROMISED = {
    "layers": [
        *("AddNorm", "MultiHeadSelfAttention", "MultiHeadCrossAttention", "PositionalEmbedding"),
        *("FeedForward", "TransformerEncoderLayer", "TransformerDecoderLayer"),
        *("TransformerEncoder", "TransformerDecoder"),
    ],
    "models": ["Seq2SeqConfig", "Seq2SeqTransformer"],
    "training": [
        *("MaskedSparseCategoricalCrossentropy", "InverseSquareRootSchedule", "NoamSchedule"),
        *("MaskedAccuracy", "Perplexity", "average_checkpoints", "evaluate_translations"),
    ],
    "data": ["load_translation", "Tokenizer", "TokenizerPair", "make_training_dataset"],
    "decoding": ["translate", "strategies", "constraints", "length_penalties"],
    "serving": ["export_saved_model", "load_translator", "Client", "GraphTokenizer"],
    "diagnostics": ["inspect", "predict_stability", "ResidualMonitor", "prune", "fold"],
    "interop": [
        *("load_pretrained", "save_pretrained", "export_ctranslate2", "export_onnx"),
        "export_litert",
    ],
}


@pytest.fixture(scope="module")
def site():
    """The modules of `site_pages/`, which are on the path while MkDocs imports them."""
    names = (
        *("api_pages", "command_pages", "settings_page", "reference_pages", "repository_files"),
        "menu",
    )
    sys.path.insert(0, str(ROOT / "site_pages"))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(ROOT / "site_pages"))


@pytest.fixture(scope="module")
def interface(site):
    """The paths that each page about the Python interface asks the documentation of."""
    made = site["api_pages"].pages(ROOT / "keras_addnorm")
    return {
        re.search(r"# keras_addnorm\.(.*)", text)[1]: re.findall(r"^::: (\S+)$", text, re.M)
        for path, text in made.items()
        if not path.endswith("index.md")
    }


@pytest.mark.parametrize("package", PROMISED)
def test_the_interface_that_is_promised_has_its_place(interface, package):
    names = {path.rpartition(".")[2] for path in interface[package]}
    assert set(PROMISED[package]) <= names


def test_every_public_name_has_its_place_and_every_place_a_name(interface):
    for package, paths in interface.items():
        module = importlib.import_module(f"keras_addnorm.{package}")
        names = [path.rpartition(".")[2] for path in paths[1:]]
        assert set(getattr(module, "__all__", names)) <= set(names), package
        for path in paths:
            home, _, name = path.rpartition(".")
            try:
                importlib.import_module(path)
            except ModuleNotFoundError:
                if home.endswith(".Table"):
                    home, name = home.removesuffix(".Table"), "Table"
                assert hasattr(importlib.import_module(home), name), path


def test_every_setting_is_in_the_table(site):
    page = site["settings_page"].page()
    rows = re.findall(r"^\| `(\w+)` \| `--([\w-]+)` \|(.*)\|(.*)\|(.*)\|$", page, re.M)
    settings = [*list_settings(RunConfig), *DistillationConfig.settings()]
    assert [(name, flag) for name, flag, *_ in rows] == [(one.name, one.flag) for one in settings]
    assert all(cell.strip() for row in rows for cell in row)
    assert "| `epochs` | `--epochs` | `20` | whole number, at least 1 |" in page


def test_every_command_has_a_page(site):
    made = site["command_pages"].pages()
    for name, command in COMMANDS.items():
        assert f"usage: keras-addnorm {name}" in made[f"reference/commands/{name}.md"]
        assert command.summary in made["reference/commands/index.md"]


def test_a_folder_in_the_menu_becomes_its_pages(site):
    made = {"api/index.md": "# All", "api/layers.md": "# keras_addnorm.layers\n", "c.md": "# C"}
    entries = site["reference_pages"].entries(made, "api/")
    assert entries == [{"Overview": "api/index.md"}, {"layers": "api/layers.md"}]
    menu = ["index.md", {"Reference": [{"Python": "api/"}, {"B": "b.md"}]}, {"None": "none/"}]
    filled = site["menu"].fill(site["menu"].fill(menu, "api/", entries), "none/", [])
    assert filled == ["index.md", {"Reference": [{"Python": entries}, {"B": "b.md"}]}]


LINKS = [
    pytest.param(*case, id=str(index))
    for index, case in enumerate(
        [
            # page, Markdown, Markdown on the site
            ("docs/a.md", "[b](b.md#c)", "[b](b.md#c)"),
            ("docs/a.md", "[b](https://b.org/c)", "[b](https://b.org/c)"),
            ("docs/a.md", "[b](#c)", "[b](#c)"),
            ("docs/a.md", "[`e`](../e.py)", "[`e`](repository/e.py.md)"),
            ("docs/x/a.md", "[l](../../b/L.md#m)", "[l](../repository/b/L.md#m)"),
            ("docs/a.md", "`[e](../e.py)` [e](../e.py)", "`[e](../e.py)` [e](repository/e.py.md)"),
            ("docs/a.md", "```python\nf[0](../e.py)\n```", "```python\nf[0](../e.py)\n```"),
            ("b/L.md", "[a](../docs/a.md#c)", "[a](../../a.md#c)"),
            ("b/L.md", "![p](../docs/p.png)", "![p](../../p.png)"),
            ("b/L.md", "[e](e.toml), [m](M.md)", "[e](e.toml.md), [m](M.md)"),
            ("L.md", "[a](docs/a.md)", "[a](../a.md)"),
        ]
    )
]


@pytest.mark.parametrize(("page", "text", "expected"), LINKS)
def test_links_lead_to_pages_of_the_site(site, page, text, expected):
    assert site["repository_files"].turn_links(text, page) == expected


def test_files_that_are_linked_to_become_pages_with_those_they_link_to(site, tmp_path):
    for name, text in {
        "docs/a.md": "[log](../b/LOG.md)",
        "b/LOG.md": "[c](../e.py), [a](../docs/a.md), ![p](p.png), [gone](gone.py)",
        "e.py": "x = 1\n",
        "b/p.png": "PNG",
        "other.py": "not linked to",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    made = site["repository_files"].pages(tmp_path, ["docs/a.md"])
    assert made == {
        "repository/b/LOG.md": "[c](../e.py.md), [a](../../a.md), ![p](p.png), [gone](gone.py.md)",
        "repository/e.py.md": "# e.py\n\n`e.py`\n\n``````python\nx = 1\n\n``````\n",
        "repository/b/p.png": b"PNG",
    }


def test_cells_that_all_notebooks_share_are_folded(site):
    text = "a\n\n```python\nx = 1\n```\n\n```python\ny = 2\n```\n"
    folded = site["repository_files"].fold_cells(text, {"setup": "x = 1\n", "check": "z = 3\n"})
    assert re.search(
        r'<details markdown="1"><summary>Setup, .*</summary>\n\n```python\nx = 1', folded
    )
    assert folded.count("details") == 2
    assert folded.endswith("</details>\n\n```python\ny = 2\n```\n")


def test_long_sentences_of_notebooks_are_broken_and_columns_are_not(site):
    wrap = site["repository_files"].wrap
    sentence = "Exercise 1: not yet. " + "word " * 20 + "end."
    first, second, last = wrap(f"{sentence}\n").split("\n")
    assert len(first) <= 90 and second.startswith("    ") and last == ""
    assert f"{first} {second.strip()}" == sentence
    columns = f"name{'   1.0' * 20}\n| a | {'b ' * 50}|\nshort\n"
    assert wrap(columns) == columns


def test_the_menu_has_the_notebooks_by_their_titles(site):
    titles = [next(iter(entry)) for entry in site["repository_files"].notebooks(ROOT)]
    assert titles[:3:2] == ["Translate with fit", "Add & Norm from scratch"]
    assert titles[3] == "从零实现 Add & Norm" and len(titles) == 8


def script(name):
    """A file of `site_pages/` that imports no other of them."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "site_pages" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_schemes_is_what_its_script_draws():
    """`python site_pages/draw_schemes.py` was run after the last change."""
    draw = script("draw_schemes")
    text = draw.PICTURE.read_text("utf-8")
    assert text == draw.picture()
    ElementTree.fromstring(text)
    assert all(f">{one.name}<" in text for one in draw.SCHEMES)


@pytest.mark.parametrize(
    ("path", "boost"),
    [
        ("decisions/0010-hash-dropout.md", 0.3),
        ("repository/benchmarks/HISTORY.md", 0.3),
        ("add_and_norm.md", None),
    ],
)
def test_the_search_shows_records_and_measurements_last(path, boost):
    page = SimpleNamespace(file=SimpleNamespace(src_uri=path), meta={})
    rank = script("search_rank").on_page_markdown
    assert rank("# A page", page=page, config=None, files=None) == "# A page"
    assert page.meta.get("search", {}).get("boost") == boost


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("keras translation model", "index.md"),
        ("keras pre-ln decoder", "add_and_norm.md"),
        ("serve marian tensorflow", "pretrained.md"),
        ("translate with nllb in keras", "pretrained.md"),
        ("tensorflow savedmodel tokeniser strings", "serving.md"),
        ("migrate kerashub", "how_to/migrate_kerashub.md"),
    ],
)
def test_a_first_search_finds_a_page_by_its_title_and_description(site, query, page):
    describe = importlib.import_module("descriptions").description
    markdown = (ROOT / "docs" / page).read_text("utf-8")
    shown = f"{markdown.splitlines()[0]} {describe(markdown)}".lower()
    assert all(word in shown for word in query.split()), shown


def test_a_description_is_the_beginning_of_the_first_paragraph(site):
    describe = importlib.import_module("descriptions").description
    before = "# Title\n\n![a](b.png)\n\n```\nno\n\nnot this\n```\n\n- a list\n\n"
    text = before + "[One](x.md) `two`\n*three*.\n\nMore."
    assert describe(text) == "One two three."
    assert describe("# Title\n\n| a |\n|---|\n") == ""
    assert describe("word " * 100) == "word " * 31 + "..."


def test_formulas_become_mathml_and_nothing_else_does():
    formulas = script("formulas")
    page = (
        '<p>A <span class="arithmatex">\\(x &lt; y\\)</span>, <code>$PWD</code></p>'
        '<div class="arithmatex">\\[\nx^2\n\\]</div>'
    )
    found = formulas.with_formulas(page, lambda latex, display: f"<math {display}>{latex}</math>")
    assert found == ("<p>A <math inline>x < y</math>, <code>$PWD</code></p><math block>x^2</math>")
    assert formulas.on_page_content("<p>$PWD</p>", page=None) == "<p>$PWD</p>"
