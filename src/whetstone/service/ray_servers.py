"""One judge server on each node of a Ray cluster, and a client that spreads programs over them.

Ray places the servers and detects lost nodes. The client (``JudgeClient``) routes programs, and sends those
of a lost server to another one.

``NodeServer``, the server of one node, is the class of a Ray actor, but does not depend on Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import threading
import time
from concurrent.futures import CancelledError
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whetstone import __version__
from whetstone.core.closing import Closing
from whetstone.core.errors import UserError
from whetstone.core.http.server import listen, server
from whetstone.core.http.settings import Address
from whetstone.core.ray_driver import ActorLost, RayDriver, RayNode
from whetstone.judge import Judge
from whetstone.judge.workers.wire import pack, unpack
from whetstone.service.client import JudgeClient
from whetstone.service.messages import Info, NodeState
from whetstone.service.serve import build_app
from whetstone.service.server_discovery import ServerRequirements, look_up_servers
from whetstone.service.service import Service
from whetstone.service.settings import ServiceLimits
from whetstone.service.telemetry import Telemetry


class NodeServerSetup(Struct, frozen=True):
    """How to start a node's server.

    host: the address to listen on. token: the token that its clients must send. settings: the arguments of
    ``Judge`` other than ``workers``. version: the Whetstone version of the process that starts it.
    """

    host: str
    token: str
    workers: int
    settings: dict[str, Any]
    limits: ServiceLimits
    version: str = __version__


class NodeServer:
    """A judge and the HTTP server in front of it, in this process."""

    def __init__(self, setup: bytes) -> None:
        self._setup = unpack(setup, NodeServerSetup)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, str]:
        """Start judge and server. Return the server's URL, or an empty text and why they cannot start."""
        setup = self._setup
        # Another version may judge differently, and its messages may have another form.
        if setup.version != __version__:
            return "", f"it has Whetstone {__version__}, the server {setup.version}: install the same version"
        try:
            judge = await asyncio.to_thread(Judge, setup.workers, **setup.settings)
            listening = listen(Address(host=setup.host, port=0))
        except UserError as error:
            return "", str(error)
        # The server in front of the cluster writes the log.
        service = Service(judge, setup.workers, setup.limits, Telemetry(log=False))
        app = build_app(service, (setup.token,))
        self._serving = asyncio.create_task(server(app, service).serve([listening]))
        # A URL has an IPv6 address in brackets.
        host = f"[{setup.host}]" if ":" in setup.host else setup.host
        return f"http://{host}:{listening.getsockname()[1]}", ""

    async def wait(self) -> None:
        """Return when the server has ended."""
        if self._serving is not None:
            await asyncio.wait((self._serving,))


_POLL_S = 1.0
# A machine may be busy, and its cores may be reserved for other work.
_FIRST_SERVER_S = 180.0
_ANSWER_S = 30.0
_FIRST_REST_S, _LONGEST_REST_S = 1.0, 60.0
# A server that lived this long was healthy. If it is lost, the next one starts soon.
_STEADY_S = 60.0
_MOST_LOST = 100
# A server decodes a new problem for most requests, so a client in it would fill a large cache with copies.
_MOST_KEPT_BYTES = 64 << 20
_STARTING = "its server has not started yet; if this persists, other work holds its cores (ray status)"


