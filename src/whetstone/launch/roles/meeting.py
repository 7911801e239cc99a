"""The first words of a role with its flow, before it loads torch, problems and a model. Torch-free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from whetstone.flow.identity import Identity
from whetstone.flow.service.client import FlowClient


def meet_flow(url: str, say: Callable[[str], None]) -> None:
    """Wait until a flow answers at ``url``. ``say`` is told of a long wait.

    Raises UserError where none does, and for a token that it does not take. Whether it is the flow of this
    run is asked later (``FlowClient.hello``), when the problems are read.
    """
    asyncio.run(_met(url, say))


async def _met(url: str, say: Callable[[str], None]) -> None:
    client = FlowClient(url, Identity({}), say=say)
    try:
        await client.status()
    finally:
        await client.close()
