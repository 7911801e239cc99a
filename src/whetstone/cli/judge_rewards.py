"""``whetstone judge rewards``: serve rewards of replies over HTTP, in the protocol of OpenRLHF."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from whetstone.cli.flags import command
from whetstone.core.flag import Flag


class _RewardService(Struct, frozen=True, kw_only=True):
    """The rewards, and the address of the service."""

    overrides: Annotated[
        tuple[str, ...], Flag("such as environment.reward=fraction", "KEY=VALUE", positional=True)
    ] = ()
    host: Annotated[str, Flag("the address to listen on", "ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Flag("0: any free port (default: 8090)", "N")] = 8090
    token_file: Annotated[
        str | None,
        Flag("the tokens of clients, one per line, sent as ?token=; needed for other machines", "FILE"),
    ] = None


@command(
    "rewards",
    help="serve rewards of replies over HTTP, for OpenRLHF's --reward.remote_url",
    description="Answer OpenRLHF's reward requests, by default from this machine only (see --host). "
    "KEY=VALUE are keys of a recipe (`environment.…`, `judge.…`), and `thinking_opened` and "
    "`no_reward`.",
    epilog="example: whetstone judge rewards --port 8090 environment.reward=fraction judge.workers=8",
)
def serve(service: _RewardService) -> int:
    """Serve until a signal ends it."""
    from whetstone.core.http.settings import Address, read_tokens
    from whetstone.core.settings import mapping_of
    from whetstone.integrations.openrlhf import RewardFunction
    from whetstone.integrations.reward_url import serve_rewards

    reward = RewardFunction(**mapping_of(service.overrides))
    tokens = read_tokens(service.token_file) if service.token_file else ()
    serve_rewards(Address(service.host, service.port, tokens=tokens), reward)
    return 0
