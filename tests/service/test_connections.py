"""A client's connections: whole answers however they come, and none that hangs or is taken for another's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from whetstone.service.connections import Broken, Connections

pytestmark = pytest.mark.process

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"


class Server:
    """A server that answers as ``talk`` does; it counts connections and those that were hung up on."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.connections = 0
        self.met, self.left = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0)
        self.url = f"http://any:secret@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.met.set()
        try:
            await self._talk(reader, writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        self.left.set()
        writer.close()


async def head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def test_an_answer_is_whole_in_pieces_in_chunks_and_after_an_interim_one() -> None:
    answers = [
        [WHOLE[n : n + 1] for n in range(len(WHOLE))],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nfi\r\n", b"2\r\nne\r\n0\r\n\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE],
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nfine"],
        [WHOLE],
    ]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answers:
            asked = await head(reader)
            assert b"Authorization: Basic YW55OnNlY3JldA==\r\n" in asked
            assert await reader.readexactly(3) == b"abc"
            pieces = answers.pop(0)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if b"Connection: close" in pieces[0]:
                return

    async def asked() -> None:
        async with Server(talk) as server:
            connections = Connections(server.url, {})
            for _ in range(5):
                answer = await connections.ask("POST", "/", b"abc", "text/plain")
                assert (answer.status, answer.content) == (200, b"fine")
            assert server.connections == 2
            await connections.close()

    asyncio.run(asked())


def test_what_a_closed_connection_did_not_carry_goes_over_a_new_one() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(WHOLE)
        await head(reader)  # the second request is read, and never answered
        writer.transport.abort()

    async def asked() -> None:
        async with Server(talk) as server:
            connections = Connections(server.url, {})
            for number in (1, 2, 3):
                assert (await connections.ask("GET", "/")).content == b"fine"
                assert server.connections == number
            await connections.close()

    asyncio.run(asked())


HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"


@pytest.mark.parametrize("said", [b"", HALF, b"SSH-2.0 hello\r\n"])
def test_an_answer_that_is_none_is_broken_and_hangs_nobody(said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(said)
        await writer.drain()
        writer.close()

    async def asked() -> None:
        async with Server(talk) as server:
            connections = Connections(server.url, {})
            with pytest.raises(Broken) as broken:
                await connections.ask("POST", "/", b"", "text/plain")
            assert (server.connections, broken.value.sends) == (1, 1)
            await connections.close()
        nowhere = Connections("http://127.0.0.1:9", {})
        with pytest.raises(Broken) as broken:
            await nowhere.ask("POST", "/", b"", "text/plain")
        assert broken.value.sends == 0
        await nowhere.close()

    asyncio.run(asked())


def test_who_gives_up_hangs_up_and_the_next_answer_is_not_his() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/slow" not in await head(reader):
            writer.write(WHOLE)

    async def asked() -> None:
        async with Server(talk) as server:
            connections = Connections(server.url, {})
            slow = asyncio.ensure_future(connections.ask("GET", "/slow"))
            await server.met.wait()
            slow.cancel()
            await server.left.wait()
            assert (await connections.ask("GET", "/fast")).content == b"fine"
            await connections.close()

    asyncio.run(asked())
