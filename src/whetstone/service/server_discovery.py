"""Look up the servers of a client, and check that they meet its requirements."""

from __future__ import annotations

import time
from collections.abc import Sequence

import httpx2
import msgspec
from msgspec import Struct

from whetstone.core.errors import SandboxUnavailable, UserError, did_you_mean
from whetstone.core.http.client_addresses import authorization
from whetstone.sandbox.job import Tier
from whetstone.service.messages import Info

_FIRST_LOOK_S = 10.0
_BETWEEN_LOOKS_S = 0.5


class ServerRequirements(Struct, frozen=True):
    """The weakest isolation that a client accepts, and the environment of packages (empty: any)."""

    minimum_tier: str
    environment: str

    def check(self, url: str, info: Info, environment: str) -> None:
        """Raise UserError for a server that does not meet the requirements, or has other packages.

        ``environment`` is that of the other servers; empty if there are none yet.
        """
        tiers = {tier.label: tier for tier in Tier}
        if self.minimum_tier not in tiers:
            hint = did_you_mean(self.minimum_tier, tiers)
            raise UserError(f"unknown tier `{self.minimum_tier}`{hint} (known: {', '.join(tiers)})")
        if tiers[info.isolation] < tiers[self.minimum_tier]:
            raise SandboxUnavailable(
                f"{url} isolates by tier `{info.isolation}`, weaker than `{self.minimum_tier}`: set a "
                "lower minimum tier, or run `whetstone doctor` there"
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


def look_up_servers(
    urls: Sequence[str], token: str | None, requirements: ServerRequirements, timeout_s: float
) -> dict[str, Info]:
    """Return the facts about the servers that respond now; the others may start later.

    While no server responds, retry for ``timeout_s`` seconds. Raises UserError if none responds, or if one
    does not meet the requirements.
    """
    deadline = time.monotonic() + timeout_s
    failures: list[str] = []
    while True:
        found: dict[str, Info] = {}
        failures.clear()
        with httpx2.Client(headers=authorization(token), timeout=_FIRST_LOOK_S, trust_env=False) as client:
            for url in urls:
                try:
                    found[url] = _fetch_info(client, url)
                except httpx2.HTTPError as error:
                    failures.append(f"{url}: {type(error).__name__}: {error}")
        if found or time.monotonic() >= deadline:
            break
        time.sleep(_BETWEEN_LOOKS_S)
    if not found:
        raise UserError(f"no judge responds ({'; '.join(failures)}); start one there: whetstone judge serve")
    environment = ""
    for url, info in found.items():
        requirements.check(url, info, environment)
        environment = info.environment
    return found


def _fetch_info(client: httpx2.Client, url: str) -> Info:
    response = client.get(f"{url}/v1/info")
    if response.status_code in (401, 403):
        raise UserError(f"{url} refuses the token: set WHETSTONE_JUDGE_TOKEN to one of its --token-file")
    if response.status_code >= 500:
        # A server that drains, or a proxy without its server, responds with 5xx. Another try may succeed.
        raise httpx2.RemoteProtocolError(f"status {response.status_code}")
    try:
        return msgspec.json.decode(response.content, type=Info)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise UserError(f"{url} is not a `whetstone judge serve`: status {response.status_code}") from None
