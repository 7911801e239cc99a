"""In the test process: remove memory addresses from text, so that the program does not learn them."""

from __future__ import annotations

import gc
import re
from types import BuiltinMethodType, MethodWrapperType

# The garbage collector may track a method of these types without the object that it belongs to.
_BOUND_METHOD_TYPES = frozenset({BuiltinMethodType, MethodWrapperType})
_ADDRESS = re.compile(rb"(?<= at 0x)[0-9a-f]{7,16}")


def without_addresses(message: bytes) -> bytes:
    """Return a message without the memory addresses in it.

    The default text of an object or a function contains its address, and test code may send such a text. Only
    numbers that are addresses of objects are removed.
    """
    if b" at 0x" not in message:
        return message
    # The fork-server froze the objects that it loaded. The collector must list their addresses too.
    gc.unfreeze()
    objects = gc.get_objects()
    addresses = {
        *map(id, objects),
        *(id(method.__self__) for method in objects if type(method) in _BOUND_METHOD_TYPES),
    }
    return _ADDRESS.sub(
        lambda found: b"0" * len(found[0]) if int(found[0], 16) in addresses else found[0], message
    )
