"""Line ends of inputs."""

from __future__ import annotations


def plain_lines(text: str) -> str:
    """Return a text without a byte order mark and with LF at the ends of lines."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
