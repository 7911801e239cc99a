"""Entry of the fork-server: ``python -s -P -S boot.py REQUEST``; not to be imported.

REQUEST is JSON: ``{"tier", "directory", "control": fd, "profile": {...}, "harnesses": [[name, path], ...]}``.
"""

import os
import resource
import sys

PACKAGE = "_whetstone_zygote"
ASK, ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000


def start_again() -> None:
    """Execute the interpreter again with what is fixed when a process starts: room for an unlimited stack,
    and, with the hash seed 0, all addresses: ``None`` and objects hash as their addresses, and so order sets
    as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
    fixed = os.environ.get("PYTHONHASHSEED") == "0" and fix_addresses()
    if soft != hard or fixed:
        os.execv(sys.executable, sys.orig_argv)


def fix_addresses() -> bool:
    """Whether a program that is executed from now on has its addresses where it had them before, and had not
    until now. Some containers do not allow it.
    """
    import ctypes

    personality = ctypes.CDLL(None).personality
    now: int = personality(ASK)
    return now >= 0 and not now & ADDR_NO_RANDOMIZE and personality(now | ADDR_NO_RANDOMIZE) >= 0


def load_package() -> None:
    """Make this folder importable under a private name, without its parent's."""
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
    start_again()
    # Not at the top, because all that is imported before the second start is imported twice.
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
