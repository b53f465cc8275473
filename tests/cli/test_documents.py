"""What the documents show runs as it stands."""

import builtins
import re
import runpy
import shlex
import symtable
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from keras_addnorm import cli, norms, schemes
from keras_addnorm.data import TokenizerPair, make_training_dataset, readers
from keras_addnorm.decoding import constraints, generate, score, strategies
from keras_addnorm.decoding.engine import engine_for
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.runs import RunConfig
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.setting_flags import given
from keras_addnorm.runs.toml_files import merge
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

ROOT = Path(__file__).parents[2]
WITH_COMMANDS = (
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/how_to/*.md")),
)
PAGES = (*WITH_COMMANDS, ROOT / "saved_models" / "README.md")
BLOCKS = [
    pytest.param(code, id=f"{page.relative_to(ROOT).as_posix()}-{index}")
    for page in PAGES
    for index, code in enumerate(
        re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    )
]
# What pages register things in.
TABLES = (
    schemes._TABLE,
    norms._TABLE,
    strategies._TABLE,
    constraints._TABLE,
    readers.READERS,
)
# What does not run as it stands, and why.
NOT_ALONE = {
    "docs/tour.md-5": "reads the run of a whole demo; test_cli.py translates with a quick one",
    "docs/architecture.md-0": "a piece of a layer's `call`",
    "docs/architecture.md-1": "a piece of a stack's `call`",
    "docs/how_to/distill.md-0": "reads a trained run; tests/runs/test_distilled_run.py does so",
    "docs/how_to/tensorflow_serving.md-0": "asks a server; tests/serving/test_server_grpc.py does",
    "docs/how_to/tensorflow_serving.md-1": "the same",
    "docs/runtimes.md-1": "reads an export for ONNX Runtime; tests/interop runs it",
    "docs/server.md-0": "asks a server; tests/serving does",
    "saved_models/README.md-0": "reads what the demo exported; runs/serve_once.py does",
}


# What runs long, and shows again what tests of these files show.
FOR_RELEASES = {
    "docs/how_to/layers_in_my_model.md-0": "test_keras_habits.py",
    "docs/how_to/your_own_data.md-0": "cli/test_data_command.py",
    "docs/training.md-3": "models/test_lora.py",
    "docs/training.md-4": "models/test_quantize.py",
}


def commands(page):
    """The arguments of each `keras-addnorm` in a page's blocks of shell."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S):
        if language in ("", "bash"):
            for line in re.findall(r"\bkeras-addnorm (.+)", block.replace("\\\n", " ")):
                yield shlex.split(line, comments=True)


COMMANDS = [
    pytest.param(arguments, id=f"{page.stem}-{index}")
    for page in WITH_COMMANDS
    for index, arguments in enumerate(commands(page))
]


def needed(code):
    """The names that a block uses and does not make: those of blocks or models before it."""
    module = symtable.symtable(code, "a block", "exec")
    made = {name.get_name() for name in module.get_symbols() if name.is_assigned()}
    made |= {name.get_name() for name in module.get_symbols() if name.is_imported()}
    tables, used = [module], set()
    for table in tables:  # It grows.
        tables += table.get_children()
        used |= {
            name.get_name()
            for name in table.get_symbols()
            if name.is_referenced() and (table is module or name.is_global())
        }
    return used - made - set(dir(builtins))


def test_the_pages_have_code():
    pages = [param.id.rpartition("-")[0] for param in BLOCKS]
    assert pages.count("README.md") == 2
    assert len(pages) > 25
    assert NOT_ALONE.keys() | FOR_RELEASES.keys() < {param.id for param in BLOCKS}
    assert all((ROOT / "tests" / file).exists() for file in FOR_RELEASES.values())


@pytest.mark.parametrize("code", BLOCKS)
def test_a_block_stands_alone_or_says_what_it_needs(code, request):
    """Its first line names what a reader has to have."""
    if request.node.callspec.id not in NOT_ALONE:
        first, _, _ = code.partition("\n")
        missing = {name for name in needed(code) if not re.search(rf"\b{name}\b", first)}
        assert not missing
        assert not needed(code) or first.startswith("# needs ")


@pytest.fixture(scope="module")
def at_hand():
    """What blocks say that they need: a small model with its tokenisers, and batches of it."""
    pairs = [("a small house", "ein kleines Haus"), ("a mouse", "eine Maus")] * 20
    tokenizers = TokenizerPair.train(pairs, vocabulary_size=22)
    config = Seq2SeqConfig.preset(
        "tiny",
        source_vocabulary_size=22,
        target_vocabulary_size=22,
        num_encoder_layers=2,
        num_decoder_layers=1,
        hidden_dim=16,
        intermediate_dim=16,
        max_length=64,
        scheme="layer_scale",
    )
    model = Seq2SeqTransformer(config)
    model.compile("adam", MaskedSparseCategoricalCrossentropy(), jit_compile=False)
    batches = make_training_dataset(pairs, tokenizers, bucket_lengths=(24,), shuffle_seed=1)
    inputs, labels = next(batches.as_numpy_iterator())
    source, target = inputs["source"][0], inputs["target"][0]
    return {
        "model": model,
        "tokenizer": tokenizers,
        "inputs": inputs,
        "labels": labels,
        "batches": batches,
        "sources": ["a mouse"],
        "references": ["eine Maus"],
        "source_ids": source,
        "target_ids": target,
        "source_pieces": [str(token) for token in source],
        "target_pieces": [str(token) for token in target],
    }


def test_the_documents_have_commands():
    pages = [param.id.rsplit("-", 1)[0] for param in COMMANDS]
    counts = {"README": 10, "several_devices": 3, "resuming": 2, "training": 2}
    assert {page: pages.count(page) for page in counts} == counts


@pytest.mark.parametrize("arguments", COMMANDS)
def test_the_commands_are_understood(arguments):
    options = cli.build_parser().parse_args(arguments)
    assert callable(options.command.run)
    if hasattr(options, "set"):
        settings = merge({}, given(options))
        if "distillation" in settings:
            DistillationConfig.from_dict(settings.pop("distillation"))
        RunConfig.from_dict(settings)


@pytest.fixture(
    params=[
        pytest.param(True, marks=pytest.mark.release, id="as it stands"),
        pytest.param(False, marks=pytest.mark.slow, id="without XLA"),
    ]
)
def xla(request, monkeypatch):
    """Most of the seconds of a page's few updates are XLA's; other tests compile the same calls."""
    if request.param:
        return
    for search in (generate, score):
        monkeypatch.setitem(search.__globals__, "engine_for", lambda _=True: engine_for(False))
    function = tf.function

    def plain(*arguments, jit_compile=None, **options):
        return function(*arguments, **options)

    monkeypatch.setattr(tf, "function", plain)


@pytest.mark.usefixtures("xla")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            *block.values,
            id=block.id,
            marks=pytest.mark.release if block.id in FOR_RELEASES else (),
        )
        for block in BLOCKS
        if block.id not in NOT_ALONE
    ],
)
def test_a_block_runs(code, tmp_path, monkeypatch, capsys, at_hand):
    """As a reader runs it: in a folder of their own, with nothing but what its first line says."""
    monkeypatch.chdir(tmp_path)
    for table in TABLES:  # What a page registers is forgotten.
        monkeypatch.setattr(table, "_classes", dict(table._classes))
    keras.utils.set_random_seed(1)  # Few updates: what a model says depends on where it began.
    names = {name: at_hand[name] for name in needed(code)}
    exec(compile(code, "a block of a page", "exec"), names)
    # Once the tour ended with [''].
    assert "['']" not in capsys.readouterr().out


def test_the_page_of_choices_has_them_all():
    page = (ROOT / "docs" / "add_and_norm.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.M)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert named == {*schemes.names(), *norms.names()}


def test_the_readme_has_the_two_marked_commands():
    text = (ROOT / "README.md").read_text()
    commands = {"main job": "keras-addnorm demo", "tests": "pytest -n 2 --dist worksteal"}
    for marker, command in commands.items():
        block = text.split(f"<!-- ci: {marker} -->\n```bash\n")[1].split("```")[0]
        assert block.startswith("python3 -m venv .venv && . .venv/bin/activate")
        assert block.rstrip().endswith(command)


def anchors(page):
    """What links to the headings of a page end with."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", prose, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_in_the_documents_leads_somewhere():
    places = ("*.md", "docs/**/*.md", "benchmarks/*.md", "notebooks/*.md")
    code = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    for document in (page for place in places for page in ROOT.glob(place)):
        for link in re.findall(r"\]\(([^)]+)\)", code.sub("", document.read_text())):
            if not link.startswith("http"):
                name, _, anchor = link.partition("#")
                page = document.parent / name if name else document
                assert page.exists(), f"{document.name}: {link}"
                assert not anchor or anchor in anchors(page), f"{document.name}: {link}"


@pytest.mark.slow
def test_the_page_of_code_runs():
    example = runpy.run_path(str(ROOT / "examples" / "translate_with_fit.py"))
    translations = example["main"](smoke=True)
    assert len(translations) == len(example["SENTENCES"])
    assert all(isinstance(text, str) for text in translations)


def test_the_chinese_readme_has_the_code_the_links_and_the_sections_of_the_english_one():
    """Its commands are those that are checked above, comments and all."""
    english, chinese = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")
    )
    fence = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)
    assert fence.findall(chinese) == fence.findall(english)
    prose = [fence.sub("", text) for text in (english, chinese)]
    for pattern in (r"^#+ ", r"^\|", r"^- "):
        counts = [len(re.findall(pattern, text, re.MULTILINE)) for text in prose]
        assert counts[0] == counts[1], pattern
    links = [set(re.findall(r"\]\(([^)]+)\)", text)) for text in prose]
    assert links[0] - {"README.zh.md"} == links[1] - {
        "README.md",
        "notebooks/03_add_and_norm_from_scratch.zh.ipynb",
    }
    # Codes and numbers are those of the English one.
    spans = [set(re.findall(r"`([^`\n]+)`", re.sub(r"\s+", " ", text))) for text in prose]
    assert spans[1] <= spans[0]
    shown = [re.sub(r"\]\([^)]+\)", "]", text) for text in prose]
    numbers = [set(re.findall(r"\d[\d,.]*\d", text)) for text in shown]
    assert numbers[1] <= numbers[0]
    assert not re.search("[\u4e00-\u9fff][,:;?!]|[,:;?!][\u4e00-\u9fff]", prose[1])
