"""The addresses of roles, from a flag, the environment or the recipe, in this order."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from whetstone.core.addresses import host_port, is_loopback
from whetstone.core.errors import UserError
from whetstone.core.http.settings import Address, read_tokens
from whetstone.rollout.settings import FlowSection
from whetstone.weights.settings import TOKEN_VARIABLE

# Environment variable with the flow's address, for replicas and trainers.
FLOW_VARIABLE = "WHETSTONE_FLOW"
# An address of a documentation network (RFC 5737), which no host has.
_TEST_ADDRESS = "192.0.2.1"


def flow_url(section: FlowSection, role: str, given: str | None = None) -> str:
    """Return the flow's address. Raises UserError with the ways to give one if there is none."""
    url = given or os.environ.get(FLOW_VARIABLE) or section.url
    if not url:
        raise UserError(
            f"the {role} has no address of the flow: give --flow http://HOST:PORT, set {FLOW_VARIABLE}, "
            "or `flow.url` in the recipe; `whetstone role flow` prints its address when it starts"
        )
    return url


def listening_address(
    section: FlowSection, host: str | None, port: int | None, token_file: str | None
) -> Address:
    """Return where the flow listens, with the accepted tokens from a file or from the environment."""
    token = run_token()
    tokens = read_tokens(token_file) if token_file else (token,) if token else ()
    return Address(host or section.host, section.port if port is None else port, tokens=tokens)


def run_token(variables: Mapping[str, str] = os.environ) -> str:
    """Return this process's token of the run; empty if there is none."""
    return variables.get(TOKEN_VARIABLE, "")


def reachable_address(flow: str, host: str, port: int) -> str:
    """Return the HOST:PORT by which replicas reach a server that listens on ``host``.

    Of this machine's addresses it is the one on the route to the flow; for a flow on this machine, the one on
    the external route.
    """
    if host not in ("0.0.0.0", "::"):
        return host_port(host, port)
    own = _address_towards(flow)
    return host_port(_external_address() or own if is_loopback(own) else own, port)


def _external_address() -> str:
    """Return this machine's address on the external route; empty if it has none. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a UDP socket only looks up the route.
            probe.connect((_TEST_ADDRESS, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _address_towards(url: str) -> str:
    """Return this machine's address on the route to a URL. No packet is sent."""
    parts = urlsplit(url)
    target = parts.hostname or "localhost"
    try:
        family, kind, _, _, address = socket.getaddrinfo(target, parts.port or 80, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UserError(
            f"there is no route to {target} ({error}): set `flow.weights.address` to HOST:PORT by which "
            "replicas reach this trainer"
        ) from None


def join_commands(host: str, port: int, recipe: str, models: Sequence[str]) -> str:
    """Return the commands for other hosts, for a flow that listens here and trains ``models``."""
    trainers = [f"trainer {recipe} --model {name}" for name in models]
    roles = [f"rollout {recipe}", *(trainers if len(models) > 1 else [f"trainer {recipe}"])]
    return "\n".join(f"  {_command(role, host, port)}" for role in roles)


def replica_command(host: str, port: int, recipe: str) -> str:
    """Return the command that starts a replica on another host, for a flow that listens on ``host``."""
    return _command(f"rollout {recipe}", host, port)


def _command(role: str, host: str, port: int) -> str:
    # A host that listens on every address needs a name that other hosts can resolve.
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
    token = "" if is_loopback(host) else f"{TOKEN_VARIABLE}=… "
    return f"{token}whetstone role {role} --flow http://{host_port(shown, port)}"
