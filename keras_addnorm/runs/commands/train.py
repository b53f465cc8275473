"""`keras-addnorm train`: trains a model, or resumes a training."""

from __future__ import annotations

import argparse

from keras_addnorm.basics.fields import list_settings
from keras_addnorm.runs.command_parser import RunOption
from keras_addnorm.runs.commands.command import Command, always
from keras_addnorm.runs.commands.run_options import (
    add_run_dir,
    add_settings,
    add_verification,
    run_directory,
    verbosity,
)
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.process_startup import prepare_for_training
from keras_addnorm.runs.setting_flags import given, some_path
from keras_addnorm.runs.settings import FILE_SETTINGS, SPLIT_SETTINGS, RunConfig
from keras_addnorm.runs.terminal import show
from keras_addnorm.runs.toml_files import by_dotted_key, merge, naming_file, read_toml

_DESCRIPTION = """\
Trains a model. --data takes a file of sentence pairs (spa.txt, .tsv, .csv, .jsonl, .parquet, .tmx,
.xlf, .po, or - for stdin), a folder or a zip archive of parallel text (train.en, train.de, val.*,
test.*), a TensorFlow Datasets name (ted_hrlr_translate/pt_to_en), or the built-in set (demo/en-de).
Without a validation set some training pairs are held out. See docs/data.md.

Settings come from --config, from the flags below, and from --set for any other field of the model;
later ones win: run directory, then file, then flags, then --set. A flag has the name of its setting
in the file. Those of [evaluation], which are about translations and not about the training, begin
with its name: --evaluation-batch-size, --evaluation-num-beams. RUN_DIR/config.toml records all of
them. The same command again (or --resume without settings) resumes a run that was stopped or
killed, and

  keras-addnorm train runs/mine --epochs 30

trains a finished run further. --start-from makes a new run with the tokenizers, weights and
settings of another one, for fine-tuning on other data.

examples:
  keras-addnorm train runs/mine --data spa.txt --source en --target es
  keras-addnorm train runs/mine --data corpus --source en --target de
  keras-addnorm train runs/mine --config examples/multi30k_en_de.toml --data corpus
  keras-addnorm train runs/shop --start-from runs/mine --data shop --epochs 5
  keras-addnorm train runs/shop --start-from runs/opus --data shop --lora-rank 8
  keras-addnorm train runs/deep --data demo/en-fr --source en --target fr \\
      --scheme deep_norm --norm rms_norm --num-encoder-layers 12
  keras-addnorm train runs/mine --config recipe.toml --set model.positions=rotary
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_dir(parser, RunOption(may_be_new=True))
    add_verification(parser)
    parser.add_argument("--config", type=some_path, metavar="FILE", help="settings as TOML")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume; an error if there is no run to resume",
    )
    add_settings(parser, list_settings(RunConfig), "training", "model.positions=rotary")
    parser.set_defaults(sets_anything=True)


def _check(options: argparse.Namespace) -> RunConfig:
    """The configuration: run directory, then file, then flags.

    Of a run to start from, what was said about its data does not hold for other data.
    """
    directory = run_directory(options)
    directory.require_config_of_parts()
    goes_on = options.resume or directory.config.exists()
    settings = by_dotted_key(read_toml(options.config)) if options.config else {}
    settings |= given(options)
    start = settings.get("training.start_from")
    other = None
    if start and isinstance(start, str):  # Else it is refused with the other settings.
        other = RunDirectory(start, verify=options.verify)
    before = directory if goes_on else other
    inherited = before.read_config().to_dict() if before else {}
    if not goes_on:  # How long it was, and the warm-up that followed from it, are its own.
        for key in ("warmup_steps", "max_updates"):
            inherited.get("training", {}).pop(key, None)
    if "data" in settings and not goes_on:
        for key in (*FILE_SETTINGS, *SPLIT_SETTINGS):
            inherited.pop(key, None)
    with naming_file(options.config):
        config = RunConfig.from_dict(merge(inherited, settings))
    if not goes_on:
        config.require_codes()
    return config


def _run(options: argparse.Namespace, config: RunConfig) -> None:
    from keras_addnorm.runs.train import train

    directory = run_directory(options)
    train(config, directory, verbose=verbosity())
    show(f"Done. Weights: {directory.weights()}. Log: {directory.log}, {directory.curves}.")


TRAIN = Command(
    "train a model, or resume a training",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    prepare_for_training,
    usage="RUN_DIR [options]",
    resumes=always,
)
