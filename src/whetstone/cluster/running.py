"""A whole cluster started, added to, and stopped."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from whetstone.cluster.hosts import Host
from whetstone.cluster.reach import Way
from whetstone.cluster.words import Answer, Ask
from whetstone.errors import UserError

DEFAULT_PORT = 6379
_AT_ONCE = 32


class RayCluster:
    """The cluster of some hosts, the first of which is the head."""

    def __init__(
        self,
        hosts: Sequence[Host],
        way: Way,
        *,
        port: int = DEFAULT_PORT,
        cpus: int | None = None,
        object_store_mb: int | None = None,
    ) -> None:
        """``port``: where the head listens. ``cpus``, ``object_store_mb``: of each node that is started."""
        self._hosts, self._way = hosts, way
        self._head = hosts[0]
        self._common = Ask(
            action="look",
            cluster=f"{self._head.name}:{port}",
            host="",
            port=port,
            cpus=cpus,
            object_store_mb=object_store_mb,
        )

    def start(self) -> str:
        """Start the head, then all others; the head's address. Raises UserError."""
        found = self._looked()
        if running := [host.name for host in self._hosts if found[host.name].pids]:
            raise UserError(
                f"this cluster runs already on {', '.join(running)}; `whetstone cluster join` starts the "
                "hosts that are missing, `whetstone cluster stop` ends it"
            )
        if found[self._head.name].taken:
            raise UserError(
                f"{self._head.name}: port {self._common.port} is in use there, maybe by another Ray cluster; "
                "give --port N, or end what listens there"
            )
        token = secrets.token_hex(32)
        head = self._way.ask(self._head, self._asked("start", self._head, token=token))
        if head.wrong:
            raise UserError(f"{self._head.name}: {head.wrong}")
        self._join(self._hosts[1:], self._address(head), token)
        return head.address

    def join(self) -> list[str]:
        """Start the hosts that have no node yet; their names. Raises UserError."""
        found = self._looked()
        head = found[self._head.name]
        if not head.pids:
            raise UserError(
                f"{self._head.name}: the head does not run, so there is nothing to join; start the cluster "
                "with `whetstone cluster start`"
            )
        missing = [host for host in self._hosts if not found[host.name].pids]
        self._join(missing, self._address(head), head.token)
        return [host.name for host in missing]

    def stop(self) -> dict[str, int]:
        """End what was started, the head last: how many processes of each host. Raises UserError."""
        others = self._on_all(self._hosts[1:], lambda host: self._asked("stop", host))
        head = self._on_all([self._head], lambda host: self._asked("stop", host))
        stopped = {**head, **others}
        wrong = [str(said) for said in stopped.values() if isinstance(said, UserError)]
        wrong += [
            f"{name}: {said.wrong}"
            for name, said in stopped.items()
            if isinstance(said, Answer) and said.wrong
        ]
        if wrong:
            raise UserError("not everything is stopped: " + "; ".join(wrong))
        return {name: said.stopped for name, said in stopped.items() if isinstance(said, Answer)}

    def _looked(self) -> dict[str, Answer]:
        """What every host says of itself. Raises UserError where one cannot be part of this cluster."""
        said = self._on_all(self._hosts, lambda host: self._asked("look", host))
        wrong = [str(each) for each in said.values() if isinstance(each, UserError)]
        found = {name: each for name, each in said.items() if isinstance(each, Answer)}
        wrong += [f"{name}: {why}" for name, each in found.items() if (why := self._differs(each, found))]
        if wrong:
            raise UserError("nothing was started: " + "; ".join(wrong))
        return found

    def _differs(self, host: Answer, found: dict[str, Answer]) -> str:
        """Why a host cannot be part of the head's cluster."""
        install = f"on it run: {self._way.python} -m pip install"
        if not host.ray:
            return f"Ray is not installed there; {install} 'whetstone-rl[ray]'"
        head = found.get(self._head.name, host)
        if host.python != head.python:
            return (
                f"it has Python {host.python}, the head {head.python}; give --python a path to the same one"
            )
        if host.ray != head.ray:
            return f"it has ray {host.ray}, the head {head.ray}; {install} ray=={head.ray}"
        if host.whetstone != head.whetstone:
            return f"it has Whetstone {host.whetstone}, the head {head.whetstone}; install the same on both"
        return ""

    def _join(self, hosts: Sequence[Host], address: str, token: str) -> None:
        said = self._on_all(hosts, lambda host: self._asked("start", host, address, token))
        wrong = [str(each) for each in said.values() if isinstance(each, UserError)]
        wrong += [
            f"{name}: {each.wrong}" for name, each in said.items() if isinstance(each, Answer) and each.wrong
        ]
        if wrong:
            raise UserError(
                f"{'; '.join(wrong)}; the other hosts run: mend this, then `whetstone cluster join`, or end "
                "them with `whetstone cluster stop`"
            )

    def _address(self, head: Answer) -> str:
        """What the others join: the head as the file names it, unless that means another machine there."""
        return head.address if self._head.is_here else f"{self._head.name}:{self._common.port}"

    def _asked(self, action: str, host: Host, address: str = "", token: str = "") -> Ask:
        fields = {"action": action, "host": host.name, "head": host == self._head}
        return msgspec.structs.replace(self._common, **fields, address=address, token=token)

    def _on_all(self, hosts: Sequence[Host], ask: Callable[[Host], Ask]) -> dict[str, Answer | UserError]:
        """What each host answers, or why it does not."""

        def one(host: Host) -> Answer | UserError:
            try:
                return self._way.ask(host, ask(host))
            except UserError as error:
                return error

        with ThreadPoolExecutor(min(_AT_ONCE, max(len(hosts), 1))) as threads:
            return dict(zip([host.name for host in hosts], threads.map(one, hosts), strict=True))
