"""Word alignments: files of links, an aligner, and translation probabilities of tokens."""

from keras_addnorm.alignment.aligner import align
from keras_addnorm.alignment.pharaoh import format_links, parse_links, read_pharaoh, write_pharaoh
from keras_addnorm.alignment.symmetrization import grow_diag_final_and

__all__ = [
    "align",
    "format_links",
    "grow_diag_final_and",
    "parse_links",
    "read_pharaoh",
    "write_pharaoh",
]
