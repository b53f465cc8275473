"""`keras-addnorm import`: makes a run directory of a pretrained model."""

from __future__ import annotations

import argparse
from typing import Any

from keras_addnorm.basics.fields import list_settings
from keras_addnorm.runs.command_parser import RunOption
from keras_addnorm.runs.commands.command import Command
from keras_addnorm.runs.commands.run_options import add_run_dir, add_settings, add_verification
from keras_addnorm.runs.outputs import require_new_folder
from keras_addnorm.runs.process_startup import prepare_to_load
from keras_addnorm.runs.setting_flags import given, some_text
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import StatusLine, show
from keras_addnorm.runs.toml_files import parse_value

_DESCRIPTION = """\
Makes a run directory of a pretrained model, for evaluate, translate, inspect, export, and for a
fine-tuning: train --start-from. NAME is a folder that transformers or Marian wrote (Marian and
OPUS-MT, T5, mT5, M2M-100, NLLB, mBART, BART, Pegasus), a folder of Joey NMT with --family
joey_nmt, of OpenNMT or Eole with --family as a table, or a name at huggingface.co. Nothing in it
is run; neither torch nor transformers is needed. A model of several languages is imported for one
direction, --source-language and --target-language, as its vocabulary names them. The pairs to
evaluate and inspect with are those of --data. See docs/pretrained.md.

examples:
  keras-addnorm import opus-mt-en-de runs/opus
  keras-addnorm import Helsinki-NLP/opus-mt-en-de runs/opus --data corpus
  keras-addnorm import nllb runs/nllb --source-language eng_Latn \\
      --target-language deu_Latn
  keras-addnorm import eole runs/eole \\
      --family '{name = "eole", source_sentencepiece = "vocab.spm"}'
  keras-addnorm train runs/shop --start-from runs/opus --data shop.tsv --epochs 3
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", type=some_text, metavar="NAME", help="a folder or file, or a name at the hub"
    )
    add_run_dir(parser, RunOption(place=1, may_be_new=True))
    add_verification(parser)
    parser.add_argument(
        "--family",
        type=parse_value,
        metavar="NAME|TABLE",
        help="the kind of checkpoint, where no config.json tells; a TOML table with more it needs",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        type=some_text,
        metavar="KEY",
        help="a setting of the config that is not known here and changes no number (repeatable)",
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language",
            metavar="TOKEN",
            help=f"the {side} language in the vocabulary's own words, such as deu_Latn",
        )
    parser.add_argument(
        "--text-prefix",
        metavar="TEXT",
        help='words before each text, in place of T5\'s "translate ..."; "" for none',
    )
    settings = (one for one in list_settings(RunConfig) if one.table in ("", "evaluation"))
    chosen = [one for one in settings if one.key != "split"]  # of the pairs to train on
    add_settings(parser, chosen, "evaluation", "evaluation.num_beams=2")


def _check(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given."""
    require_new_folder(options.run_dir)
    return given(options)


def _run(options: argparse.Namespace, settings: dict[str, Any]) -> None:
    from keras_addnorm.runs.pretrained_run import import_pretrained, summary

    with StatusLine.saying(f"Loading {options.name} ..."):
        loaded = import_pretrained(
            options.name,
            options.run_dir,
            settings,
            family=options.family,
            source_language=options.source_language,
            target_language=options.target_language,
            verify=options.verify,
            ignored=options.ignore,
            text_prefix=options.text_prefix,
        )
    show(summary(options.name, loaded, options.run_dir))


IMPORT = Command(
    "make a run of a pretrained model",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    prepare_to_load,
    usage="NAME RUN_DIR [options]",
)
