"""Few rows that cover a product of choices: pairs of values in place of all combinations."""

import itertools


def covering(*axes, strength=2):
    """Returns rows, one value an axis, in which the values of any `strength` axes meet somewhere.

    Of three or more axes all pairs (`strength=2`) need far fewer rows than the product has:
    6 x 2 x 2 choices are covered by 12 rows of 24. With `strength=1` each value occurs, in as many
    rows as the longest axis has values: for axes that cannot see each other. The rows are the same
    each time.

    Args:
        axes: Sequences of values, which need be neither hashable nor comparable.
        strength: Size of the combinations that all have to occur.
    """
    sizes = [len(axis) for axis in axes]
    if not 1 <= strength <= len(axes) or 0 in sizes:
        raise ValueError(
            "Expected axes that are not empty, and 1 <= strength <= their number. "
            f"Received: {len(axes)} axes of the sizes {sizes}, strength={strength}"
        )
    open_combinations = {
        tuple(zip(places, values, strict=True))
        for places in itertools.combinations(range(len(axes)), strength)
        for values in itertools.product(*(range(sizes[place]) for place in places))
    }
    rows, uses = [], [[0] * size for size in sizes]
    while open_combinations:
        row = dict(min(open_combinations))
        for place in range(len(axes)):
            if place not in row:
                row[place] = max(
                    range(sizes[place]),
                    # What covers most; of equals the one that stood in the fewest rows.
                    key=lambda value, place=place, row=row: (
                        _gain(open_combinations, {**row, place: value}, place),
                        -uses[place][value],
                        -value,
                    ),
                )
        open_combinations -= {
            tuple((place, row[place]) for place in places)
            for places in itertools.combinations(range(len(axes)), strength)
        }
        for place, value in row.items():
            uses[place][value] += 1
        rows.append(tuple(axes[place][row[place]] for place in range(len(axes))))
    return rows


def _gain(open_combinations, row, place):
    """Counts the open combinations with this place's value that the chosen values complete."""
    chosen = set(row.items())
    return sum(
        (place, row[place]) in each and chosen.issuperset(each) for each in open_combinations
    )
