"""A ``NodeServer`` in its own process. It reads the setup from stdin and prints the result of ``start``."""

from __future__ import annotations

import asyncio
import json
import sys

from whetstone.service.ray_servers import NodeServer


async def main() -> None:
    node = NodeServer(sys.stdin.buffer.read())
    print(json.dumps(await node.start()), flush=True)
    await node.wait()


if __name__ == "__main__":
    # Ray runs an actor's event loop outside the main thread.
    asyncio.run(asyncio.to_thread(asyncio.run, main()))
