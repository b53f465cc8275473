"""`keras-addnorm zoo`: small models with their cards; and public checkpoints by name."""

from __future__ import annotations

import argparse

from keras_addnorm.runs.commands.command import Command, nothing_to_prepare
from keras_addnorm.runs.outputs import require_writable
from keras_addnorm.runs.setting_flags import some_path
from keras_addnorm.runs.terminal import show
from keras_addnorm.runs.zoo import ZooModel, find, models

_LIST = "list"
_DESCRIPTION = """\
Small models with their recipes, cards and scores: that of the demo, a student of it, and six that
differ in Add & Norm alone. They know the sentences of the built-in set and no others: they are for
trying the library, for tests and for teaching.

list shows them; with --public, the public checkpoints that import knows by name. get downloads one
into DIR/MODEL, and compares it with its digest. make trains it here, or distils it, evaluates it,
and lays down what get would have fetched, with DIR/MODEL.zip, which holds the same. What was
stopped or killed goes on with the same command. DIR/MODEL is a run directory: translate, evaluate,
inspect and export take it. See docs/zoo.md.

examples:
  keras-addnorm zoo list
  keras-addnorm zoo list --public
  keras-addnorm zoo make demo-en-de zoo
  keras-addnorm translate zoo/demo-en-de "Emma has to wait two hours and ten minutes."
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=(_LIST, "get", "make"), help="what is to be done")
    parser.add_argument("name", nargs="?", metavar="MODEL", help="a model of the list")
    parser.add_argument(
        "folder", nargs="?", type=some_path, metavar="DIR", help="the folder to put it into"
    )
    parser.add_argument(
        "--public", action="store_true", help="list public checkpoints instead of these models"
    )


def _check(options: argparse.Namespace) -> ZooModel | None:
    """The model; `None` for a list."""
    is_list = options.action == _LIST
    if options.name is not None and is_list:
        options.parser.error(f"list takes no MODEL. Received: {options.name!r}")
    if options.public and not is_list:
        options.parser.error("--public belongs to list")
    if is_list:
        return None
    if options.folder is None:
        options.parser.error(f"expected {options.action} MODEL DIR")
    model = find(options.name)
    if options.action == "make":
        require_writable(options.folder / model.name)
    return model


def _run(options: argparse.Namespace, model: ZooModel | None) -> None:
    if model is None:
        _list(options.public)
    elif options.action == "get":
        from keras_addnorm.runs.zoo.download import get

        show(f"{get(model, options.folder)}: a run directory, with its card README.md.")
    else:
        from keras_addnorm.runs.zoo.make import make

        made, archive = make(model, options.folder)
        show(f"\nDone. {made}: a run directory, with its card README.md. To publish: {archive}.")


def _list(public: bool) -> None:
    from keras_addnorm.basics.public_checkpoints import public_checkpoints
    from keras_addnorm.runs.zoo.tables import table_of_checkpoints, table_of_models

    if public:
        show(table_of_checkpoints(public_checkpoints().values()))
    else:
        show(table_of_models(models().values()))


def _resumes(options: argparse.Namespace) -> bool:
    return options.action == "make"


ZOO = Command(
    "small models with cards and scores",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    nothing_to_prepare,  # Those that train are processes of their own.
    usage="(list | get MODEL DIR | make MODEL DIR)",
    resumes=_resumes,
)
