"""Makes docs/add_and_norm_by_hand.html: six small models of one recipe that run in a page.

python examples/explain_schemes.py            # six trainings, some minutes each on one core
python examples/explain_schemes.py --remake   # the models in the page, with new page sources
python examples/explain_schemes.py --smoke    # only tries that it runs

Each model learns the built-in set with another scheme, and what its residual stream did meanwhile
is recorded. Every training is a run directory of its own: what was killed resumes where it stopped.
The page has the weights in 16 bits, and this checks that logits hardly move by that. (That the page
computes what Keras computes with these weights is for the tests.) With --remake nothing is trained:
the models are those of the page that is there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.explain import as_packed, remade_page
from keras_addnorm.runs import RunConfig
from keras_addnorm.runs.directory import write_text
from keras_addnorm.runs.explain import explain
from keras_addnorm.runs.text_data import load_texts
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import TrainedRun, load_run
from keras_addnorm.runs.zoo import find

SCHEMES = ("post_ln", "pre_ln", "no_residual", "no_norm", "sandwich_ln", "rezero")
# The recipe of the zoo: two layers a side, narrow.
RECIPE = find("addnorm-post-ln").config
SMOKE = {
    "tokenizer.vocabulary_size": 200,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.hidden_dim": 8,
    "model.intermediate_dim": 8,
    "model.num_heads": 2,
    "training.epochs": 1,
    "training.bucket_lengths": [64],
    "training.jit_compile": False,
    "training.monitor_every": 2,
}
NOTE = (
    "All translate English into German, and have two layers a side, the same data, recipe and "
    "number of updates; only the scheme differs."
)
MOST_BYTES = 1_500_000
LARGEST_DIFFERENCE = 1e-2


def train_schemes(config: RunConfig, runs: Path, schemes: Sequence[str], pairs: str) -> list[Path]:
    """Train a model of each scheme; what is there already is not done again."""
    directories = []
    for scheme in schemes:
        directory = runs / scheme
        train(config.replace({"model.scheme": scheme}), directory, split=f"train{pairs}", verbose=0)
        print(f"{scheme}: trained", flush=True)
        directories.append(directory)
    return directories


def difference_of_logits(run: TrainedRun, num_pairs: int = 32) -> float:
    """Return how far the weights of 16 bits move the logits, at most."""
    sources, targets = load_texts(run.config, f"validation[:{num_pairs}]")
    model, config = run.model, run.model.config
    batch = {
        "source": _padded(
            [[*ids, config.end_id] for ids in run.tokenizers.source.encode_batch(sources)]
        ),
        "target": _padded(
            [[config.start_id, *ids] for ids in run.tokenizers.target.encode_batch(targets)]
        ),
    }
    is_real = batch["target"] != config.pad_id
    before = np.asarray(model(batch))[is_real]
    for weight in model.weights:
        weight.assign(as_packed(weight))
    return float(np.abs(np.asarray(model(batch))[is_real] - before).max())


def _padded(rows: list[list[int]]) -> np.ndarray:
    array = np.zeros((len(rows), max(map(len, rows))), "int32")
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def main(arguments: argparse.Namespace) -> Path:
    """Train, write the page, and check it."""
    if arguments.remake:
        return remake(arguments.html)
    config = RECIPE
    if not arguments.smoke:
        return _make(config, arguments.runs, SCHEMES, "", arguments.html)
    with tempfile.TemporaryDirectory() as runs:
        folder = Path(runs)
        return _make(config.replace(SMOKE), folder, SCHEMES[:2], "[:100]", folder / "page.html")


def remake(html: Path) -> Path:
    """Write the page again, of the models in it."""
    write_text(html, remade_page(to_file(html).read_text(encoding="utf-8"), note=NOTE))
    _check_size(html)
    return html


def _check_size(page: Path) -> None:
    size = page.stat().st_size
    print(f"{page}: {size:,} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"The page is too large. Expected at most {MOST_BYTES:,} bytes.")


def _make(config: RunConfig, runs: Path, schemes: Sequence[str], pairs: str, html: Path) -> Path:
    directories = train_schemes(config, runs, schemes, pairs)
    page = explain(directories, html, note=NOTE)
    _check_size(page)
    for directory in directories:
        difference = difference_of_logits(load_run(directory))
        print(f"{directory.name}: 16 bits move logits by {difference:.1e} at most")
        if difference > LARGEST_DIFFERENCE:
            raise SystemExit(f"That is too far. Expected at most {LARGEST_DIFFERENCE}.")
    return page


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--smoke", action="store_true", help="only try that it runs")
    made.add_argument(
        "--remake", action="store_true", help="write the page again, of the models in it"
    )
    made.add_argument("--runs", type=Path, default=Path("runs/explain"), help="run directories")
    made.add_argument(
        "--html",
        type=Path,
        default=Path("docs/add_and_norm_by_hand.html"),
        help="default: %(default)s",
    )
    return made


if __name__ == "__main__":
    main(parser().parse_args())
