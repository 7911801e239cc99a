"""Where roles find each other: what a flag, the environment and the recipe say, in this order."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from whetstone.addresses import host_port, is_loopback
from whetstone.errors import UserError
from whetstone.flow.settings import FlowSection
from whetstone.judge_service.settings import Address, read_tokens
from whetstone.weights.settings import TOKEN_VARIABLE

FLOW_VARIABLE = "WHETSTONE_FLOW"
"""The address of the flow, for replicas and trainers."""
_ELSEWHERE = "192.0.2.1"
"""Of a network that is nobody's (RFC 5737)."""


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
    the one that leads to the flow; beside a flow that is here, the one that leads outside."""
    if host not in ("0.0.0.0", "::"):
        return host_port(host, port)
    own = _towards(flow)
    return host_port(_outside() or own if is_loopback(own) else own, port)


def _outside() -> str:
    """This machine's address on its way to others; empty where it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


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


def what_others_run(host: str, port: int, recipe: str, models: Sequence[str]) -> str:
    """What to type on other hosts, for a flow that listens here and trains ``models``."""
    trainers = [f"trainer {recipe} --model {name}" for name in models]
    roles = [f"rollout {recipe}", *(trainers if len(models) > 1 else [f"trainer {recipe}"])]
    return "\n".join(f"  {_command(role, host, port)}" for role in roles)


def how_to_join(host: str, port: int, recipe: str) -> str:
    """What to type on another host for a replica there, of a flow that listens on ``host`` here."""
    return _command(f"rollout {recipe}", host, port)


def _command(role: str, host: str, port: int) -> str:
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
    token = "" if is_loopback(host) else f"{TOKEN_VARIABLE}=… "
    return f"{token}whetstone role {role} --flow http://{host_port(shown, port)}"
