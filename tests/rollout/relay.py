"""A wire that can be cut: TCP handed on to a port, until what is sent arrives no more, and nobody is told."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Relay:
    """Hands on what is sent to ``port`` here. To be used on one event loop, by ``async with``."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._hand_on, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """What is sent from now on stays on its way."""
        self._whole.clear()

    def mend(self) -> None:
        """All of it arrives, and so does what follows."""
        self._whole.set()

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        its_reader, its_writer = await asyncio.open_connection("127.0.0.1", self._to)
        for one, other in ((reader, its_writer), (its_reader, writer)):
            task = asyncio.create_task(self._copy(one, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            try:
                while data := await reader.read(1 << 16):
                    await self._whole.wait()
                    writer.write(data)
                    await writer.drain()
            finally:
                writer.close()