class RayServers(Closing):
    """Keeps one judge server on each node. A context manager; ``judge`` is the client of all servers."""

    def __init__(self, address: str, workers: int, settings: dict[str, Any], limits: ServiceLimits) -> None:
        """Join the cluster at ``address``, and wait for the first server.

        workers: per node; 0 means one per CPU that Ray knows. settings: the other arguments of ``Judge``.

        Raises UserError if there is no such cluster or no node can judge.
        """
        if workers < 0:
            raise UserError(f"workers is {workers}; give 0 for one on each core, or a positive number")
        self._driver = RayDriver(address, "the server")
        self._workers, self._settings, self._limits = workers, settings, limits
        # Only this process uses the servers, so no one has to set their token.
        self._token = secrets.token_hex(32)
        self._requirements = ServerRequirements(settings.get("minimum_tier") or "restricted", "")
        self._states: dict[str, NodeState] = {}
        self._servers: dict[str, tuple[str, Info]] = {}
        """The servers that are ready: URL and description, by the id of the node."""
        self._first: Info | None = None
        self._judge: JudgeClient | None = None
        self._publish = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        self._thread = threading.Thread(target=self._loop.run_forever, name="ray-servers", daemon=True)
        self._thread.start()
        try:
            self.judge = self._first_client()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """The number of workers on nodes that are ready."""
        return sum(info.workers for info in self._ready().values())

    def states(self) -> list[NodeState]:
        """Return the states of all live nodes and of recently lost ones."""
        loads = self._judge.server_loads() if self._judge is not None else {}
        found = list[NodeState]()
        for id, state in list(self._states.items()):
            if (server := self._servers.get(id)) is not None:
                in_flight, judged = loads.get(server[0], (0, 0))
                state = replace(state, in_flight=in_flight, judged=judged)
            found.append(state)
        return found

    def close(self) -> None:
        """Stop all servers and leave the cluster. Pending judgements are cancelled."""
        self._watching.cancel()
        if self._judge is not None:
            self._judge.close()
        with contextlib.suppress(BaseException):
            self._watching.result()
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        # This ends the actors.
        self._driver.close()

    def _first_client(self) -> JudgeClient:
        """Wait for the first server. Raises UserError if no node can judge."""
        deadline = time.monotonic() + _FIRST_SERVER_S
        while not self._servers:
            states = self.states()
            failed = states and all(state.state == "left_out" for state in states)
            if failed or time.monotonic() > deadline or self._watching.done():
                reasons = "; ".join(f"{state.name}: {state.reason}" for state in states)
                no_cores = "no node has a CPU to judge on (ray status; --num-cpus of ray start)"
                raise UserError(f"no node of the cluster can judge: {reasons or no_cores}")
            time.sleep(0.05)
        with self._publish:
            self._judge = JudgeClient(
                list(self._ready()),
                token=self._token,
                minimum_tier=self._requirements.minimum_tier,
                most_kept_bytes=_MOST_KEPT_BYTES,
            )
        self._update_client()
        return self._judge

    def _ready(self) -> dict[str, Info]:
        """Return the descriptions of the servers that are ready, by their URLs."""
        return dict(list(self._servers.values()))

    def _update_client(self) -> None:
        # A closed client raises RuntimeError, and one that closes during the call cancels it.
        with self._publish, contextlib.suppress(RuntimeError, CancelledError):
            if self._judge is not None:
                self._judge.use_servers(self._ready())

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Start a server on each node that appears. Forget nodes that Ray considers dead."""
        keepers: dict[str, asyncio.Task[None]] = {}
        while True:
            # The head may not answer for a while. The servers go on, so the nodes stay as they are.
            with contextlib.suppress(ActorLost):
                nodes = {
                    node.id: node
                    for node in await asyncio.to_thread(self._driver.nodes)
                    if node.resources.get("CPU", 0) >= 1
                }
                for id in keepers.keys() - nodes.keys():
                    keepers.pop(id).cancel()
                    self._forget(id)
                for id in nodes.keys() - keepers.keys():
                    keepers[id] = asyncio.create_task(self._keep(nodes[id]))
            await asyncio.sleep(_POLL_S)

    def _forget(self, id: str) -> None:
        """Mark a node as lost. The oldest lost nodes are removed, so that a long-lived list stays short."""
        lost = self._states.pop(id)
        losses = lost.losses + (lost.state == "ready")
        self._states[id] = replace(lost, state="lost", losses=losses, reason="Ray considers the node dead")
        for old in [id for id, state in self._states.items() if state.state == "lost"][:-_MOST_LOST]:
            del self._states[old]

    async def _keep(self, node: RayNode) -> None:
        """Keep a server on the node. Each one that fails is replaced after a rest."""
        cpus = int(node.resources["CPU"])
        # Ray would never place an actor that needs more cores than the node has.
        workers = min(self._workers or cpus, cpus)
        state = NodeState(node.name, "starting", workers, reason=_STARTING)
        rest_s = _FIRST_REST_S
        while True:
            self._states[node.id] = state
            ready_at = math.inf
            actor = None
            try:
                actor = self._driver.start(NodeServer, self._setup(node, workers), node=node.id, cpus=workers)
                url, reason = await actor.call("start")
                if not url:
                    raise UserError(reason)
                info = await asyncio.to_thread(self._check, url)
                ready_at = time.monotonic()
                self._servers[node.id] = url, info
                await asyncio.to_thread(self._update_client)
                # Only now: a node that is called ready gets programs.
                self._states[node.id] = replace(state, state="ready", isolation=info.isolation, reason="")
                await actor.call("wait")
                reason = "its server ended"
            except ActorLost as error:
                reason = f"its server was lost: {error}"
            except Exception as error:
                # Mostly a UserError. No error may end this loop: the node would stay without a server.
                reason = str(error) or type(error).__name__
            finally:
                if actor is not None:
                    actor.end()
                if self._servers.pop(node.id, None) is not None:
                    # Also when this is cancelled: the client must not keep a server that is gone.
                    await asyncio.shield(asyncio.to_thread(self._update_client))
            if time.monotonic() - ready_at > _STEADY_S:
                rest_s = _FIRST_REST_S
            losses = state.losses + (ready_at < math.inf)
            state = replace(state, state="left_out", losses=losses, reason=reason)
            self._states[node.id] = state
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, _LONGEST_REST_S)

    def _setup(self, node: RayNode, workers: int) -> bytes:
        return pack(NodeServerSetup(node.address, self._token, workers, self._settings, self._limits))

    def _check(self, url: str) -> Info:
        """Return the description of a new server. Raises UserError if verdicts would depend on the server."""
        info = look_up_servers([url], self._token, self._requirements, _ANSWER_S)[url]
        # Verdicts must not depend on the node, so the first server sets the packages and languages.
        if self._first is None:
            self._first = info
        self._requirements.check(url, info, self._first.environment)
        if missing := set(self._first.languages) - set(info.languages):
            raise UserError(f"it lacks languages that the first node has: {', '.join(sorted(missing))}")
        return info
