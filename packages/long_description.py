"""The README as the long description of the built package, whose links and pictures lead to the repository.

The relative links of README.md lead nowhere on an index. The variable WHETSTONE_REPOSITORY has the address of
the repository, which ``packages/release.py --repository`` sets. Without it the description has the texts of
the links alone, and no pictures.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "WHETSTONE_REPOSITORY"
# A link or a picture whose target is neither an address nor a place on the same page.
RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")


def long_description(text: str, repository: str) -> str:
    """Return a Markdown text whose relative links and pictures are absolute; without an address, as text."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if not repository:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/HEAD/{target})"

    return RELATIVE.sub(absolute, text)


def project_urls(repository: str) -> dict[str, str]:
    """Return the addresses of the project for the index."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Documentation": f"{repository}/blob/HEAD/docs/index.md",
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


class LongDescriptionHook(MetadataHookInterface):
    """Fills in ``readme`` and ``urls``, which are dynamic in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """See hatchling."""
        repository = os.environ.get(VARIABLE, "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text, repository)}
        metadata["urls"] = project_urls(repository)
