"""Functions of this package in processes of their own, each on its share of the cores.

Run as a module, with a job as JSON, this is such a process. It ends with the one that started it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_addnorm.basics.errors import UserError

_PACKAGE = "keras_addnorm."
_SECONDS_BETWEEN_LOOKS = 0.2
# How a process says that the user has to change something: its last line is what.
_USER_ERROR = 2


def usable_cores() -> list[int]:
    """Returns the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def shares_of_cores(processes: int) -> list[list[int]]:
    """Divides the cores of this process; where there are fewer than processes, they share."""
    cores = usable_cores()
    return [cores[number::processes] or [cores[number % len(cores)]] for number in range(processes)]


def in_processes(
    function: str,
    jobs: Sequence[Mapping[str, Any]],
    cores: Sequence[Sequence[int]],
    look: Callable[[], object] = lambda: None,
) -> list[Any]:
    """Calls a function in several processes at a time, and waits for all of them.

    Args:
        function: Its place, such as `"keras_addnorm.runs.portions:fill"`.
        jobs: Its arguments, as JSON has them; a process for each.
        cores: The cores that each process keeps to.
        look: Is called now and then while they work.

    Returns:
        What each has returned.

    Raises:
        UserError: If one had such an error; the others are stopped.
        RuntimeError: If one has failed in another way.
    """
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        said = [os.path.join(folder, str(number)) for number in range(len(jobs))]
        try:
            for job, own_cores, path in zip(jobs, cores, said, strict=True):
                processes.append(_start(function, job, own_cores, path))
            while any(process.poll() is None for process in processes):
                _require_success(processes, said)
                look()
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            _require_success(processes, said)
            return [_result(path) for path in said]
        finally:
            for process in processes:
                process.kill()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()


def _start(
    function: str, job: Mapping[str, Any], cores: Sequence[int], path: str
) -> subprocess.Popen[bytes]:
    text = json.dumps({"function": function, "arguments": job, "cores": list(cores)})
    # On a GPU the processes share its memory.
    environment = {**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    with open(f"{path}.out", "wb") as out, open(f"{path}.err", "wb") as err:
        # -P: modules of the folder that the user is in stay off the path.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __spec__.name, text],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env=environment,
        )


def _result(path: str) -> Any:
    with open(f"{path}.out", encoding="utf-8") as file:
        return json.loads(file.read().splitlines()[-1])


def _require_success(processes: Sequence[subprocess.Popen[bytes]], said: Sequence[str]) -> None:
    for process, path in zip(processes, said, strict=True):
        if process.poll():
            with open(f"{path}.err", encoding="utf-8", errors="replace") as file:
                text = file.read().strip()
            if process.returncode == _USER_ERROR and text:
                raise UserError(json.loads(text.splitlines()[-1]))
            if process.returncode < 0:
                raise UserError(
                    "A process of this command was ended from outside, by "
                    f"{_name_of_signal(-process.returncode)}. Where memory runs out, the system "
                    "does so: with fewer --processes it lasts longer. What is written is whole: "
                    "the same command goes on from there."
                )
            raise RuntimeError(
                f"A process of this command has ended with status {process.returncode}. What it "
                f"said last:\n{text[-2000:]}"
            )


def _name_of_signal(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"the signal {number}")


def end_with_other_end_of(pipe: int) -> None:
    """Ends this process when the one that holds the other end of a pipe has ended."""
    while os.read(pipe, 1024):
        pass
    os._exit(1)


def main(text: str) -> int:
    """Does a job, and prints what the function returns; returns the status of the process."""
    job = json.loads(text)
    # Before anything counts the cores.
    os.sched_setaffinity(0, job["cores"])
    # Of the input, but not with the lock of `sys.stdin`, for which the interpreter would wait.
    threading.Thread(target=end_with_other_end_of, args=(0,), daemon=True).start()
    from keras_addnorm.runs.errors import system_errors_as_user_errors
    from keras_addnorm.runs.process_startup import backend_as_user_error, import_keras_quietly

    module, name = job["function"].split(":")
    if not module.startswith(_PACKAGE):
        raise ValueError(f"Expected a function of this package. Received: {module!r}.")
    try:
        with system_errors_as_user_errors():
            with backend_as_user_error():
                import_keras_quietly()
            result = getattr(importlib.import_module(module), name)(**job["arguments"])
    except UserError as error:
        print("", json.dumps(str(error)), sep="\n", file=sys.stderr, flush=True)
        return _USER_ERROR
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
