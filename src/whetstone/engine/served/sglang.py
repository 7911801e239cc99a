"""The backend of SGLang's HTTP server, by its documentation of 0.5: token ids in and out, pause, weights from
a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from whetstone.core.sample import FinishReason
from whetstone.core.settings import Sampling
from whetstone.engine.remote.connection import EndpointConnection
from whetstone.engine.served.backend import Generation, ServerFacts

_ENDS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
# SGLang's names of compute types. ``auto`` is unknown.
_DTYPES = {
    "bfloat16": "bfloat16",
    "half": "float16",
    "float16": "float16",
    "float": "float32",
    "float32": "float32",
}


class SGLang:
    """See ServerBackend. Its log-probs follow the temperature, and are taken before top-p and top-k."""

    name = "sglang"
    routing = False
    supports = False

    async def probe(self, server: EndpointConnection) -> ServerFacts:
        """See ServerBackend."""
        info = await server.get("get_server_info", dict[str, Any])
        context = info.get("context_length") or info.get("max_req_input_len")
        dtype = _DTYPES.get(str(info.get("dtype")))
        return ServerFacts(context if isinstance(context, int) else None, dtype)

    def check(self, params: Sampling) -> None:
        """See ServerBackend. It accepts all."""

    def path(self, params: Sampling) -> str:
        """See ServerBackend."""
        return "generate"

    def request(
        self, prompt_ids: list[int], params: Sampling, max_tokens: int, seed: int | None
    ) -> dict[str, Any]:
        """See ServerBackend."""
        sampling: dict[str, Any] = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k or -1,
            "max_new_tokens": max_tokens,
            "stop": list(params.stop),
            "no_stop_trim": True,
            "skip_special_tokens": False,
        }
        if seed is not None:
            sampling["sampling_seed"] = seed
        return {"input_ids": prompt_ids, "sampling_params": sampling, "return_logprob": True}

    def read_reply(self, answer: Any) -> Generation:
        """See ServerBackend. Each of ``output_token_logprobs`` is [log-prob, token id, text or null]."""
        meta = answer["meta_info"]
        tokens = meta["output_token_logprobs"]
        ends = _ENDS.get(meta["finish_reason"]["type"], "abort")
        return Generation([int(one[1]) for one in tokens], [float(one[0]) for one in tokens], ends)

    async def pause(self, server: EndpointConnection) -> None:
        """See ServerBackend."""
        await server.post("pause_generation", {"mode": "abort"}, lambda body: body)

    async def find_weights(self, server: EndpointConnection, folder: Path) -> None:
        """See ServerBackend. Every update is a reload of the folder."""

    async def load(
        self, server: EndpointConnection, folder: Path, version: int, changes: Path | None
    ) -> None:
        """See ServerBackend."""
        body = {"model_path": str(folder), "flush_cache": True, "weight_version": str(version)}

        def succeeded(answer: Any) -> None:
            if not answer["success"]:
                raise ValueError(answer["message"])

        await server.post("update_weights_from_disk", body, succeeded)

    async def sleep(self, server: EndpointConnection) -> None:
        """See ServerBackend."""
        await server.post("release_memory_occupation", {"tags": ["kv_cache", "weights"]}, lambda body: body)

    async def wake(self, server: EndpointConnection, part: Literal["weights", "kv_cache"]) -> None:
        """See ServerBackend."""
        await server.post("resume_memory_occupation", {"tags": [part]}, lambda body: body)

    async def resume(self, server: EndpointConnection) -> None:
        """See ServerBackend."""
        await server.post("continue_generation", {}, lambda body: body)
