"""Where pictures go, and how the page names them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Images:
    """The folder of the pictures of one page."""

    page: Path

    def path(self, name: str) -> Path:
        """The file of a picture."""
        return self.page.parent / "images" / f"{self.page.stem}_{name}.png"

    def markdown(self, path: Path, description: str) -> str:
        """The picture, as the page shows it."""
        return f"![{description}]({Path(os.path.relpath(path, self.page.parent)).as_posix()})"
