"""Entry of the fork-server: ``python -s -P -S boot.py REQUEST``; not to be imported.

REQUEST is JSON: ``{"tier", "directory", "control": fd, "profile": {...}, "harnesses": [[name, path], ...]}``.
"""

import os
import resource
import sys

PACKAGE = "_whetstone_zygote"
ASK, ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000


def restart_interpreter() -> None:
    """Execute the interpreter again with settings that are fixed at the start of a process.

    They are an unlimited stack and, for hash seed 0, constant addresses. ``None`` and objects are hashed by
    their addresses, which therefore decide the order of sets.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
    fixed = os.environ.get("PYTHONHASHSEED") == "0" and fix_addresses()
    if soft != hard or fixed:
        os.execv(sys.executable, sys.orig_argv)


def fix_addresses() -> bool:
    """Turn off the randomization of addresses for programs that this process executes.

    Returns whether this changed anything. Some containers do not allow it.
    """
    import ctypes

    personality = ctypes.CDLL(None).personality
    now: int = personality(ASK)
    return now >= 0 and not now & ADDR_NO_RANDOMIZE and personality(now | ADDR_NO_RANDOMIZE) >= 0


def load_package() -> None:
    """Make this folder importable under a private name, without the packages above it."""
    import importlib.util

    folder = os.path.dirname(os.path.realpath(__file__))
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)


def main() -> None:
    restart_interpreter()
    # Not at the top: everything that is imported before the second start is imported twice.
    import _socket
    import importlib
    import json

    load_package()
    request = json.loads(sys.argv[1])
    control = _socket.socket(fileno=request.pop("control"))
    harnesses = request.pop("harnesses")
    start = importlib.import_module(f"{PACKAGE}.start")
    start.start(control, request, harnesses)


main()
