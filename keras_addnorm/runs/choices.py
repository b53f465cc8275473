"""The names that settings choose among.

Many tables of what they stand for import Keras or NumPy, which `keras-addnorm --help` does without.
So their names stand here once more; tests/runs/test_choices.py compares them.
"""

from __future__ import annotations

from typing import Any

from keras_addnorm import norms, schemes

# `data.readers`
DATA_FORMATS = ("auto", "tsv", "csv", "jsonl", "parquet", "tmx", "xliff", "po")
# `data.vocabulary`
TOKENIZER_KINDS = ("bpe", "unigram")
# `data.normalization`
NORMALIZATIONS = ("nfc", "nfkc", "none")
# `data.demo`
DEMO_PAIRS = ("en-de", "en-fr", "en-es")
PRESET_SCHEME = "pre_ln"
# `models.Seq2SeqConfig.preset`, and the scheme of each.
PRESETS = {
    **dict.fromkeys(("micro", "tiny", "small", "base", "big"), PRESET_SCHEME),
    **dict.fromkeys(
        ("student-micro", "student-tiny", "student-base-memory", "student-base"), "post_ln"
    ),
}
SCHEMES = schemes.names()
# `layers.self_attention`
SELF_ATTENTIONS = ("multi_head_attention", "ssru", "average_attention")
# An encoder alone can have batch_norm: `--set model.norm=...`
NORMS = tuple(name for name in norms.names() if name != "batch_norm")
# Of Keras' initialisers, those for kernels.
INITIALIZERS = (
    "glorot_uniform",
    "glorot_normal",
    "he_uniform",
    "he_normal",
    "lecun_uniform",
    "lecun_normal",
    "orthogonal",
)
# `runs.optimization`
OPTIMIZERS = ("adam", "muon")
SCHEDULES = ("inverse_square_root", "noam", "cosine", "constant")
# `distribution`
DISTRIBUTIONS = ("none", "data", "model", "fsdp")
# `decoding.splitting`
SPLITTINGS = ("sentences", "long_texts", "none")
# What the exponent of the length penalty belongs to: `decoding.length_penalties`
LENGTH_PENALTIES = ("gnmt", "average")
# `decoding.search`
NUM_BEAMS = 4
LENGTH_PENALTY = 0.6
# When a beam search is done with a sentence, and `early_stopping` of `decoding.Beam`.
BEAM_STOPPINGS: dict[str, Any] = {
    "nothing_better": False,
    "current_length": "current_length",
    "enough_finished": True,
}
# `training.bleu_tokenizers`
BLEU_TOKENIZERS = (
    *("auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"),
    *("spm", "flores101", "flores200"),
)
# `training.scores`
SENTENCE_METRICS = ("chrf", "bleu")
# `serving.stored_weights`
STORAGES = ("float32", "float16", "int8")

# What `clip_by` limits, and the argument of Keras' optimisers for it.
CLIPS = {"weight": "clipnorm", "all": "global_clipnorm", "value": "clipvalue"}
# What the layers compute in, and Keras' policy for it; weights are float32 throughout.
PRECISIONS = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}
# What can choose the best epoch, and whether a high value is good.
BEST_METRICS = {
    "val_loss": False,
    "val_perplexity": False,
    "val_accuracy": True,
    "val_bleu": True,
    "val_chrf": True,
}
