"""Where a Java source must lie, and what of it is started: Java alone wants that from the text."""

from __future__ import annotations

import re

# One pass over the source, which may be hostile: no pattern here is tried twice over the same text.
_JAVA_TOKEN = re.compile(
    r"""/\*.*?(?:\*/|\Z)|//[^\n]*|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[\w.]+|[{}(]""", re.DOTALL
)
_JAVA_MODIFIERS = {"final", "abstract", "strictfp", "sealed"}


def java_names(source: str) -> tuple[str, str]:
    """The file that a Java source must be in, and the class to start: the outer one that has ``main``."""
    words = [token for token in _JAVA_TOKEN.findall(source) if token[0] not in "/\"'"]
    package = words[1] + "." if words[:1] == ["package"] and len(words) > 1 else ""
    public, latest, start, depth, is_public = "", "", "", 0, False
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        if word in {"class", "record", "enum", "interface"} and depth == 0:
            latest = after
            public = public or (after if is_public else "")
        elif (before, word, after) == ("void", "main", "("):
            start = start or latest
        depth += (word == "{") - (word == "}")
        is_public = word == "public" or (is_public and word in _JAVA_MODIFIERS)
    return f"{public or 'Main'}.java", package + (start or public or "Main")
