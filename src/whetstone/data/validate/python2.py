"""Is a program written in Python 2? Such references fail for a reason that is not in the tests."""

from __future__ import annotations

import ast
import re

_SYNTAX = re.compile(
    r"^[ \t]*print[ \t]*(?:>>|[\"'\w\[{`-]|\([^()\n]*\)[ \t]*[,%]|$)"  # print x, print >>f, x, print (x), y
    r"|^[ \t]*except[ \t]+[\w.]+[ \t]*,[ \t]*\w+[ \t]*:"
    r"|^[ \t]*raise[ \t]+\w+[ \t]*,"
    r"|^[ \t]*exec[ \t]+[\"'\w]"
    r"|<>|`[^`\n]+`|\b0[0-7]+\b|\b\d+L\b|\bur[\"']",
    re.MULTILINE,
)
_NAMES = re.compile(
    r"^[ \t]*print[ \t]*>>|\b(?:raw_input|xrange|unichr|basestring|execfile)\s*\("
    r"|\.(?:iteritems|itervalues|iterkeys|has_key)\s*\(|\bsys\.maxint\b|\bstring\.maketrans\b"
    r"|\bfrom\s+string\s+import\s+maketrans\b|\bimport\s+(?:urllib2|Queue|cPickle)\b",
    re.MULTILINE,
)
_COMMENTS = re.compile(r"#.*$", re.MULTILINE)


def is_python2(source: str) -> bool:
    """True for text with Python 2's syntax that Python 3 cannot parse, and for text with Python 2's names.

    Meant for programs that failed: a right program may well define an ``xrange`` of its own.
    """
    code = _COMMENTS.sub("", source)
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return bool(_SYNTAX.search(code) or _NAMES.search(code))
    except (RecursionError, MemoryError):
        return False
    return bool(_NAMES.search(code))
