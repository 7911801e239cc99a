"""The backend of vLLM's HTTP server (0.32): token ids in and out, pause and resume, new weights.

The paths outside ``/v1`` only exist with ``VLLM_SERVER_DEV_MODE=1``, so such a server belongs on loopback or
in a private network.
"""

from __future__ import annotations

import base64
import io
import logging
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

# The arguments of a server that returns the support of each token, which needs vLLM's model runner V2.
SUPPORTS = ("--return-sampling-mask", "--enable-scale-out")

# The likeliest tokens among which a test of the temperature compares.
_BEST_OF = 16

# The extension of its workers (``vllm_worker.py``), after the name of its module.
EXTENSION = ".WeightWriter"

_LOG = logging.getLogger(__name__)
_SERVER = (
    "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model FOLDER "
    "--logprobs-mode processed_logprobs"
)
# The argument with which it returns the experts of each reply.
RETURN_ROUTING = "--enable-return-routed-experts"
# Every other reason is an end caused by the server: a pause or a shutdown.
_ENDS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class Vllm:
    """See ServerBackend.

    model: the model's name on the server. routing: whether it was started to return the experts of each reply
    (read in the sources of 0.32, run against a stand-in only). vocabulary: the number of token ids, if it
    must return the supports of truncated replies. It then accepts no request that truncates nothing.
    """

    name = "vllm"

    def __init__(self, model: str, *, routing: bool = False, vocabulary: int | None = None) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self.routing = routing
        self.supports = vocabulary is not None
        self._has_extension = False
        self._found_weights = False

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
        config = await self._config(server)
        if self.supports and not _value(config, "model_config", "return_sampling_mask"):
            raise UserError(
                "the server does not return which tokens top-p and top-k leave, over which the trainer's "
                f"log-probs are; start it with `{' '.join(SUPPORTS)}`, or set `sampling.top_p` to 1 and "
                "`sampling.top_k` to 0"
            )
        self._has_extension = _nested(config, "parallel_config", "worker_extension_cls").endswith(EXTENSION)
        dtype = _nested(config, "model_config", "dtype").removeprefix("torch.")
        return ServerFacts(context if isinstance(context, int) else None, dtype or None)

    def check(self, params: Sampling) -> None:
        """See ServerBackend. The whole vocabulary as the support of every token would fill the memory."""
        if self.supports and params.temperature and not params.truncates:
            raise UserError(
                "the run's vLLM returns the support of every token, since `sampling` has top-p or top-k, and "
                "these replies have neither: set their `top_p` or `top_k` too, or "
                "`evaluation.process: separate`"
            )

    def path(self, params: Sampling) -> str:
        """See ServerBackend."""
        return "inference/v1/generate" if self.supports else "v1/completions"

    def request(
        self, prompt_ids: list[int], params: Sampling, max_tokens: int, seed: int | None
    ) -> dict[str, Any]:
        """See ServerBackend."""
        sampling: dict[str, Any] = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            # vLLM writes -1 for no limit.
            "top_k": params.top_k or -1,
            "max_tokens": max_tokens,
            "stop": list(params.stop),
            "include_stop_str_in_output": True,
            "seed": seed,
            "logprobs": 0,
            "skip_special_tokens": False,
        }
        if self.supports:
            # With supports it requires a temperature and a limit. The likeliest token alone is greedy.
            greedy = {"temperature": 1.0, "top_p": 1.0, "top_k": 1}
            sampling |= greedy if params.temperature == 0 else {"top_k": params.top_k or self._vocabulary}
            return {"model": self._model, "token_ids": prompt_ids, "sampling_params": sampling}
        # The prompt is token ids, which already have all special tokens.
        more = {"return_token_ids": True, "add_special_tokens": False}
        return {"model": self._model, "prompt": prompt_ids, **sampling, **more}

    def read_reply(self, answer: Any) -> Generation:
        """See ServerBackend."""
        choice = answer["choices"][0]
        token_ids = [int(i) for i in choice["token_ids"] or ()]
        found = choice["logprobs"] if token_ids else {}
        if self.supports:
            listed = [entry["logprob"] for entry in found.get("content", ())]
        else:
            listed = found.get("token_logprobs", ())
        logprobs = [float(p) for p in listed]
        supports = [sorted(map(int, ids)) for ids in choice["sampling_mask"] or ()] if self.supports else []
        if len(logprobs) != len(token_ids):
            raise ValueError(f"{len(token_ids)} tokens with {len(logprobs)} log-probs")
        if self.supports and not all(t in kept for t, kept in zip(token_ids, supports, strict=True)):
            raise ValueError("a token outside its support")
        routing = read_routing(choice["routed_experts"]) if self.routing and token_ids else None
        ended = _ENDS.get(choice["finish_reason"], "abort")
        return Generation(token_ids, logprobs, ended, routing=routing, supports=supports)

    async def pause(self, server: EndpointConnection) -> None:
        """See ServerBackend."""
        await server.post("pause?mode=abort&clear_cache=true", {}, lambda body: body)

    async def find_weights(self, server: EndpointConnection, folder: Path) -> None:
        """See ServerBackend. Where the workers do not find them, every update is a reload of the folder."""
        if not self._has_extension:
            return
        error = await self._call(server, "whetstone_open", folder=str(folder))
        self._found_weights = not error
        if error:
            _LOG.warning("vLLM cannot change its weights in place, and reloads them instead: %s", error)

    async def load(
        self, server: EndpointConnection, folder: Path, version: int, changes: Path | None
    ) -> None:
        """See ServerBackend."""
        if self._found_weights:
            error = await self._call(
                server, "whetstone_write", folder=str(folder), changes=str(changes or "")
            )
            if error:
                raise RequestFailed(error)
        else:
            body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            await server.post("collective_rpc", body, lambda body: body)
            await self.find_weights(server, folder)
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

    async def _call(self, server: EndpointConnection, method: str, **arguments: str) -> str:
        """Call a method of the workers' extension, and return the first error; empty if there is none."""
        body = {"method": method, "kwargs": arguments}
        results = await server.post("collective_rpc", body, lambda body: list[Any](body["results"]))
        return next((str(each["error"]) for each in results if each), "")

    async def _config(self, server: EndpointConnection) -> Any:
        """Return its configuration; None if it cannot be read."""
        try:
            return await server.get("server_info?config_format=json", lambda body: body["vllm_config"])
        except (RequestFailed, UserError):
            return None

    async def _returns_routing(self, server: EndpointConnection) -> bool:
        # A server with supports requires a limit.
        body = {"model": self._model, "prompt": [1], "top_k": _BEST_OF, "max_tokens": 1, "seed": 0}
        return await server.post(
            "v1/completions", body, lambda a: bool(a["choices"][0].get("routed_experts"))
        )

    async def _best(self, server: EndpointConnection, temperature: float) -> float:
        """Return the log-prob of the most likely token after an arbitrary one."""
        body = {
            "model": self._model,
            "prompt": [1],
            "temperature": temperature,
            # A server with supports requires a limit.
            "top_k": _BEST_OF,
            "max_tokens": 1,
            "logprobs": 1,
            "seed": 0,
        }
        tops = await server.post(
            "v1/completions", body, lambda a: a["choices"][0]["logprobs"]["top_logprobs"][0]
        )
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


def _value(config: Any, section: str, key: str) -> Any:
    """Return a value of a configuration; None if there is none."""
    return config.get(section, {}).get(key) if isinstance(config, dict) else None


def _nested(config: Any, section: str, key: str) -> str:
    """Return a text of a configuration; empty if there is none."""
    value = _value(config, section, key)
    return value if isinstance(value, str) else ""
