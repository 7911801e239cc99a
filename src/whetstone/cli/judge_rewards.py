"""``whetstone judge rewards``: rewards of replies over HTTP, as OpenRLHF asks for them."""

from __future__ import annotations

import argparse
from typing import Any


def add_action(actions: Any) -> None:
    """Declare the action and its options."""
    parser = actions.add_parser(
        "rewards",
        help="rewards of replies for OpenRLHF's --reward.remote_url, over HTTP",
        description="Answer OpenRLHF's reward requests, on this machine alone unless --host says otherwise. "
        "KEY=VALUE are `workflow.…` and `judge.…` as in a recipe, and `thinking_opened` and `no_reward`.",
        epilog="example: whetstone judge rewards --port 8090 workflow.reward=fraction judge.workers=8",
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="such as workflow.reward=fraction")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: 127.0.0.1")
    parser.add_argument(
        "--port", type=int, default=8090, metavar="N", help="default: 8090; 0 takes a free one"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="the tokens of those who may ask, one a line, given as ?token=; needed beyond this machine",
    )


def run_rewards(args: argparse.Namespace) -> int:
    """Serve until told to end."""
    from whetstone.integrations.openrlhf import CodeReward
    from whetstone.integrations.reward_url import serve_rewards
    from whetstone.judge_service.settings import Address, read_tokens
    from whetstone.settings import mapping_of

    reward = CodeReward(**mapping_of(args.settings))
    tokens = read_tokens(args.token_file) if args.token_file else ()
    serve_rewards(Address(args.host, args.port, tokens=tokens), reward)
    return 0
