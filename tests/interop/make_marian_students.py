"""Trains the small models of `students/` with Marian, and asks Marian for its scores.

Needs pymarian 1.12.42 (600 MB) in the Python that runs it, from the root of the repository:

    python tests/interop/make_marian_students.py tests/interop/students

With three arguments, a model, its vocabulary and a list of lines in JSON, it writes Marian's greedy
outputs and scores to the standard output, in JSON: Marian and TensorFlow crash in one process.

It makes a SentencePiece model, an SSRU and an average-attention model as `.npz`, a binary
shortlist, and `marian.json`: for 200 sentences Marian's greedy output, for some of them the
log-probability of each token, and the SHA-256 of what `marian-conv` makes of the first model as a
float32 `.bin`, without the settings, which it writes anew.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

HEADS = {"ssru": 2, "average_attention": 2, "self_attention": 2}
DECODERS = {
    "ssru": "--transformer-decoder-autoreg rnn --dec-cell ssru",
    "average_attention": "--transformer-decoder-autoreg average-attention",
    "self_attention": "--transformer-decoder-autoreg self-attention",
}
VOCABULARY, NUM_SCORED, FIRST, BEST = 144, 20, 5, 7
PLAIN = {"width": 16, "inner": 32, "layers": 1, "vocabulary": VOCABULARY, "updates": 500}


def train_vocabulary(corpus, path, size):
    """A joint vocabulary whose first pieces are those that Marian expects."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        input=[str(corpus / f"train.{language}") for language in ("en", "de")],
        model_prefix=str(path.with_suffix("")),
        vocab_size=size,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        normalization_rule_name="identity",
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
    )
    path.with_suffix(".model").rename(path)
    path.with_suffix(".vocab").unlink()


def train(corpus, vocabulary, path, kind, sizes, more=""):
    """One model, by one thread, from one seed."""
    import _pymarian

    _pymarian.Trainer(
        f"--type transformer --model {path} --vocabs {vocabulary} {vocabulary} "
        f"--train-sets {corpus / 'train.en'} {corpus / 'train.de'} {DECODERS[kind]} "
        f"--dim-emb {sizes['width']} --transformer-heads {HEADS[kind]} --dec-depth 2 "
        f"--enc-depth {sizes['layers']} --transformer-dim-ffn {sizes['inner']} "
        f"--transformer-dim-aan {sizes['inner']} --transformer-ffn-activation relu "
        "--tied-embeddings-all --cpu-threads 1 --sync-sgd -w 400 --mini-batch 32 --maxi-batch 20 "
        "--learn-rate 0.005 --lr-warmup 50 --clip-norm 0 --seed 7 --overwrite --quiet "
        f"--optimizer-params 0.9 0.98 1e-9 --after-batches {sizes['updates']} {more}"
    ).train()


def convert(*arguments):
    """`marian-conv`."""
    import _pymarian

    assert _pymarian.main(["convert", *map(str, arguments)]) == 0


def translate(path, vocabulary, lines):
    """Greedy outputs with the log-probability of each token, the end among them."""
    import _pymarian

    translator = _pymarian.Translator(
        f"--models {path} --vocabs {vocabulary} {vocabulary} --cpu-threads 1 --beam-size 1 "
        "--word-scores --n-best --quiet"
    )
    found = []
    for line in translator.translate(lines):
        _, text, scores, *_ = line.split(" ||| ")
        found.append((text, [float(score) for score in scores.split()[1:]]))
    return found


def translations_of(token, size=VOCABULARY):
    """Which target tokens the shortlist has for a source token, the most probable first."""
    return list(dict.fromkeys((token * 11 + 5 * place * place) % size for place in range(10)))


def write_shortlist(pieces, vocabulary, path):
    """A binary shortlist, made by `marian-conv` of a text."""
    lines = [
        f"{pieces[target]} {pieces[token]} {1 / (place + 2):.6f}"
        for token in range(len(pieces))
        for place, target in enumerate(translations_of(token, len(pieces)))
    ]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "lex.txt")
        text.write_text("\n".join(lines) + "\n", encoding="utf-8")
        shortlist = ("--shortlist", text, FIRST, BEST, 0, "--dump-shortlist", path)
        convert(*shortlist, "-V", vocabulary, vocabulary)


def hash_of_numbers(path):
    """The SHA-256 of a `.bin` up to its settings, which are its last tensor."""
    content = path.read_bytes()
    return hashlib.sha256(content[: content.rindex(b"bert-train")]).hexdigest()


def corpus_in(folder):
    """The library's own example corpus."""
    from keras_addnorm import cli

    corpus = Path(folder, "corpus")
    with contextlib.redirect_stdout(sys.stderr):
        assert cli.main(["data", "--example", str(corpus)]) == 0
    return corpus


def make(folder):
    """All files of the test data."""
    from keras_addnorm.data import sentencepiece_pieces

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder / "vocab.spm"
    with tempfile.TemporaryDirectory() as place:
        corpus = corpus_in(place)
        train_vocabulary(corpus, vocabulary, VOCABULARY)
        lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
        said = {"sources": lines}
        for kind in ("ssru", "average_attention"):
            model = Path(place, f"{kind}.npz")
            train(corpus, vocabulary, model, kind, PLAIN)
            os.replace(model, folder / model.name)
            found = translate(folder / model.name, vocabulary, lines)
            said[kind] = {
                "outputs": [text for text, _ in found],
                "scores": [scores for _, scores in found[:NUM_SCORED]],
            }
        binary = Path(place, "ssru.bin")
        convert("-f", folder / "ssru.npz", "-t", binary)
        said["sha256 of ssru.bin"] = hash_of_numbers(binary)
    write_shortlist(sentencepiece_pieces(vocabulary), vocabulary, folder / "lex.bin")
    text = json.dumps(said, ensure_ascii=False, indent=0)
    (folder / "marian.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        make(sys.argv[1])
    else:
        print(json.dumps(translate(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
