"""Landlock: which files a process may open, enforced by the kernel below every file permission."""

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
# Rights grow with the interface version: 13 at first, then REFER, TRUNCATE, and IOCTL_DEV.
_RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}
_RIGHTS_NOW = 16
_TCP = 0b11
_SCOPES = 0b11  # abstract unix sockets and signals


def version() -> int:
    """The kernel's Landlock interface version; 0 where it has none."""
    try:
        return kernel.system_call("landlock_create_ruleset", (0, 0, _VERSION_QUESTION), "landlock version")
    except kernel.StepRefused:
        return 0


class Ruleset:
    """A set of rules to which a process, with all that it forks, binds itself."""

    def __init__(self) -> None:
        """Deny every kind of file access, TCP, and (where known) signals out of the sandbox."""
        abi = version()
        if not abi:
            raise kernel.StepRefused("landlock: this kernel has none")
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
            return  # what we cannot reach need not be allowed
        try:
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights & self._all, fd), 12)
            arguments = (self.fd, _PATH_BENEATH, ctypes.addressof(rule))
            kernel.system_call("landlock_add_rule", arguments, f"landlock rule for {path}")
        finally:
            os.close(fd)

    def allow_reading(self, paths: Iterable[str], *, execute: bool = False) -> None:
        """Let files, and directories with all beneath, be read; executed as programs only if so wanted."""
        file_rights = _READ_FILE | (_EXECUTE if execute else 0)
        for path in paths:
            self._allow(path, file_rights | _READ_DIR if os.path.isdir(path) else file_rights)

    def allow_listing(self, paths: Iterable[str]) -> None:
        """Let directories, with all beneath, be listed, but no file in them be read."""
        for path in paths:
            self._allow(path, _READ_DIR)

    def allow_devices(self, paths: Iterable[str]) -> None:
        """Let device files be read and written."""
        for path in paths:
            self._allow(path, _READ_FILE | _WRITE_FILE | _TRUNCATE)

    def allow_everything_in(self, path: str, *, sockets: bool) -> None:
        """Let all be done beneath a directory, except making devices, and sockets unless they are wanted."""
        refused = _MAKE_CHAR | _MAKE_BLOCK | (0 if sockets else _MAKE_SOCK)
        self._allow(path, self._all & ~refused)

    def restrict_self(self) -> None:
        """Bind this process to the rules for good (needs no_new_privs), and let go of them."""
        kernel.system_call("landlock_restrict_self", (self.fd, 0, 0), "landlock")
        os.close(self.fd)
