"""Links of the repository's pages, as they must be in the site.

A page keeps its path below ``docs/``.
Another file that a page links to is copied to its path in the repository.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")


def linked_files(source: str, text: str) -> Iterator[str]:
    """Yield the repository paths that a page links to, in order. source: the repository path of the page."""
    blank = _FENCE.sub("", text)
    for match in _LINK.finditer(blank):
        if "://" not in match["target"] and not match["target"].startswith("mailto:"):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))


def site_path(path: str) -> str:
    """Return the path in the site of a file with this repository path."""
    return path.removeprefix("docs/")


def rewritten(source: str, text: str) -> str:
    """Return the page with links that are relative to its place in the site."""
    here = posixpath.dirname(site_path(source))

    def moved(match: re.Match[str]) -> str:
        if "://" in match["target"] or match["target"].startswith("mailto:"):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))
        return posixpath.relpath(site_path(target), here or ".") + (match["anchor"] or "")

    pieces, end = [], 0
    for fence in _FENCE.finditer(text):
        pieces += [_LINK.sub(moved, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, _LINK.sub(moved, text[end:])])
