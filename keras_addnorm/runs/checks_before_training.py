"""Checks before a training: settings, directory, devices, model, batches and disk space."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from keras_addnorm import distribution
from keras_addnorm.alignment import read_pharaoh
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.distribution import Devices
from keras_addnorm.layers.attention_config import AttentionConfig
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import FILE_SETTINGS, SPLIT_SETTINGS, RunConfig, TrainingConfig
from keras_addnorm.runs.trained_run import require_model_config

_DROPOUTS = {"dropout", "attention_dropout", "activation_dropout", "drop_path"}
# What decides which pairs are trained on.
_DATA_SETTINGS = ("data", "source", "target", *FILE_SETTINGS, *SPLIT_SETTINGS)


def require_trainable(config: RunConfig, directory: RunDirectory) -> Devices:
    """Refuses what settings and directory tell, before anything is written; finds the devices."""
    require_same_run(config, directory)
    if not directory.config.exists():
        config.require_codes()
    require_consistent(config.training)
    require_sampling(config)
    require_start(config, directory)
    require_model_config(config)
    require_alignments(config.training, directory)
    return usable_devices(config.training)


def require_consistent(training: TrainingConfig) -> None:
    """Refuses settings that need or exclude one another."""
    if training.ema and training.average_last > 1:
        given: dict[str, Any] = {
            f"training.{name}": getattr(training, name) for name in ("ema", "average_last")
        }
        raise ArgumentError(
            "A moving average and an average of epochs are two ways to one thing.",
            "one of them",
            "Leave one at its default.",
            **given,
        )
    off_the_grid = {
        "ema": training.ema > 0,
        "average_last": training.average_last > 1,
        "lora_rank": training.lora_rank > 0,
    }
    if training.eight_bits and any(off_the_grid.values()):
        names = [f"training.{name}" for name, is_used in off_the_grid.items() if is_used]
        raise ArgumentError(
            "Means of weights, and matrices beside them, do not lie on the grid of eight bits.",
            f"`training.eight_bits` = false with {' and '.join(f'`{name}`' for name in names)}",
            "Leave either at its default.",
            value=True,
        )
    if training.eight_bits and training.optimizer != "adam":
        raise ArgumentError(
            "Weights are kept on a grid of eight bits by Adam alone.",
            '`training.optimizer` = "adam" with `training.eight_bits`',
            value=training.optimizer,
        )
    if training.guided_alignment and training.subword_sampling:
        raise ArgumentError(
            "Alignments belong to the pieces that a text is always split into.",
            "`training.guided_alignment` or `training.subword_sampling`",
            "Leave one at 0.",
            received="both",
        )
    for name in ("distillation", "temperature"):
        chosen, usual = getattr(training, name), getattr(TrainingConfig(), name)
        if chosen != usual and not training.teacher:
            raise ArgumentError(
                "There is no teacher whose distribution over tokens would be learned.",
                f"`training.{name}={usual}` without `teacher`",
                "Name a teacher, or leave the setting out.",
                **{f"training.{name}": chosen},
            )
    if training.best_metric in ("val_bleu", "val_chrf") and not training.score_every:
        raise ArgumentError(
            f"Nothing would measure {training.best_metric!r}.",
            "`training.score_every` of at least 1 with it",
            "Pass --score-every 1, or another --best-metric.",
            value=0,
        )


def require_sampling(config: RunConfig) -> None:
    """Refuses a probability that is none, with a kind of tokeniser that drops merges."""
    sampling = config.training.subword_sampling
    if config.tokenizer.kind == "bpe" and sampling >= 1:
        raise ArgumentError(
            "With a bpe tokeniser, sub-word sampling is the probability that a merge is dropped.",
            "`training.subword_sampling` below 1",
            value=sampling,
        )


def require_alignments(training: TrainingConfig, directory: RunDirectory) -> None:
    """Refuses a file of word alignments that cannot be read, unless the run has its links."""
    if not training.alignments or directory.alignments.exists():
        return
    try:
        with as_user_errors():
            read_pharaoh(training.alignments)
    except UserError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        raise ArgumentError(
            f"The word alignments cannot be read: {error.__cause__.strerror}.",
            "a file in Pharaoh's format as `training.alignments`",
            value=training.alignments,
        ) from error


def require_start(config: RunConfig, directory: RunDirectory) -> None:
    """Refuses a run to start from that is not trained, or has another tokeniser or model.

    Dropout may be another one, as it has no weights. A training that has started needs the other
    run no more.
    """
    if not config.training.start_from or directory.has_checkpoints():
        return
    start = RunDirectory(config.training.start_from, verify=directory.verify)
    before, now = start.read_config().to_dict(), config.to_dict()
    for settings in (before, now):
        model = settings["model"]
        settings["model"] = {key: model[key] for key in model if key not in _DROPOUTS}
    start.weights()
    for key in ("tokenizer", "model"):
        if before[key] != now[key]:
            problem = f"A training cannot start from {str(start.path)!r} with another {key!r}."
            remedy = "Leave the setting as it is there."
            raise _difference(problem, remedy, key, before[key], now[key])


def _difference(problem: str, remedy: str, key: str, before: Any, now: Any) -> ArgumentError:
    """Says what was expected of a setting, or of those of a table that differ."""
    if not isinstance(before, dict):
        return ArgumentError(problem, repr(before), remedy, value=now)
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    had = [f"`{key}.{name}` = {before[name]!r}" for name in names if name in before]
    had += [f"no `{key}.{name}`" for name in names if name not in before]
    missing = [f"no {key}.{name}" for name in names if name not in now]
    given = {f"{key}.{name}": now[name] for name in names if name in now}
    return ArgumentError(problem, ", ".join(had), remedy, received=", ".join(missing), **given)


def require_place_to_go_on(directory: RunDirectory) -> None:
    """Refuses to begin anew in the place of trained weights without a checkpoint.

    They were imported or pruned, or the checkpoints are gone.
    """
    if directory.has_checkpoints() or not directory.weight_files():
        return
    # A training that was killed before its first checkpoint; it has begun no second epoch.
    if directory.checkpoints.is_dir() and len(directory.read_log()) < 2:
        return
    raise UserError(
        f"{str(directory.path)!r} holds trained weights, and no checkpoint to go on from: they "
        "were imported or pruned, or checkpoints/ was removed. A training would begin anew and "
        "replace them. Expected a new folder, and this one to start from: keras-addnorm train "
        f"NEW --start-from {directory.path}."
    )


def require_same_run(config: RunConfig, directory: RunDirectory) -> None:
    """Refuses a directory that holds a run of other data, or of another tokeniser or model."""
    if not directory.config.exists():
        return
    if not directory.holds_parts() and not directory.has_tokenizers():
        return
    before, now = directory.read_config().to_dict(), config.to_dict()
    for key in (*_DATA_SETTINGS, "tokenizer", "model"):
        if before[key] != now[key]:
            problem = f"{str(directory.path)!r} holds a run with another {key!r}."
            remedy = "Choose another run directory, or leave the setting as it was."
            raise _difference(problem, remedy, key, before[key], now[key])
    links_of, chosen = (side["training"]["alignments"] for side in (before, now))
    if directory.alignments.exists() and links_of != chosen:
        raise ArgumentError(
            f"{str(directory.path)!r} has links of its pairs already, from other word alignments.",
            f"`training.alignments` = {links_of!r}" if links_of else "no `training.alignments`",
            "Choose another run directory, or leave the setting as it was.",
            value=chosen,
        )
    if directory.has_checkpoints():
        _require_same_optimizer(before["training"], now["training"], directory)


def _require_same_optimizer(
    before: dict[str, Any], now: dict[str, Any], directory: RunDirectory
) -> None:
    """Keras would drop all moments if a setting changed the variables of the optimiser."""
    same: dict[str, Callable[[Any], Any]] = {
        "ema": lambda ema: ema > 0,
        "batches_per_update": lambda batches: batches > 1,
        "precision": lambda precision: precision == "float16",  # Keras scales the loss then.
        "schedule": lambda schedule: schedule == "constant",  # The rate is a variable then.
        "lora_rank": lambda rank: rank,
        "eight_bits": bool,
        "optimizer": str,
    }
    before_every, every = before["validate_every"], now["validate_every"]
    if before_every != every:
        raise ArgumentError(
            f"The checkpoints in {str(directory.path)!r} count what lies between two validations.",
            f"`training.validate_every` = {before_every}",
            "Leave the setting as it was, or choose another run directory.",
            value=every,
        )
    for key, kind in same.items():
        if kind(before[key]) != kind(now[key]):
            raise ArgumentError(
                f"The checkpoints in {str(directory.path)!r} hold another optimiser.",
                f"`training.{key}` = {before[key]!r}",
                "Leave the setting as it was, or choose another run directory.",
                received=f"{now[key]!r}, which has other variables",
            )


def usable_devices(training: TrainingConfig) -> Devices:
    """Returns the chosen devices; refuses settings that do not work on them."""
    with as_user_errors():
        devices = distribution.get(training.distribution, training.devices_per_model)
    if training.monitor_every and training.distribution != "none":
        raise ArgumentError(
            "The residual stream is watched on one device only.",
            "`training.monitor_every` = 0 with `training.distribution` = "
            f"{training.distribution!r}",
            value=training.monitor_every,
        )
    if training.score_every and distribution.process_count() > 1:
        raise ArgumentError(
            "Translations are scored by one process only.",
            f"`training.score_every` = 0 with {distribution.process_count()} processes",
            "Run `keras-addnorm evaluate` on the run directory instead.",
            value=training.score_every,
        )
    if training.eight_bits and devices.sums_replicas:
        raise ArgumentError(
            "Weights are kept on a grid of eight bits on one device, or on several with JAX.",
            "`training.eight_bits` = false under TensorFlow's MirroredStrategy",
            value=True,
        )
    if training.batches_per_update > 1 and not devices.accumulates:
        raise ArgumentError(
            "Keras cannot accumulate gradients under TensorFlow's MirroredStrategy.",
            "`training.batches_per_update` = 1",
            "Raise `tokens_per_batch` instead, or set KERAS_BACKEND=jax.",
            value=training.batches_per_update,
        )
    return devices


def require_shareable_model(model: Seq2SeqConfig, devices: Devices) -> None:
    """Refuses a model whose weights do not divide evenly among the devices."""
    groups = AttentionConfig.get(model.attention).key_value_heads(model.num_heads)
    with as_user_errors():
        distribution.require_divisible(
            {
                "num_heads": model.num_heads,
                "num_key_value_heads": groups,
                "intermediate_dim": model.intermediate_dim,
                "source_vocabulary_size": model.source_vocabulary_size,
                "target_vocabulary_size": model.target_vocabulary_size,
            },
            devices.devices_per_model,
        )
        distribution.require_divisible({"hidden_dim": model.hidden_dim}, devices.width_multiple_of)


def require_shareable_batches(report: PipelineReport, devices: Devices) -> None:
    """Refuses batches that do not give every copy of the weights equally many rows."""
    rows = [size for _, size, _ in report.buckets]
    if any(size % devices.replicas for size in rows):
        raise ArgumentError(
            f"Batches cannot be shared by {devices.replicas} copies of the weights.",
            f"a multiple of {devices.replicas} rows",
            f"Pass --rows-multiple-of {devices.replicas}.",
            received=f"{rows}, one number for each length of batches",
        )


def require_room(
    directory: RunDirectory, model: Seq2SeqTransformer, training: TrainingConfig
) -> None:
    """Refuses a disk without room for all files of the training."""
    weights = 4 * model.count_params()
    # The weights, Adam's two moments, the moving average, the accumulated gradients, what rounding
    # has left over.
    more = (training.ema > 0) + (training.batches_per_update > 1) + training.eight_bits
    checkpoint = weights * (3 + more)
    files = max(training.keep_last, training.average_last) + 3  # Two inside of epochs, one half.
    whole = checkpoint * files + weights * (training.keep_best + 2)
    # What is there from before is part of it, but a new file is written before an old one goes.
    there = sum(path.stat().st_size for path in directory.weight_files())
    needed = max(whole - there, checkpoint + weights)
    free = shutil.disk_usage(directory.path).free
    if free < needed:
        raise UserError(
            f"The disk of {str(directory.path)!r} is too full. Expected room for the checkpoints, "
            f"{needed / 2**20:,.0f} MiB; there are {free / 2**20:,.0f} MiB. Make room, choose "
            "another run directory, or keep fewer (--keep-last, --average-last, --keep-best)."
        )
