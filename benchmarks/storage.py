"""Size on disk and BLEU of a trained run that is exported in float32, float16 and int8.

python benchmarks/storage.py runs/mine --split test
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import sacrebleu

from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.text_data import load_texts
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.serving import export_saved_model, load_translator


def main(run_dir: Path, split: str) -> None:
    """Export, translate, score, and print a table.

    Args:
        run_dir: The run directory.
        split: The split to translate.
    """
    run = load_run(RunDirectory(run_dir))
    sources, references = load_texts(run.config, split)
    search = run.config.evaluation
    print("| storage | bytes of variables | BLEU | difference | equal translations |")
    print("|---|---:|---:|---:|---:|")
    first = None
    with tempfile.TemporaryDirectory() as scratch:
        for storage in ("float32", "float16", "int8"):
            path = export_saved_model(
                run.model,
                run.tokenizers,
                Path(scratch, storage),
                num_beams=search.num_beams,
                length_penalty=search.length_penalty,
                max_length=search.max_length,
                storage=storage,
            )
            size = sum(file.stat().st_size for file in (path / "variables").iterdir())
            texts = [text for text, _ in load_translator(path)(sources)]
            metric = sacrebleu.metrics.BLEU()
            score = metric.corpus_score(texts, [references]).score
            first = first or (score, texts)
            equal = sum(a == b for a, b in zip(texts, first[1], strict=True)) / len(texts)
            print(f"| {storage} | {size:,} | {score:.2f} | {score - first[0]:+.2f} | {equal:.1%} |")
    print(f"\n{len(sources)} sentences of {split!r}, {metric.get_signature()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--split", default="test")
    arguments = parser.parse_args()
    main(arguments.run_dir, arguments.split)
