"""The backend of vLLM's HTTP server (0.32): token ids in and out, pause and resume, weights from a folder.

The paths outside ``/v1`` only exist with ``VLLM_SERVER_DEV_MODE=1``, so such a server belongs on loopback or
in a private network.
"""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from whetstone.core.errors import UserError
from whetstone.core.sample import FinishReason, Routing
from whetstone.core.settings import Sampling
from whetstone.engine.remote.connection import EndpointConnection, RequestFailed
from whetstone.engine.served.backend import Generation, ServerFacts

# Environment variable that enables weight updates.
DEV_MODE = {"VLLM_SERVER_DEV_MODE": "1"}

_SERVER = (
    "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model FOLDER "
    "--logprobs-mode processed_logprobs"
)
# The argument with which it returns the experts of each reply.
RETURN_ROUTING = "--enable-return-routed-experts"
# Every other reason is an end caused by the server: a pause or a shutdown.
_ENDS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class Vllm:
    """See ServerBackend. ``model``: the model's name on the server. ``routing``: whether it was started to
    return the experts of each reply (read in the sources of 0.32, run against a stand-in only)."""

    name = "vllm"
    path = "v1/completions"
    full_logprobs = False

    def __init__(self, model: str, *, routing: bool = False) -> None:
        self._model = model
        self.routing = routing

    async def probe(self, server: EndpointConnection) -> ServerFacts:
        """Query the context, and check that log-probs follow the temperature.

        By default vLLM returns log-probs of temperature 1. The trainer would treat the difference as a change
        of the policy.
        """
        listed = await server.get("v1/models", lambda body: cast("list[dict[str, Any]]", body["data"]))
        entry = next((one for one in listed if one.get("id") == self._model), None)
        if entry is None:
            known = ", ".join(str(one.get("id")) for one in listed)
            raise UserError(f"the server does not serve `{self._model}`; it serves {known}")
        try:
            await server.get("is_paused", lambda body: body)
        except (RequestFailed, UserError):
            raise UserError(
                f"the server has no `/is_paused`, so it cannot load new weights; start it as {_SERVER}"
            ) from None
        if await self._best(server, 0.5) == await self._best(server, 1.0):
            raise UserError(f"the server's log-probs do not follow the temperature; start it as {_SERVER}")
        if self.routing and not await self._returns_routing(server):
            raise UserError(
                "the server does not return which experts processed a reply, which `trainer.routing_replay` "
                f"needs; start it as {_SERVER} {RETURN_ROUTING}"
            )
        context = entry.get("max_model_len")
        return ServerFacts(context if isinstance(context, int) else None, await self._dtype(server))

    def request(
        self, prompt_ids: list[int], params: Sampling, max_tokens: int, seed: int | None
    ) -> dict[str, Any]:
        """See ServerBackend."""
        return {
            "model": self._model,
            "prompt": prompt_ids,
            "temperature": params.temperature,
            "top_p": params.top_p,
            # vLLM writes -1 for no limit.
            "top_k": params.top_k or -1,
            "max_tokens": max_tokens,
            "stop": list(params.stop),
            "include_stop_str_in_output": True,
            "seed": seed,
            "logprobs": 0,
            "return_token_ids": True,
            # The prompt is token ids, which already have all special tokens.
            "add_special_tokens": False,
            "skip_special_tokens": False,
        }

    def read_reply(self, answer: Any) -> Generation:
        """See ServerBackend."""
        choice = answer["choices"][0]
        token_ids = [int(i) for i in choice["token_ids"] or ()]
        logprobs = [float(p) for p in choice["logprobs"]["token_logprobs"]] if token_ids else []
        if len(logprobs) != len(token_ids):
            raise ValueError(f"{len(token_ids)} tokens with {len(logprobs)} log-probs")
        routing = read_routing(choice["routed_experts"]) if self.routing and token_ids else None
        return Generation(token_ids, logprobs, _ENDS.get(choice["finish_reason"], "abort"), routing)

    async def pause(self, server: EndpointConnection) -> None:
        """See ServerBackend."""
        await server.post("pause?mode=abort&clear_cache=true", {}, lambda body: body)

    async def load(self, server: EndpointConnection, folder: Path, version: int) -> None:
        """See ServerBackend."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await server.post("collective_rpc", body, lambda body: body)
        # Cached keys and values are of the old weights.
        await server.post("reset_prefix_cache", {}, lambda body: body)

    async def sleep(self, server: EndpointConnection) -> None:
        """See ServerBackend. Level 2 copies nothing to the host, because new weights come from there."""
        await server.post("sleep?level=2&mode=abort", {}, lambda body: body)

    async def wake(self, server: EndpointConnection, part: Literal["weights", "kv_cache"]) -> None:
        """See ServerBackend."""
        await server.post(f"wake_up?tags={part}", {}, lambda body: body)

    async def resume(self, server: EndpointConnection) -> None:
        """See ServerBackend."""
        await server.post("resume", {}, lambda body: body)

    async def _dtype(self, server: EndpointConnection) -> str | None:
        """Return the compute type from the text of its configuration; None if it cannot be read."""
        try:
            text = await server.get("server_info?config_format=text", lambda body: str(body["vllm_config"]))
        except (RequestFailed, UserError):
            return None
        found = re.search(r"\bdtype=torch\.([a-z0-9]+)", text)
        return found.group(1) if found else None

    async def _returns_routing(self, server: EndpointConnection) -> bool:
        body = {"model": self._model, "prompt": [1], "max_tokens": 1, "seed": 0}
        return await server.post(self.path, body, lambda a: bool(a["choices"][0].get("routed_experts")))

    async def _best(self, server: EndpointConnection, temperature: float) -> float:
        """Return the log-prob of the most likely token after an arbitrary one."""
        body = {
            "model": self._model,
            "prompt": [1],
            "temperature": temperature,
            "max_tokens": 1,
            "logprobs": 1,
            "seed": 0,
        }
        tops = await server.post(self.path, body, lambda a: a["choices"][0]["logprobs"]["top_logprobs"][0])
        return max(float(value) for value in cast("dict[str, float]", tops).values())


def read_routing(encoded: str) -> Routing:
    """Return the experts in vLLM's ``routed_experts``: the base64 text of a ``.npy`` file with an array of
    [tokens, layers, k] whole numbers. Raises ValueError for anything else."""
    experts = np.load(io.BytesIO(base64.b64decode(encoded)), allow_pickle=False)
    if experts.ndim != 3 or experts.dtype.kind not in "ui":
        raise ValueError(f"experts of shape {experts.shape} and type {experts.dtype}")
    wide = experts.dtype.itemsize > 1
    data = experts.astype("<u2" if wide else "u1").tobytes()
    return Routing(experts.shape[1], experts.shape[2], wide, data)
