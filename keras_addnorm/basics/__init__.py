"""Helpers of all subpackages: tables of names, atomic files and folders, hashes, arrays, extras.

Nothing here knows of layers or models. This module imports no Keras; `hashing` and `arrays` do, and
are imported by their full names.
"""

from keras_addnorm.basics.atomic import atomic_file, atomic_folder
from keras_addnorm.basics.table import Table

__all__ = ["Table", "atomic_file", "atomic_folder"]
