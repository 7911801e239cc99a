"""Is a program written in Python 2? Such references fail for a reason that is not in the tests."""

from __future__ import annotations

import ast
import re
import warnings

_SYNTAX = re.compile(
    r"^[ \t]*print[ \t]*(?:>>|[\"'\w\[{`-]|\([^()\n]*\)[ \t]*[,%]|$)"  # print x, print >>f, x, print (x), y
    r"|^[ \t]*except[ \t]+[\w.]+[ \t]*,[ \t]*\w+[ \t]*:"
    r"|^[ \t]*raise[ \t]+\w+[ \t]*,"
    r"|^[ \t]*exec[ \t]+[\"'\w]"
    r"|<>|`[^`\n]+`|\b0[0-7]+\b|\b\d+L\b|\bur[\"']",
    re.MULTILINE,
)
_NAMES = re.compile(
    r"\b(?:raw_input|xrange|unichr|basestring|execfile)\s*\(|\.(?:iteritems|itervalues|iterkeys|has_key)\s*\("
    r"|\bsys\.maxint\b|\bfrom\s+string\s+import\s+maketrans\b|\bstring\.maketrans\b|\bimport\s+(?:urllib2|Queue|cPickle)\b"
)
_COMMENTS = re.compile(r"#.*$", re.MULTILINE)


def is_python2(source: str) -> bool:
    """True for text that Python 3 cannot parse and that has Python 2's syntax, or that uses names of it.

    Meant for programs that failed: a right program may well define an ``xrange`` of its own.
    """
    code = _COMMENTS.sub("", source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except (SyntaxError, ValueError):
        return bool(_SYNTAX.search(code) or _NAMES.search(code))
    except (RecursionError, MemoryError):
        return False
    return bool(_NAMES.search(code))
