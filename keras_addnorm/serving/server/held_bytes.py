"""The memory that large requests and their answers take together."""

from __future__ import annotations

from keras_addnorm.serving.errors import ServingError


class HeldBytes:
    """Counts bytes that requests hold, up to a limit. Call all methods in the event loop.

    Args:
        limit: The most bytes. A request that is alone may hold more.

    Attributes:
        total: The bytes that are held now.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._is_clean = True

    def open(self) -> Holding:
        """What one request holds: nothing, at first."""
        return Holding(self)

    def change(self, size: int) -> None:
        """Counts bytes that are taken, or, if negative, given back."""
        self.total += size
        self._is_clean = self._is_clean and not size

    def was_emptied(self) -> bool:
        """Whether all that was held since the last such question has been given back."""
        is_emptied = not self.total and not self._is_clean
        self._is_clean = self._is_clean or is_emptied
        return is_emptied


class Holding:
    """What one request holds; a context manager that gives it back.

    Args:
        held: Counts it.

    Attributes:
        size: The bytes.
    """

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self.size = 0

    def add(self, size: int) -> None:
        """Takes more bytes, or raises `RESOURCE_EXHAUSTED` if others hold too much."""
        held = self._held
        if held.total > self.size and held.total + size > held.limit:
            raise ServingError(
                "RESOURCE_EXHAUSTED",
                f"Large requests may take {held.limit} bytes together (max_held_bytes), which "
                "others need now. Try again later.",
            )
        held.change(size)
        self.size += size

    def close(self) -> None:
        """Gives all back; closing twice does nothing."""
        self._held.change(-self.size)
        self.size = 0

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
