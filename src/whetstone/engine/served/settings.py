"""What a recipe can say of a server that generates."""

from __future__ import annotations

from pydantic import Field

from whetstone.engine.remote.connection import Manners
from whetstone.settings import Count, NonEmpty, Positive, Section


class ServedOptions(Section):
    """``engine.options`` of the kinds ``vllm`` and ``sglang``.

    python: the interpreter of an environment with the package, which starts a server on loopback, with
        ``arguments`` after ours and ``environment`` beside this process's own; ``max_context`` is the longest
        prompt and reply together, the model's own maximum unless given.
    url: the root address of a server that is there already, in place of ``python``. It sees ``folder`` under
        the same path; a vLLM knows the model as ``served_as``.
    folder: where weights are handed over; this machine's memory unless given.
    seeds: whether requests carry seeds, each of which costs vLLM a little time at every token.
    concurrency: requests at once. start_s, timeout_s, silence_s: the longest waits, in seconds, for its
        start, for one reply, and without a byte of any answer.
    """

    url: NonEmpty | None = None
    served_as: NonEmpty = "whetstone"
    python: NonEmpty | None = None
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict[str, str])
    max_context: Count | None = None
    folder: NonEmpty | None = None
    seeds: bool = True
    concurrency: Count = 256
    start_s: Positive = 900.0
    timeout_s: Positive = 7200.0
    silence_s: Positive = 600.0

    def manners(self) -> Manners:
        """How the server is asked."""
        return Manners(
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
            silence_s=self.silence_s,
            timeout_key="engine.options.timeout_s",
            silence_key="engine.options.silence_s",
        )
