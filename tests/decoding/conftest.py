"""Decoding is tested on the models' tiny model: makes `models_reference` importable here too."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "models"))
