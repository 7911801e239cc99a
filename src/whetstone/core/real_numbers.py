"""Numbers that code of users returns: Python's, and scalars of numpy, torch and other libraries."""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Real
from typing import Any


def finite_number(value: Any) -> float | None:
    """Return a finite number as a float: of Python, or an array or tensor of one number. None otherwise."""
    if not isinstance(value, Real | Decimal):
        # Arrays and tensors have this method. It fails for more than one number.
        item = getattr(value, "item", None)
        try:
            value = item() if callable(item) else None
        except (TypeError, ValueError, RuntimeError):
            return None
        if not isinstance(value, Real):
            return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None
