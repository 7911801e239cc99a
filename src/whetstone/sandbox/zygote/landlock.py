"""Landlock: the kernel restricts which files a process may open, in addition to file permissions."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from . import kernel

_VERSION_QUESTION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_TRUNCATE = 1 << 14
# The number of rights by version: 13 at first, then REFER, TRUNCATE, and IOCTL_DEV.
_RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}
_RIGHTS_NOW = 16
_TCP = 0b11
_SCOPES = 0b11  # abstract unix sockets and signals


def version() -> int:
    """Return the Landlock version of the kernel; 0 if it has none."""
    try:
        return kernel.system_call("landlock_create_ruleset", (0, 0, _VERSION_QUESTION), "landlock version")
    except kernel.StepRefused:
        return 0


class Ruleset:
    """A set of rules by which a process restricts itself and everything that it forks."""

    def __init__(self) -> None:
        """Deny every kind of file access, TCP, and, if the kernel can, signals out of the sandbox."""
        abi = version()
        if not abi:
            raise kernel.StepRefused("landlock: this kernel does not have it")
        self._all = (1 << _RIGHTS_OF_VERSION.get(abi, _RIGHTS_NOW)) - 1
        attributes = struct.pack("=Q", self._all)
        if abi >= 4:
            attributes += struct.pack("=Q", _TCP)
        if abi >= 6:
            attributes += struct.pack("=Q", _SCOPES)
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        self.fd = kernel.system_call(
            "landlock_create_ruleset", (ctypes.addressof(buffer), len(attributes), 0), "landlock ruleset"
        )

    def _allow(self, path: str, rights: int) -> None:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            return  # an unreachable path needs no rule
        try:
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights & self._all, fd), 12)
            arguments = (self.fd, _PATH_BENEATH, ctypes.addressof(rule))
            kernel.system_call("landlock_add_rule", arguments, f"landlock rule for {path}")
        finally:
            os.close(fd)

    def allow_reading(self, paths: Iterable[str], *, execute: bool = False) -> None:
        """Allow reading of files, and of directories with everything below them. ``execute``: also as
        programs."""
        file_rights = _READ_FILE | (_EXECUTE if execute else 0)
        for path in paths:
            self._allow(path, file_rights | _READ_DIR if os.path.isdir(path) else file_rights)

    def allow_listing(self, paths: Iterable[str]) -> None:
        """Allow listing of directories and everything below them, but no reading of files."""
        for path in paths:
            self._allow(path, _READ_DIR)

    def allow_devices(self, paths: Iterable[str]) -> None:
        """Allow reading and writing of device files."""
        for path in paths:
            self._allow(path, _READ_FILE | _WRITE_FILE | _TRUNCATE)

    def allow_everything_in(self, path: str, *, sockets: bool) -> None:
        """Allow everything below a directory, except making devices, and sockets unless ``sockets``."""
        refused = _MAKE_CHAR | _MAKE_BLOCK | (0 if sockets else _MAKE_SOCK)
        self._allow(path, self._all & ~refused)

    def restrict_self(self) -> None:
        """Apply the rules to this process permanently (requires no_new_privs), and close them."""
        kernel.system_call("landlock_restrict_self", (self.fd, 0, 0), "landlock")
        os.close(self.fd)
