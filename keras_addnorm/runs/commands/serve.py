"""`keras-addnorm serve`: serves an exported model over REST and gRPC, or a page with one."""

from __future__ import annotations

import argparse

from keras_addnorm.basics.optional import require_installed
from keras_addnorm.runs.commands.command import Command, nothing_to_prepare
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.serve import serve_settings
from keras_addnorm.runs.setting_flags import add_flags, given, some_path
from keras_addnorm.serving.server import NEEDED

_DESCRIPTION = """\
Serves an exported model over REST and gRPC, with the APIs of TensorFlow Serving, and a page to try
it at http://127.0.0.1:8501/. A new version in the folder replaces the old one without losing a
request; a broken version is refused. After SIGTERM or Ctrl-C the server answers the requests in
flight and ends. It is for development and small installations, and needs the extra serve:
pip install -c constraints.txt ".[serve]". Serve only models that you trust. See docs/server.md.

A page that translates in the browser (export --format bergamot --engine ...) is served, too: its
files alone, without TensorFlow. It takes --host, --allowed-hosts, --port and --no-verify.

examples:
  keras-addnorm serve saved_models/mine
  keras-addnorm serve saved_models/mine --host 0.0.0.0 --port 8501 --grpc-port 8500
  keras-addnorm serve saved_models/mine --allowed-hosts translate.example.org
  keras-addnorm serve saved_models/mine --max-batch-size 16 --queue 64 --timeout 10
  keras-addnorm serve page
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        type=some_path,
        metavar="DIRECTORY",
        help="folder of the versions, or of a page",
    )
    add_flags(parser, serve_settings(), titles={"server": "settings"})


def _check(options: argparse.Namespace) -> None:
    """Says at once what is missing: TensorFlow takes seconds to start."""
    with as_user_errors():
        require_installed("serve", "The server", *NEEDED)


def _run(options: argparse.Namespace, _: None) -> None:
    from keras_addnorm.runs.serve import serve

    settings = {key.removeprefix("server."): value for key, value in given(options).items()}
    serve(options.directory, **settings)


SERVE = Command(
    "serve a SavedModel",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    # A served model needs no Keras, and a server has to return memory, which the allocator settings
    # for training prevent. A page needs no TensorFlow either.
    nothing_to_prepare,
    usage="DIRECTORY [options]",
)
