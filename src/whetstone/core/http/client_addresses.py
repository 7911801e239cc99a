"""The server addresses of a client, and the header for its token."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from whetstone.core.errors import UserError
from whetstone.core.http.settings import DEFAULT_PORT


def server_urls(
    addresses: str | Sequence[str], *, of: str = "a judge", port: int = DEFAULT_PORT
) -> list[str]:
    """Return the addresses without duplicates. Raises UserError for an invalid one; ``of`` and ``port`` are
    for its message."""
    urls, example = [addresses] if isinstance(addresses, str) else list(addresses), f"http://127.0.0.1:{port}"
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"}:
            raise UserError(f"{url}: expected the address of {of}, such as {example}")
    if not urls:
        raise UserError(f"the address of {of} is missing; use one such as {example}")
    return list(dict.fromkeys(url.rstrip("/") for url in urls))


def authorization(token: str | None) -> dict[str, str]:
    """Return the header for a token; empty without a token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}
