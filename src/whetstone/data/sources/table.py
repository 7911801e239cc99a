"""All sources by name. Each module is imported when its source is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from whetstone.core.errors import UserError, did_you_mean
from whetstone.data.sources.source import DatasetSource

# Source name -> module of this package, whose `SOURCES` holds it. A module may hold several.
_MODULES = {
    "aethercode": "aethercode",
    "apps": "apps",
    "archer": "verl",
    "areal": "areal",
    "bigcodebench": "bigcodebench",
    "bigcodebench-hard": "bigcodebench",
    "code-r1": "verl",
    "code_contests": "code_contests",
    "deepcoder-codeforces": "deepcoder",
    "deepcoder-lcbv5": "deepcoder",
    "deepcoder-primeintellect": "deepcoder",
    "deepcoder-taco": "deepcoder",
    "humaneval": "humaneval",
    "humanevalplus": "evalplus",
    "kattis": "kattis",
    "kodcode": "kodcode",
    "leetcode": "leetcode",
    "livecodebench": "livecodebench",
    "mbpp": "mbpp",
    "mbpp-full": "mbpp",
    "mbppplus": "evalplus",
    "open-r1-codeforces": "open_r1_codeforces",
    "primeintellect": "primeintellect",
    "primeintellect-python": "primeintellect",
    "synthetic-1": "primeintellect",
    "taco": "apps",
    "taco-verified": "apps",
    "verl": "verl",
}

SOURCE_NAMES = tuple(_MODULES)


def source_named(name: str) -> DatasetSource:
    """Return a source by name. Raises UserError for an unknown one."""
    if name not in _MODULES:
        raise UserError(
            f"no source `{name}`{did_you_mean(name, SOURCE_NAMES)} (list them: whetstone data show sources)"
        )
    # Importing all modules would slow down every command that only names a source.
    module = importlib.import_module(f"whetstone.data.sources.{_MODULES[name]}")
    return next(source for source in module.SOURCES if source.name == name)


def all_sources() -> Iterator[DatasetSource]:
    """Yield all sources, in the table's order."""
    for name in SOURCE_NAMES:
        yield source_named(name)
