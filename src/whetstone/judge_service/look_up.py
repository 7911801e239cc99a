"""Which servers a client is given, what they say of themselves, and whether that is what it needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx2
import msgspec
from msgspec import Struct

from whetstone.errors import SandboxUnavailable, UserError, did_you_mean
from whetstone.judge_service.messages import Info
from whetstone.judge_service.settings import DEFAULT_PORT
from whetstone.sandbox.job import Tier

_FIRST_LOOK_S = 10.0
_BETWEEN_LOOKS_S = 0.5


class Needs(Struct, frozen=True):
    """The weakest isolation that is taken, and the environment that must be offered (empty: any)."""

    minimum_tier: str
    environment: str

    def check(self, url: str, info: Info, environment: str) -> None:
        """Raise UserError for a server that is not what is needed, or has other packages than the rest.

        ``environment`` is that of the others; empty where there are none yet.
        """
        tiers = {tier.label: tier for tier in Tier}
        if self.minimum_tier not in tiers:
            hint = did_you_mean(self.minimum_tier, tiers)
            raise UserError(f"unknown tier `{self.minimum_tier}`{hint} (known: {', '.join(tiers)})")
        if tiers[info.isolation] < tiers[self.minimum_tier]:
            raise SandboxUnavailable(
                f"{url} isolates by tier `{info.isolation}`, weaker than `{self.minimum_tier}`: ask for a "
                "lower minimum tier, or see there what `whetstone doctor` says it needs"
            )
        if self.environment and info.environment.partition(":")[0] != self.environment:
            raise UserError(
                f"{url} offers programs the packages of `{info.environment}`, not of `{self.environment}`: "
                f"start it with --environment {self.environment}"
            )
        if environment and info.environment != environment:
            raise UserError(
                f"{url} offers programs the packages of `{info.environment}`, the others those of "
                f"`{environment}`: verdicts would depend on the server"
            )


def server_urls(given: str | Sequence[str], *, of: str = "a judge", port: int = DEFAULT_PORT) -> list[str]:
    """The addresses, each once. Raises UserError for what is none; ``of`` and ``port`` are for its words."""
    urls, example = [given] if isinstance(given, str) else list(given), f"http://127.0.0.1:{port}"
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"}:
            raise UserError(f"{url}: expected the address of {of}, such as {example}")
    if not urls:
        raise UserError(f"no address of {of}: give one, such as {example}")
    return list(dict.fromkeys(url.rstrip("/") for url in urls))


def authorization(token: str | None) -> dict[str, str]:
    """The header that a token makes."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def looked_up(urls: Sequence[str], token: str | None, needs: Needs, patience_s: float) -> dict[str, Info]:
    """What those servers say that answer now; the others may come later.

    While none does, it is tried again for ``patience_s``. Raises UserError.
    """
    until = time.monotonic() + patience_s
    failures: list[str] = []
    while True:
        found: dict[str, Info] = {}
        failures.clear()
        with httpx2.Client(headers=authorization(token), timeout=_FIRST_LOOK_S, trust_env=False) as client:
            for url in urls:
                try:
                    found[url] = _info(client, url)
                except httpx2.HTTPError as error:
                    failures.append(f"{url}: {type(error).__name__}: {error}")
        if found or time.monotonic() >= until:
            break
        time.sleep(_BETWEEN_LOOKS_S)
    if not found:
        raise UserError(f"no judge answers ({'; '.join(failures)}); start one there: whetstone judge serve")
    environment = ""
    for url, info in found.items():
        needs.check(url, info, environment)
        environment = info.environment
    return found


def _info(client: httpx2.Client, url: str) -> Info:
    answer = client.get(f"{url}/v1/info")
    if answer.status_code in (401, 403):
        raise UserError(f"{url} refuses the token: set WHETSTONE_JUDGE_TOKEN to one of its --token-file")
    if answer.status_code >= 500:
        raise httpx2.RemoteProtocolError(f"status {answer.status_code}")
    try:
        return msgspec.json.decode(answer.content, type=Info)
    except msgspec.MsgspecError:
        raise UserError(f"{url} is no `whetstone judge serve`: it answers {answer.status_code}") from None
