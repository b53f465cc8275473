"""Values that count how often they are compared: a list that is looked through shows itself."""


def counting(kind):
    """A subclass of a type of values, whose `compared` says how often two were compared."""

    class Counting(kind):
        compared = 0
        __hash__ = kind.__hash__

        def __eq__(self, other):
            Counting.compared += 1
            return kind.__eq__(self, other)

    return Counting
