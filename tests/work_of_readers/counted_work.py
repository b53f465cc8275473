"""Counts the calls of what reads, Python's own and those of C, and compares files of three sizes.

Texts of JSON are of a class that compares in Python, so that one which is looked for in a list
counts, too.
"""

import contextlib
import sys
import warnings

from hostile_loading import LONGEST_SENTENCE, WasReadError

SIZE = 200
MOST, ALWAYS = 2.6, 3000


class Text(str):
    """A text that is compared in Python."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other)

    def __ne__(self, other):
        return str.__ne__(self, other)


def with_texts(value):
    """Values of JSON with texts that are compared in Python."""
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, list):
        return [with_texts(each) for each in value]
    if isinstance(value, dict):
        return {Text(name): with_texts(each) for name, each in value.items()}
    return value


class Work:
    """Counts the calls in a block, and keeps the functions that were called."""

    def __init__(self):
        self.calls, self.called = 0, set()

    def __enter__(self):
        def count(frame, event, argument):
            if event in ("call", "c_call"):
                self.calls += 1
            if event == "call":
                self.called.add(frame.f_code)

        self._before = sys.getprofile()
        sys.setprofile(count)
        return self

    def __exit__(self, *error):
        sys.setprofile(self._before)


@contextlib.contextmanager
def naming(what):
    """Names what was read, where it took too much work."""
    try:
        yield
    except AssertionError as error:
        error.add_note(what)
        raise


def work_of(read):
    """Reads something, or hears in a sentence why not."""
    with warnings.catch_warnings(), Work() as work:
        warnings.simplefilter("ignore")
        try:
            read()
        except WasReadError:
            pass
        except (ValueError, FileNotFoundError) as error:
            assert len(str(error)) <= LONGEST_SENTENCE, str(error)[:300]
    return work


def _work_after(write, read, size):
    write(size)
    return work_of(read).calls


def require_linear(write, read, size=SIZE):
    """Requires that more of what is written takes about as much more work, not its square."""
    sizes = (size // 2, size, 2 * size)
    half, once, twice = (_work_after(write, read, each) for each in sizes)
    # What is refused early takes less work than before, and so much less each time.
    if twice - once > MOST * abs(once - half) + ALWAYS:
        # The first one may have filled what is kept for the others.
        half, once, twice = (_work_after(write, read, each) for each in sizes)
    assert twice - once <= MOST * abs(once - half) + ALWAYS, (half, once, twice)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
