"""Recipe options of engines that are servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field

from whetstone.core.errors import UserError
from whetstone.core.settings import Count, NonEmpty, Positive, Section
from whetstone.engine.remote.request_policy import RequestPolicy

# The name under which vLLM serves the model.
SERVED_NAME = "whetstone"
# Requests at once: servers queue what they cannot batch.
_CONCURRENCY = 256
_PROBE_S = 60.0


class ServedOptions(Section):
    """``engine.options`` of the kinds ``vllm`` and ``sglang``.

    python: the interpreter of an environment with the package; default: this one. It starts a server on
        loopback, with ``arguments`` appended and ``environment`` added to this process's. ``max_context`` is
        the most tokens of prompt and reply together; default: the model's maximum.
    arguments: words added to the command line of the server, such as ``[--enforce-eager]``.
    environment: variables added to those of the server's process.
    max_context: the most tokens of prompt and reply together; null is the model's maximum.
    tensor_parallel: devices of a server. Of several ranks, so many neighbours share one.
    url: the root address of a running server, instead of ``python``; for a single process. It must see
        ``folder`` under the same path; vLLM must know the model as ``whetstone`` (``--served-model-name``).
    folder: where weights are written for the server; default: this machine's memory.
    seeds: whether requests carry seeds, which costs vLLM some time for every token. A vLLM that is started
        here on a CPU gets none.
    start_s: the longest wait in seconds for the start; raise it for a large model on a slow disk.
    timeout_s: the longest wait in seconds for one reply; raise it for very long replies.
    silence_s: the longest wait in seconds without a byte of any answer.
    """

    url: NonEmpty | None = None
    python: NonEmpty | None = None
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict[str, str])
    tensor_parallel: Count = 1
    max_context: Count | None = None
    folder: NonEmpty | None = None
    seeds: bool = True
    start_s: Positive = 900.0
    timeout_s: Positive = 7200.0
    silence_s: Positive = 600.0

    def root(self) -> str | None:
        """Return the root address of the server at ``url``; None if the server is started here. Raises
        UserError."""
        if self.url is None:
            return None
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UserError(
                f"engine.options.url: {self.url}: expected an address such as http://127.0.0.1:8000"
            )
        return self.url.rstrip("/").removesuffix("/v1")

    def interpreter(self, package: str) -> str:
        """Return the path of ``python``. Raises UserError if it does not exist or lacks the package."""
        if self.python is None:
            if sys.executable and find_spec(package) is not None:
                return sys.executable
            raise UserError(
                f"this environment has no package `{package}`: engine `{package}` needs "
                f"`engine.options.python`, the interpreter of an environment with {package} in it, or "
                "`engine.options.url`, the address of a server"
            )
        found = shutil.which(str(Path(self.python).expanduser()))
        if found is None:
            raise UserError(f"engine.options.python: {self.python}: no such interpreter")
        asks = f"import sys, importlib.util as u; sys.exit(u.find_spec({package!r}) is None)"
        try:
            done = subprocess.run(
                [found, "-c", asks],
                env=os.environ | self.environment,
                capture_output=True,
                timeout=_PROBE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"engine.options.python: {self.python}: does not run: {error}") from None
        if done.returncode:
            raise UserError(
                f"engine.options.python: {self.python} has no package `{package}`; install it there, or give "
                "the interpreter of an environment that has it"
            )
        return found

    def computes_on_cpu(self, interpreter: str) -> bool:
        """Return whether the torch of an environment supports no accelerator."""
        asks = "import torch.version as v; print(any(getattr(v, n, None) for n in ('cuda', 'hip', 'xpu')))"
        done = subprocess.run(
            [interpreter, "-c", asks],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() == "False"

    def request_policy(self) -> RequestPolicy:
        """Return the limits of requests."""
        return RequestPolicy(
            concurrency=_CONCURRENCY,
            timeout_s=self.timeout_s,
            silence_s=self.silence_s,
            timeout_key="engine.options.timeout_s",
            silence_key="engine.options.silence_s",
        )
