"""One trial in a process of its own: train, score, and look inside."""

from __future__ import annotations

import math
import resource
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_addnorm.diagnostics import (
    effective_depth,
    initialize_admin,
    inspect,
    observe,
    predict_stability,
)
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy, evaluate_translations
from study.corpus import Corpus
from study.trial import Outcome, Scale, Trial

_EVERY = 20  # updates whose mean loss is one point of a curve


def measure(trial: Trial, scale: Scale, corpus: Corpus) -> Outcome:
    """Train from scratch, and return all that the page needs.

    Args:
        trial: What to train.
        scale: How large.
        corpus: The sentences.

    Returns:
        Losses, scores, times and what `inspect` found, as plain JSON values.
    """
    config = _config(trial, scale, corpus)
    before = _memory()
    keras.utils.set_random_seed(trial.seed)
    model = Seq2SeqTransformer(config)
    optimizer = keras.optimizers.Adam(0.001, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer=optimizer, loss=MaskedSparseCategoricalCrossentropy(), jit_compile=True)
    batches = corpus.batches(scale, trial.pairs, trial.seed)
    if trial.scheme == "admin":
        initialize_admin(model, batches[0][0])
    probe = corpus.validation_batches(scale)[0]
    forecast, start = None, None
    if trial.is_inspected and not trial.has_warmup:  # alike with warm-up
        forecast = predict_stability(config, learning_rate=trial.learning_rate).verdict.value
        start = _profile(model, probe)
    losses, seconds = [], []
    for batch, rate in zip(batches, trial.rates(scale), strict=True):
        optimizer.learning_rate.assign(rate)
        # On one core, which other programs may use, too.
        started = time.process_time()
        losses.append(float(model.train_on_batch(*batch)))
        seconds.append(time.process_time() - started)
        if not math.isfinite(losses[-1]):
            break
    memory = _memory() - before
    outcome: Outcome = {
        "machine": _machine(),
        "weights": model.count_params(),
        "curve": [_rounded(np.mean(losses[i : i + _EVERY])) for i in range(0, len(losses), _EVERY)],
        "milliseconds": _rounded(1000 * float(np.median(seconds[1:]))),
        "seconds": _rounded(sum(seconds)),
        "memory_mib": _rounded(memory / 2**20),
        "start": start,
        "forecast": forecast,
        "validation_loss": None,
        "bleu": None,
        "translations": None,
        "end": None,
        "skips": None,
        "effective_depth": None,
        "means": None,
    }
    if math.isfinite(losses[-1]):
        found = [float(model.test_on_batch(*batch)) for batch in corpus.validation_batches(scale)]
        translations = _translations(model, scale, corpus)
        score = evaluate_translations(translations, corpus.references[: scale.scored])
        outcome |= {
            "validation_loss": _rounded(np.mean(found)),
            "bleu": _rounded(score.bleu),
        }
        if trial.is_inspected and trial.has_warmup:
            depth = effective_depth(model, probe)
            outcome |= {
                "translations": translations,
                "end": _profile(model, probe),
                "skips": {name: _rounded(cost) for name, cost in depth.increases.items()},
                "effective_depth": _rounded(depth.depth),
            }
        if trial.has_means:
            outcome["means"] = _means(model, probe)
    return outcome


def _config(trial: Trial, scale: Scale, corpus: Corpus) -> Seq2SeqConfig:
    size = corpus.tokenizers.source.vocabulary_size
    return Seq2SeqConfig(
        source_vocabulary_size=size,
        target_vocabulary_size=size,
        num_encoder_layers=trial.layers // 2,
        num_decoder_layers=trial.layers // 2,
        hidden_dim=scale.hidden_dim,
        intermediate_dim=2 * scale.hidden_dim,
        num_heads=scale.num_heads,
        max_length=scale.length,
        dropout=0.1,
        scheme=trial.scheme,
        norm=trial.norm,
        self_attention=trial.self_attention,
        share_embeddings=True,
    )


def _profile(model: Seq2SeqTransformer, probe: Any) -> dict[str, Any]:
    """How the stream and the gradients change along each stack."""
    report = inspect(model, probe)
    found = {}
    for stack in ("encoder", "decoder"):
        items = [item for item in report.sublayers if item.stack == stack]
        first, last = items[0], items[-1]
        found[stack] = {
            "stream_growth": _rounded(last.merged_rms / first.residual_rms),
            "gradient_ratio": _rounded(first.gradient_norm / max(last.gradient_norm, 1e-30)),
        }
    return found


def means_at_start(trial: Trial, scale: Scale, corpus: Corpus) -> list[dict[str, Any]]:
    """The means of the decoder's stream before a training.

    Args:
        trial: What would be trained.
        scale: How large.
        corpus: The sentences.

    Returns:
        For each sublayer of the decoder its name and numbers, as plain JSON values.
    """
    keras.utils.set_random_seed(trial.seed)
    model = Seq2SeqTransformer(_config(trial, scale, corpus))
    return _means(model, corpus.validation_batches(scale)[0])


def _means(model: Seq2SeqTransformer, probe: Any) -> list[dict[str, Any]]:
    """The mean of what each sublayer of the decoder adds, and what the stream then is."""
    inputs, _ = probe
    with observe(model) as observation:
        model(inputs, training=False)
    found = []
    for record in observation:
        if record.name.startswith("decoder"):
            real = np.asarray(record.mask) if record.mask is not None else ...
            branch, stream = (np.asarray(x)[real] for x in (record.branch, record.merged))
            numbers = {
                "branch_mean": branch.mean(),
                "stream_mean": stream.mean(),
                "stream_rms": np.sqrt(np.mean(stream**2)),
            }
            rounded = {name: _rounded(value) for name, value in numbers.items()}
            found.append({"name": record.name, **rounded})
    return found


def _translations(model: Seq2SeqTransformer, scale: Scale, corpus: Corpus) -> list[str]:
    sources = corpus.validation.source[: scale.scored]
    ids, _ = model.generate(sources, max_length=scale.length)
    rows = [
        [int(token) for token in row if token not in (model.config.pad_id, model.config.end_id)]
        for row in keras.ops.convert_to_numpy(ids)
    ]
    return corpus.tokenizers.target.decode_batch(rows)


def _machine() -> str:
    """The processor: times of different ones are not compared."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else "unknown"


def _memory() -> int:
    """The largest memory of this process so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _rounded(value: Any) -> float | None:
    value = float(value)
    return float(f"{value:.5g}") if math.isfinite(value) else None
