"""Names of a package that are imported on first use, so that importing one of its modules stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of ``package``. ``modules`` maps each module to the names that it provides.

    A name must not be that of a submodule, because the import of the submodule would replace it.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name]), name)
        # Stored in the package, so that `__getattr__` runs once per name.
        setattr(sys.modules[package], name, value)
        return value

    return get
