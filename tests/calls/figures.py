"""What comes of all wrong calls, room by room, in this checkout or in another one.

python tests/calls/figures.py                     # prints the table of wrong_calls.md
PYTHONPATH=../older python tests/calls/figures.py    # the same calls of another checkout
"""

import os
import warnings
from collections import Counter

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from public_calls import CALLS
from test_wrong_calls import outcomes

KINDS = ("clear", "not as documented", "raw", "silent")


def kind_of(outcome):
    if outcome == "refused":
        return "clear"
    if outcome == "accepted":
        return "silent"
    return "raw" if outcome.startswith("a raw") else "not as documented"


def main():
    counts: dict[str, Counter] = {}
    for name, call in CALLS.items():
        room = counts.setdefault(name.partition(".")[0], Counter())
        try:
            room.update(kind_of(outcome) for _, _, outcome in outcomes(call))
        except Exception as error:  # a checkout without the function
            print(f"{name}: {type(error).__name__}: {error}")
    print(f"| room | wrong calls | {' | '.join(KINDS)} |\n|---|{'---:|' * (len(KINDS) + 1)}")
    for room, found in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        cells = [str(found.total()), *(str(found[kind]) for kind in KINDS)]
        print(f"| {room} | {' | '.join(cells)} |")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
