"""CTranslate2 in a process of its own, for `decoding.py`.

OpenMP adds up the threads of all translators that a process ever had. Where they are more than the
cores, threads sleep while they wait for each other, and a call takes up to ten times as long: a
translator with several threads must be the only one of its process.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ctranslate2
import measure
from sentencepiece import SentencePieceProcessor


@dataclasses.dataclass(frozen=True)
class Translation:
    """What is to be translated, and how."""

    texts: list[str]
    num_beams: int
    max_length: int


class Peer:
    """A translator that is asked through a pipe, and takes its own time.

    Args:
        folder: A model in CTranslate2's format, with `tokenizer.model`.
        compute_type: The numbers it computes with.
        threads: Number of threads that share one call.
    """

    def __init__(self, folder: Path, compute_type: str, threads: int) -> None:
        self.name = f"CTranslate2 {compute_type}, {threads} thread(s)"
        command = [sys.executable, __file__, str(folder), compute_type, str(threads)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def translate(self, translation: Translation) -> dict[str, Any]:
        """Returns `translations`, `scores`, and the seconds `wall_s` and `cpu_s` that they took."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(dataclasses.asdict(translation)) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def contender(self, translation: Translation) -> measure.OwnClock:
        """Returns the call as a contender."""

        def run() -> tuple[float, float]:
            found = self.translate(translation)
            return found["wall_s"], found["cpu_s"]

        return measure.OwnClock(run)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()  # Closes its input, which ends it.


def main() -> None:
    """Answer requests, one line of JSON each."""
    folder, compute_type, threads = sys.argv[1:]
    translator = ctranslate2.Translator(
        folder, compute_type=compute_type, inter_threads=1, intra_threads=int(threads)
    )
    pieces = SentencePieceProcessor(model_file=str(Path(folder) / "tokenizer.model"))
    for line in sys.stdin:
        request = Translation(**json.loads(line))
        wall, cpu = time.perf_counter(), time.process_time()
        results = translator.translate_batch(
            pieces.encode(request.texts, out_type=str),
            beam_size=request.num_beams,
            length_penalty=0,
            min_decoding_length=0,
            max_decoding_length=request.max_length,
            return_scores=True,
        )
        translations = pieces.decode([result.hypotheses[0] for result in results])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        scores = [result.scores[0] for result in results]
        found = {"translations": translations, "scores": scores, "wall_s": wall, "cpu_s": cpu}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
