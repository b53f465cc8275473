"""Makes what every later version has to load: a model, tokenisers, a run and an export.

    python tests/compatibility/make.py

writes `tests/compatibility/<version>/` once, when a version is released; `test_stored_versions.py`
loads it in all versions that follow. A folder that is there is never made again: it would no longer
be what that version wrote.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

WORDS = {
    **{"red": "rot", "green": "grün", "blue": "blau", "big": "groß", "small": "klein"},
    **{"old": "alt", "new": "neu", "round": "rund"},
}
TEXTS = ("red green blue", "small old", "new round big red", "Blue  small!", "")

SETTINGS = {
    "data": "corpus",  # Beside the run: no path of the machine that made it.
    "source": "en",
    "target": "de",
    "tokenizer": {"vocabulary_size": 60},
    "model": {
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "num_heads": 2,
        "dropout": 0.0,
        "max_length": 20,
        "scheme": "pre_ln",
    },
    "training": {
        "epochs": 10,
        "tokens_per_batch": 14 * 16,
        "bucket_lengths": [14],
        "label_smoothing": 0.0,
        "warmup_steps": 20,
        "peak_learning_rate": 0.01,
        "keep_last": 1,
        "jit_compile": False,
        "seed": 1,
    },
    "evaluation": {"num_beams": 2, "length_penalty": 0.6, "max_length": 16},
}

# A model with many choices at once, as nobody would train it.
CHOICES = {
    "source_vocabulary_size": 31,
    "target_vocabulary_size": 29,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "hidden_dim": 16,
    "intermediate_dim": 20,
    "num_heads": 4,
    "max_length": 12,
    "activation": "swiglu",
    "scheme": {"name": "deep_norm", "alpha": 1.5, "beta": 0.7},
    "norm": {"encoder": "layer_norm", "decoder": {"name": "rms_norm", "epsilon": 1e-5}},
    "positions": {"name": "rotary", "base": 500.0},
    "attention": {"num_key_value_heads": 2, "query_key_norm": "rms_norm", "window": 5},
    "tie_embeddings": False,
    "pruned_sublayers": ["encoder/0/self_attention"],
}


def write_corpus(folder: Path) -> None:
    """Writes a folder of parallel text: the words of a sentence in the reverse order."""
    folder.mkdir(parents=True)
    pairs = [
        (f"{a} {b} {c}", f"{WORDS[c]} {WORDS[b]} {WORDS[a]}")
        for a in WORDS
        for b in WORDS
        for c in WORDS
    ]
    random.Random(1).shuffle(pairs)
    splits = {"train": pairs[64:], "val": pairs[:32], "test": pairs[32:64]}
    for split, some in splits.items():
        for index, language in enumerate(("en", "de")):
            text = "".join(f"{pair[index]}\n" for pair in some)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")


def make_run(folder: Path) -> dict:
    """Trains in `folder/run`; returns what its translations are."""
    from keras_addnorm.runs import RunConfig, RunDirectory
    from keras_addnorm.runs.evaluate import evaluate
    from keras_addnorm.runs.train import train
    from keras_addnorm.runs.translate import translate_texts

    write_corpus(folder / "corpus")
    os.chdir(folder)
    run = train(RunConfig.from_dict(SETTINGS), RunDirectory("run"), verbose=0)
    expected = {
        "translations": translate_texts(run, TEXTS),
        "evaluation": evaluate(run, "test").cased.bleu,
        "ids": {
            side: getattr(run.tokenizers, side).encode_batch(TEXTS) for side in ("source", "target")
        },
        "epochs": len(run.directory.read_log()),
    }
    for picture in (run.directory.curves, run.directory.tensorboard):
        shutil.rmtree(picture) if picture.is_dir() else picture.unlink()
    return expected


def make_export(folder: Path) -> dict:
    """Exports the run into `folder/export.tar.gz`; returns what its translations are."""
    from keras_addnorm.runs import RunDirectory
    from keras_addnorm.runs.export import export
    from keras_addnorm.runs.trained_run import load_run
    from keras_addnorm.serving import load_translator

    with tempfile.TemporaryDirectory() as exports:
        version = export(load_run(RunDirectory(folder / "run")), Path(exports) / "small")
        expected = [[found.text, found.score] for found in load_translator(version)(TEXTS)]
        with tarfile.open(folder / "export.tar.gz", "w:gz") as archive:
            archive.add(version.parent, "small", filter=_nobodys)
    return {"translations": expected}


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leaves out who made a file, and when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def make_model(folder: Path) -> dict:
    """Saves a model of many choices; returns its logits and what it generates."""
    import keras
    import numpy as np

    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    model = Seq2SeqTransformer(Seq2SeqConfig.from_dict(CHOICES))
    # Biases and gains other than 0 and 1, so that each of them counts.
    model.set_weights(
        [
            np.asarray(weight) + rng.normal(0, 0.1, np.shape(weight)).astype("float32")
            for weight in model.get_weights()
        ]
    )
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    (folder / "model.json").write_text(model.config.to_json() + "\n", encoding="utf-8")
    source = rng.integers(4, 29, (3, 7))
    source[:, -1], source[1, 3:] = 2, [2, 0, 0, 0]
    target = rng.integers(4, 29, (3, 5))
    target[:, 0] = 1
    return {
        "source": source.tolist(),
        "target": target.tolist(),
        "logits": np.asarray(model({"source": source, "target": target})).tolist(),
        "beam": [found.tolist() for found in model.generate(source, num_beams=3)],
        "log_probabilities": model.score(source, target[:, 1:]).log_probabilities.tolist(),
    }


def make_own_model(folder: Path) -> None:
    """Writes a functional model of single layers, with its weights and its outputs."""
    import keras
    import numpy as np

    from keras_addnorm.layers import AddNorm, TransformerEncoderLayer

    keras.utils.set_random_seed(1)
    x = stream = keras.Input((3, 4), name="x")
    for scheme in ("pre_ln", "post_ln"):
        stream = AddNorm(scheme, name=scheme)(stream, keras.layers.Dense(4, name=f"f_{scheme}"))
    add_norm = AddNorm("pre_ln", name="two_calls")
    h = add_norm.branch_input(stream)
    stream = add_norm(stream, keras.layers.Dense(4, name="f_two_calls")(h))
    layer = TransformerEncoderLayer(num_heads=2, intermediate_dim=3, name="layer")
    model = keras.Model(x, layer(stream))
    inputs = np.random.default_rng(2).normal(size=(2, 3, 4)).round(2)
    stored = {
        "model": json.loads(model.to_json()),
        "weights": [weight.tolist() for weight in model.get_weights()],
        "inputs": inputs.tolist(),
        "outputs": np.asarray(model(inputs)).tolist(),
    }
    (folder / "own_model.json").write_text(json.dumps(stored) + "\n", encoding="utf-8")


def make(folder: Path) -> None:
    """Makes a folder of everything."""
    import keras

    import keras_addnorm

    folder = folder.resolve()
    folder.mkdir(parents=True)
    make_own_model(folder)
    expected = {
        "version": keras_addnorm.__version__,
        "keras": keras.__version__,
        "texts": TEXTS,
        "run": make_run(folder),
        "export": make_export(folder),
        "model": make_model(folder),
    }
    text = json.dumps(expected, ensure_ascii=False, indent=1) + "\n"
    (folder / "expected.json").write_text(text, encoding="utf-8")


def main() -> int:
    """Runs the command."""
    from keras_addnorm import __version__

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=HERE / __version__)
    options = parser.parse_args()
    if options.folder.exists():
        print(f"'{options.folder}' is there already. It stays what its version wrote.")
        return 1
    make(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
