"""Choose the packages that a fork-server preloads, by what programs import and their environment has.

All Python programs can import all packages of their environment in each fork-server. A preloaded package
costs the program no time. But it costs each fork the copy of its page tables: 0.2 ms for numpy, 3 ms for all
six competition packages.

So there is one fork-server without packages, one with numpy, and one for each other package (with numpy).
Programs that import several get one with all packages. The environment limits their number, whatever programs
import.
"""

from __future__ import annotations

from functools import lru_cache

from whetstone.judge.environments.environment import PackageEnvironment
from whetstone.sandbox import Profile

# Submodules that are imported before the fork too, because the package loads them only on demand.
_PARTS = {"scipy": ("scipy.special", "scipy.sparse", "scipy.optimize", "scipy.spatial", "scipy.stats")}
_NUMPY = "numpy"
# These packages are so small that each fork-server with packages loads them.
_SMALL_PACKAGES = frozenset({"sortedcontainers"})
# Further threads would count against the CPU limit, and give no speed-up on small inputs.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "BLIS")}
_ALL = "all packages"


@lru_cache(maxsize=8)  # called for each case of a program
def fork_server_for(preload: tuple[str, ...], sources: tuple[str, ...]) -> str:
    """Return the name of the fork-server for ``sources``; empty for the one without packages.

    ``preload``: the modules that may be preloaded. The text of the sources decides. A mistake costs only
    time, because a package that is not preloaded is imported in the run.
    """
    named: set[str] = set()
    for source in sources:
        mentioned = [name for name in preload if name in source]
        lines = [line for line in source.splitlines() if "import" in line] if mentioned else []
        named.update(name for name in mentioned if any(name in line for line in lines))
    heavy = named - _SMALL_PACKAGES - {_NUMPY}
    if len(heavy) > 1:
        return _ALL
    return next(iter(heavy or named & {_NUMPY} or sorted(named)), "")


def python_profile(environment: PackageEnvironment, fork_server: str = "") -> Profile:
    """Return the profile of a fork-server of an environment; for ``fork_server`` see ``fork_server_for``."""
    preload = environment.preload
    if fork_server == _ALL:
        names = preload
    else:
        base = () if fork_server in _SMALL_PACKAGES else (_NUMPY,)
        names = [name for name in (*_SMALL_PACKAGES, *base, fork_server) if fork_server and name in preload]
    return Profile(
        f"python with {fork_server}" if fork_server else "python",
        interpreter=environment.interpreter,
        reads=environment.reads,
        imports=[part for name in dict.fromkeys(names) for part in (name, *_PARTS.get(name, ()))],
        import_from=environment.folders,
        environment=_ONE_THREAD if environment.folders else {},
    )
