"""Where roles find each other: what a flag, the environment and the recipe say, in this order."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from whetstone.addresses import host_port, is_loopback
from whetstone.errors import UserError
from whetstone.flow.settings import FlowSection
from whetstone.judge_service.settings import Address, read_tokens
from whetstone.weights.settings import TOKEN_VARIABLE

FLOW_VARIABLE = "WHETSTONE_FLOW"
"""The address of the flow, for replicas and trainers."""


def flow_url(
    section: FlowSection, role: str, given: str | None = None, variables: Mapping[str, str] = os.environ
) -> str:
    """The address of the flow. Raises UserError, which says how to give one, where nobody says it."""
    url = given or variables.get(FLOW_VARIABLE) or section.url
    if not url:
        raise UserError(
            f"the {role} does not know where the flow is: give --flow http://HOST:PORT, set {FLOW_VARIABLE}, "
            "or `flow.url` in the recipe; `whetstone role flow` prints its address when it starts"
        )
    return url


def listening_address(
    section: FlowSection,
    host: str | None,
    port: int | None,
    token_file: str | None,
    variables: Mapping[str, str] = os.environ,
) -> Address:
    """Where the flow listens, and for whom: the tokens of a file, or the one of the environment."""
    token = own_token(variables)
    tokens = read_tokens(token_file) if token_file else (token,) if token else ()
    return Address(host or section.host, section.port if port is None else port, tokens=tokens)


def own_token(variables: Mapping[str, str] = os.environ) -> str:
    """The token of the run that this process has been told; empty for none."""
    return variables.get(TOKEN_VARIABLE, "")


def reachable(flow: str, host: str, port: int) -> str:
    """HOST:PORT by which replicas reach what listens on ``host`` here: of all addresses of this machine it is
    the one that leads to the flow."""
    return host_port(_towards(flow) if host in ("0.0.0.0", "::") else host, port)


def _towards(url: str) -> str:
    """This machine's own address on the way to another. Nothing is sent."""
    parts = urlsplit(url)
    target = parts.hostname or "localhost"
    try:
        family, kind, _, _, address = socket.getaddrinfo(target, parts.port or 80, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UserError(
            f"no way to {target} is known here ({error}): set `flow.weights.address` to HOST:PORT by which "
            "replicas reach this trainer"
        ) from None


def what_others_run(host: str, port: int, recipe: str) -> str:
    """What to type on other hosts, for a flow that listens here."""
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
    url = f"http://{host_port(shown, port)}"
    token = "" if is_loopback(host) else f"{TOKEN_VARIABLE}=… "
    return "\n".join(
        f"  {token}whetstone role {role} {recipe} --flow {url}" for role in ("rollout", "trainer")
    )
