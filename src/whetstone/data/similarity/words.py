"""A statement as words, so that two copies of a text are equal despite formatting.

Markup of the public sets (LaTeX, HTML, Markdown, the headings of APPS), letter case, typographic
signs and white space are removed. Numbers and operators stay: they distinguish problems.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Set as AbstractSet
from hashlib import blake2b

from msgspec import Struct

# Words in a shingle. Three preserve the order of words, and short statements still overlap.
SHINGLE = 3

_SIGNS = str.maketrans({
    "≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">=", "≠": "!=", "×": "*", "⋅": "*", "·": "*", "−": "-", "–": "-",
    "—": "-", "“": '"', "”": '"', "‘": "'", "’": "'", "$": "", "`": "", "\u200b": "", "\ufeff": "",
})  # fmt: skip
_LATEX = {
    "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "ne": "!=",
    "neq": "!=", "times": "*", "cdot": "*", "ldots": "...", "dots": "...", "cdots": "...", "lt": "<",
    "gt": ">", "left": "", "right": "", "text": "", "texttt": "", "textbf": "", "textit": "", "mathrm": "",
    "operatorname": "", "quad": " ", "bf": "", "it": "",
}  # fmt: skip
_LATEX_COMMAND = re.compile(r"\\([A-Za-z]+)")
_LATEX_SPACE = re.compile(r"\\[,;:! ]")
_BRACED = re.compile(r"([_^])\{(\w+)\}")
_TAG = re.compile(
    r"</?(?:a|b|br|code|div|em|h\d|hr|i|img|li|ol|p|pre|span|strong|sub|sup|table|tbody|td|th|tr|tt|ul|var)"
    r"(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_RULE = re.compile(r"([-=*#_~])\1{2,}")
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t]", re.MULTILINE)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_CODE_LINE = re.compile(
    r"assert\s|(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[(:]|from\s+[\w.]+\s+import\s|import\s+[\w.]+(?:\s+as|$)|```|@\w"
)
_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[-+*/%<>=!&|^~]+")


class Words(Struct, frozen=True):
    """A normalized statement.

    ``exact`` is a hash of its characters without markup, case and white space; ``tokens`` its words,
    numbers and operators in order; ``bag`` a hash of the set of them, numbers counted each time.
    """

    exact: int
    tokens: tuple[str, ...]
    bag: int


def read_words(statement: str) -> Words:
    """Normalize a statement; the module docstring lists what is removed."""
    plain = plain_text(statement)
    tokens = tuple(_TOKEN.findall(plain))
    counted = sorted({t for t in tokens if not t[0].isdigit()}) + sorted(t for t in tokens if t[0].isdigit())
    return Words(hash64("".join(plain.split())), tokens, hash64(" ".join(counted)))


def task_text(statement: str, starter: str | None) -> str:
    """Return the text of a problem: its statement, and a starter with the description in a docstring.

    Some sets say "complete the function below" in every statement, and all else in the starter. A starter
    that is only a signature is left out: copies of a problem have it or not.
    """
    tells = starter and starter.strip() not in statement and any(q in starter for q in ('"""', "'''"))
    return f"{statement}\n{starter}" if tells else statement


def prose(statement: str) -> str:
    """Return the statement without lines of code: definitions, imports, asserts, doctests and their
    output."""
    kept: list[str] = []
    printed = False
    for line in statement.replace('"""', "\n").replace("'''", "\n").splitlines():
        text = line.strip()
        if text.startswith((">>>", "...")):
            printed = True
        # The output of a doctest continues up to an empty line.
        elif _CODE_LINE.match(text) or (printed and text):
            continue
        else:
            printed = False
            kept.append(line)
    return "\n".join(kept)


def plain_text(statement: str) -> str:
    """Return the text without markup, in folded case."""
    # NFKC turns full-width letters, ligatures and superscripts into plain characters.
    text = html.unescape(unicodedata.normalize("NFKC", statement)).translate(_SIGNS)
    text = _LATEX_SPACE.sub(" ", _TAG.sub(" ", text))
    # An unknown command may have a meaning, so it stays.
    text = _LATEX_COMMAND.sub(lambda found: _LATEX.get(found[1], found[0]), text)
    text = _BRACED.sub(r"\1\2", text)
    text = _HEADING.sub("", _BOLD.sub(r"\1", _RULE.sub(" ", text)))
    return text.casefold()


def shingles(tokens: tuple[str, ...], size: int = SHINGLE) -> set[int]:
    """Return the hashes of all runs of ``size`` words; of the whole text if it has fewer."""
    if not tokens:
        return set()
    # A text with fewer words is one shingle by itself.
    last = max(len(tokens) - size, 0)
    return {hash64(" ".join(tokens[at : at + size])) for at in range(last + 1)}


def jaccard(a: AbstractSet[int], b: AbstractSet[int]) -> float:
    """Return the share of common elements, in [0, 1]; 0 for two empty sets."""
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared) if shared else 0.0


def hash64(text: str) -> int:
    """Return 64 bits of a hash of the text. Unlike ``hash``, it is the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
