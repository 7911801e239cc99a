"""Entry of the fork-server: ``python -I -S boot.py REQUEST``; not to be imported.

REQUEST is JSON: ``{"tier", "directory", "control": fd, "profile": {...}, "harnesses": [[name, path], ...]}``.
"""

import _socket
import importlib.util
import json
import os
import resource
import sys

PACKAGE = "_whetstone_zygote"


def raise_stack_limit() -> None:
    """Start again with an unlimited stack: its room in the address space is fixed when a process starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
        os.execv(sys.executable, sys.orig_argv)


def load_package() -> None:
    """Make this folder importable under a private name, without its parent's."""
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
    raise_stack_limit()
    load_package()
    request = json.loads(sys.argv[1])
    control = _socket.socket(fileno=request.pop("control"))
    harnesses = request.pop("harnesses")
    start = importlib.import_module(f"{PACKAGE}.start")
    start.start(control, request, harnesses)


main()
