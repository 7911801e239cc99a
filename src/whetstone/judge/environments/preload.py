"""What a fork-server has loaded ahead: chosen by what programs import, from what their environment has.

All Python programs can import all packages of their environment, wherever they run; where a package is loaded
already, that costs the program nothing. But what is loaded costs every fork its page tables: 0.2 ms for
numpy, 3 ms for all six of the competition packages. So there is a fork-server for programs that import
nothing, one with numpy, one for each other package (with numpy beside it), and one with all for programs
that import several. Their number is bounded by the environment, whatever programs import.
"""

from __future__ import annotations

from functools import lru_cache

from whetstone.judge.environments.environment import Environment
from whetstone.sandbox import Profile

# Imported before the fork: what programs use of a package that loads its parts only when asked.
_PARTS = {"scipy": ("scipy.special", "scipy.sparse", "scipy.optimize", "scipy.spatial", "scipy.stats")}
_BASE = "numpy"
# So small that they are loaded wherever anything is.
_SMALL = frozenset({"sortedcontainers"})
# More threads than one would count against the CPU limit, and gain nothing on small inputs.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "BLIS")}
_ALL = "all packages"


@lru_cache(maxsize=8)  # each case of a program asks
def loaded_ahead(preload: tuple[str, ...], sources: tuple[str, ...]) -> str:
    """The name of the fork-server for ``sources``; empty for the one that has no package loaded.

    ``preload`` are the modules that may be. A look at the text: being wrong costs time alone, for a package
    that it overlooks is imported in the run.
    """
    named: set[str] = set()
    for source in sources:
        here = [name for name in preload if name in source]
        lines = [line for line in source.splitlines() if "import" in line] if here else []
        named.update(name for name in here if any(name in line for line in lines))
    heavy = named - _SMALL - {_BASE}
    if len(heavy) > 1:
        return _ALL
    return next(iter(heavy or named & {_BASE} or sorted(named)), "")


def python_profile(environment: Environment, loaded: str = "") -> Profile:
    """The fork-server of an environment that has ``loaded`` ahead (see ``loaded_ahead``)."""
    preload = environment.preload
    if loaded == _ALL:
        names = preload
    else:
        base = () if loaded in _SMALL else (_BASE,)
        names = [name for name in (*_SMALL, *base, loaded) if loaded and name in preload]
    return Profile(
        f"python with {loaded}" if loaded else "python",
        reads=environment.reads,
        imports=[part for name in dict.fromkeys(names) for part in (name, *_PARTS.get(name, ()))],
        import_from=environment.folders,
        environment=_ONE_THREAD if environment.folders else {},
    )
