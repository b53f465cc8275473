"""Prunes a trained run: what each sublayer costs on its data, and the run that is left."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import UserError
from keras_addnorm.data import make_training_dataset
from keras_addnorm.decoding import Lexicon, translate
from keras_addnorm.diagnostics import PruneResult, Validation
from keras_addnorm.diagnostics import prune as prune_model
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.inspect import inspect
from keras_addnorm.runs.text_data import load_pairs, save_tokenizers
from keras_addnorm.runs.trained_run import TrainedRun, save_model_config
from keras_addnorm.runs.weight_files import save_best_weights


def prune(
    run: TrainedRun,
    sublayers: Sequence[str] = (),
    *,
    split: str = "validation",
    pairs: int = 128,
) -> PruneResult:
    """Leaves sublayers out of a run's model, and measures what that costs.

    Args:
        run: A trained run.
        sublayers: Their names, such as `encoder/2/self_attention`; none for those that a report on
            the pairs calls nearly the identity.
        split: The split whose pairs are measured on.
        pairs: How many of them.

    Returns:
        The pruned model, and loss, perplexity and BLEU (greedy search) of each model.

    Raises:
        UserError: If there is no such sublayer or no such pair, or a report finds none to leave
            out.
    """
    some = list(itertools.islice(load_pairs(run.config, split), pairs))
    if not some:
        raise UserError(f"The split {split!r} of {run.config.data!r} has no sentence pair.")
    chosen = tuple(sublayers) or _nearly_the_identity(run, split, len(some))
    sources, references = zip(*some, strict=True)

    def translate_greedily(model: Seq2SeqTransformer, texts: list[str]) -> list[str]:
        limit = run.config.evaluation.max_length
        return translate(model, run.tokenizers, texts, max_length=limit).texts

    with as_user_errors():
        data = make_training_dataset(some, run.tokenizers)
        validation = Validation(data, sources, references, translate_greedily)
        return prune_model(run.model, chosen, evaluate=validation)


def _nearly_the_identity(run: TrainedRun, split: str, pairs: int) -> tuple[str, ...]:
    report = inspect(run, split, batch_size=min(pairs, 32))
    kinds = {verdict.kind: verdict.sublayers for verdict in report.verdicts}
    if "near_identity" not in kinds:
        smallest = sorted(report.sublayers, key=lambda item: item.effect)[:3]
        raise UserError(
            "No sublayer of this model is nearly the identity. Name those that are to be left out, "
            "such as the ones that change the stream least: "
            f"{' '.join(item.name for item in smallest)}."
        )
    return kinds["near_identity"]


def save(model: Seq2SeqTransformer, run: TrainedRun, path: str | Path) -> Path:
    """Writes a pruned model as a run of its own, without checkpoints and scores."""
    changes = {
        "model.pruned_sublayers": list(model.config.pruned_sublayers),
        "training.start_from": "",  # It had the sublayers.
    }
    with as_user_errors(), atomic_folder(path) as folder:
        directory = RunDirectory(folder)
        directory.write_config(run.config.replace(changes))
        save_model_config(model.config, directory)
        save_tokenizers(run.tokenizers, directory)
        save_best_weights(model, directory)
        if run.directory.lexicon.exists():
            run.directory.check(run.directory.lexicon)
            # Not as it is: behind a link may be anything, which would go to whoever gets the run.
            lexicon = Lexicon.load(run.directory.lexicon)
            with directory.manifest.rewriting(directory.lexicon):
                lexicon.save(directory.lexicon)
    return to_path(path)
