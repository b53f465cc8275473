"""Makes the folder of an untrained model: `python -m keras_addnorm.interop.random_folder`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from keras_addnorm.interop.random_folder import make_random_folder, names


def main(arguments: list[str] | None = None) -> None:
    """Make a folder, as the command line says.

    Args:
        arguments: The words behind the command; `None` for those of the process.
    """
    parser = argparse.ArgumentParser(prog="python -m keras_addnorm.interop.random_folder")
    parser.add_argument("name", choices=names)
    parser.add_argument("folder", type=Path, help="the folder to make")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    folder = make_random_folder(given.name, given.folder, seed=given.seed)
    print(
        f"Wrote {folder}: a folder as of '{given.name}', with random weights.\n"
        f"Next: keras-addnorm import {shlex.quote(str(folder))} runs/{given.name}\n"
        "It says which flags this kind needs: languages, or --family."
    )


if __name__ == "__main__":
    main()
