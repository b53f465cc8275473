"""What a run learns from beside its labels: the word alignments of its pairs, and a teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from keras_addnorm.alignment import read_pharaoh, write_pharaoh
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import TokenizerPair, align_pieces, piece_links
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import TrainingConfig
from keras_addnorm.runs.trained_run import load_run


def run_alignments(
    training: TrainingConfig,
    directory: RunDirectory,
    tokenizers: TokenizerPair,
    pairs: Iterable[Any],
    say: Callable[[str], None],
) -> list[np.ndarray] | None:
    """Returns the links between the pieces of each training pair; `None` if nothing is guided.

    The first call reads the file of the setting, or aligns the pairs, and writes the links of
    pieces to the run directory; later ones read them there.
    """
    if not training.guided_alignment:
        return None
    path = directory.alignments
    with as_user_errors():
        if path.exists():
            directory.check(path)
            return read_pharaoh(path)
        if training.alignments:
            links = piece_links(pairs, tokenizers, read_pharaoh(training.alignments))
            say(f"Word alignments: those of {training.alignments}.")
        else:
            say("Word alignments: the pieces of the training pairs are aligned, once.")
            links = align_pieces(pairs, tokenizers)
        with directory.manifest.rewriting(path):
            write_pharaoh(path, links)
        return links


def load_teacher(
    training: TrainingConfig, tokenizers: TokenizerPair, verify: bool
) -> Seq2SeqTransformer | None:
    """Loads the teacher; one whose tokenizers are others is refused."""
    if not training.teacher:
        return None
    teacher = load_run(RunDirectory(training.teacher, verify=verify))
    if teacher.tokenizers != tokenizers:
        raise ArgumentError(
            f"The teacher {training.teacher!r} has other tokenizers than this run, so its "
            "distributions are over other tokens.",
            "a teacher with the same tokenizers",
            "Start this run with them (--start-from), or learn from the teacher's translations "
            "alone: keras-addnorm distill.",
            received="others",
        )
    return teacher.model
