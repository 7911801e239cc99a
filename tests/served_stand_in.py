"""A server that speaks as vLLM 0.32 and SGLang 0.5 do, and checks every field that it is asked with.

Its model is one number, ``step``, read from the first weight of a model folder: after token t comes
(t + step) % VOCABULARY. It writes nothing beyond ``hold`` tokens of a request until it is paused, so that a
test decides where an update falls.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import math
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import torch
from safetensors import safe_open

VOCABULARY = 256
PARTS = {"weights", "kv_cache"}
LOST = 77
"""What the weights are after sleeping, before new ones come."""
MODEL = "whetstone"

VLLM_BODY = {
    "model": str, "prompt": list, "temperature": float, "top_p": float, "top_k": int, "max_tokens": int,
    "stop": list, "include_stop_str_in_output": bool, "seed": (int, type(None)), "logprobs": int,
    "return_token_ids": bool, "add_special_tokens": bool, "skip_special_tokens": bool,
}  # fmt: skip
GENERATE_SAMPLING = {
    "temperature": float, "top_p": float, "top_k": int, "max_tokens": int, "stop": list,
    "include_stop_str_in_output": bool, "seed": (int, type(None)), "logprobs": int,
    "skip_special_tokens": bool,
}  # fmt: skip
SGLANG_SAMPLING = {
    "temperature": float, "top_p": float, "top_k": int, "max_new_tokens": int, "stop": list,
    "no_stop_trim": bool, "skip_special_tokens": bool, "sampling_seed": int,
}  # fmt: skip


def step_of(folder: str | Path) -> int:
    """The number that a model folder holds."""
    with safe_open(Path(folder) / "model.safetensors", framework="pt") as tensors:
        return round(float(tensors.get_tensor("model.embed_tokens.weight").flatten()[0]))


def changed_step(file: str, step: int) -> int:
    """The number after the changes of a file."""
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118
            if name == "positions:model.embed_tokens.weight":
                at = tensors.get_tensor(name).tolist()
                new = tensors.get_tensor("values:model.embed_tokens.weight")
                return round(float(new.view(torch.float32)[0])) if at[0] == 0 else step
    return step


def text_of(token_ids: list[int]) -> str:
    """Visible ASCII in the order of the tests' tokenizer: token 0 is ``!``."""
    return "".join(chr(33 + i) if i < 94 else "?" for i in token_ids)


class StandIn:
    """What the server knows and what a test sees of it."""

    def __init__(self, kind: str, step: int = 1) -> None:
        self.kind = kind
        self.step = step
        self.dtype: str | None = None
        """What it says that it computes in; None: it does not say."""
        self.hold: int | None = None
        self.extension = ""
        """The class that extends its workers; it then takes new weights in place."""
        self.finds_weights = True
        self.supports = False
        """Whether it returns the support of each token: the token and the next one."""
        self.tempered = True
        self.dev_mode = True
        self.refuses_weights = False
        self.sleeps = True
        self.routes = False
        """Whether it says which experts read each token: in two layers, (token, layer), as two bytes."""
        self.asleep: set[str] = set()
        self.down = False
        self.url = ""
        self.faults: list[str] = []
        self.seeds: list[str] = []
        self.log: list[str] = []
        self.writing = 0
        self.changed = threading.Condition()
        self._paused = False
        self._pauses = 0
        self._opened = False

    def get(self, path: str) -> tuple[int, Any]:
        """Answer a question."""
        if path == "/health":
            return 200, None
        if self.kind == "sglang" and path == "/get_server_info":
            return 200, {"context_length": 200, "dtype": self.dtype or "auto"}
        if self.kind == "vllm" and path == "/server_info" and self.dtype is not None:
            config = {
                "model_config": {
                    "model": "x",
                    "dtype": f"torch.{self.dtype}",
                    "return_sampling_mask": self.supports,
                },
                "parallel_config": {"worker_extension_cls": self.extension},
            }
            return 200, {"vllm_config": config, "vllm_env": {}, "system_env": {}}
        if path == "/v1/models":
            return 200, {"data": [{"id": MODEL, "max_model_len": 200}]}
        if path == "/is_paused" and self.dev_mode:
            return 200, {"is_paused": self._paused}
        return 404, {"error": "no such path"}

    def post(self, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> tuple[int, Any]:
        """Do what is asked."""
        if self.down:
            return 503, {"error": "down"}
        if path in {"/pause", "/pause_generation"}:
            mode = body.get("mode") if self.kind == "sglang" else query.get("mode", [""])[0]
            self._expect(mode == "abort", f"mode {mode}")
            with self.changed:
                self.log.append("pause")
                self._paused = True
                self._pauses += 1
                self.changed.notify_all()
            return 200, {}
        if path in {"/resume", "/continue_generation"}:
            with self.changed:
                self.log.append("resume")
                self._paused = False
                self.changed.notify_all()
            return 200, {}
        if path in {"/sleep", "/release_memory_occupation"}:
            deep = query.get("level") == ["2"] if self.kind == "vllm" else set(body["tags"]) == PARTS
            self._expect(deep, f"asleep by {query or body}")
            self._expect(self._paused and self.writing == 0, "put to sleep while replies were written")
            if not self.sleeps:
                return 400, {"error": "memory saver is not enabled"}
            self.asleep, self.step = set(PARTS), LOST
            self.log.append("sleep")
            return 200, {}
        if path in {"/wake_up", "/resume_memory_occupation"}:
            parts = query["tags"] if self.kind == "vllm" else body["tags"]
            self.asleep -= set(parts)
            self.log.append(f"wake {' '.join(parts)}")
            return 200, {}
        if path == "/collective_rpc":
            method, kwargs = body["method"], body["kwargs"]
            if method == "whetstone_open" and self.extension:
                self._expect(step_of(kwargs["folder"]) == self.step, "other weights than in the folder")
                self._opened = self.finds_weights
                self.log.append("open")
                return 200, {"results": [{} if self.finds_weights else {"error": "packed"}]}
            if method == "whetstone_write" and self.extension:
                self._expect(self._opened, "weights came before their places were found")
                return self._write_weights(**kwargs)
            self._expect(method == "reload_weights", f"method {method}")
            return self._reload(kwargs["weights_path"])
        if path == "/update_weights_from_disk":
            self._expect(set(body) == {"model_path", "flush_cache", "weight_version"}, f"fields {set(body)}")
            return self._reload(body["model_path"])
        if path == "/reset_prefix_cache":
            self.log.append("forget")
            return 200, None
        return self._complete(path, body)

    def _load(self, folder: str) -> tuple[int, Any]:
        self._expect(self._paused, "weights came while replies were written")
        self._expect(self.writing == 0, "weights came before the last reply had ended")
        self._expect("weights" not in self.asleep, "weights came where there was no memory for them")
        if self.refuses_weights:
            return 400, {"error": "weights of another model"}
        self.step = step_of(folder)
        return 200, {"success": True, "message": "", "results": [None]}

    def _reload(self, folder: str) -> tuple[int, Any]:
        answer = self._load(folder)
        if answer[0] == 200:
            self.log.append(f"load {self.step}")
        return answer

    def _write_weights(self, folder: str, changes: str) -> tuple[int, Any]:
        step = step_of(folder)
        if changes:
            # The server has the rest of the weights, so the changes lead to the same.
            self._expect(self.step != LOST, "changes of weights that it has lost")
            self._expect(changed_step(changes, self.step) == step, "changes that do not lead to the folder's")
        status, answer = self._load(folder)
        if status != 200:
            return 200, {"results": [{"error": answer["error"]}]}
        self.log.append(f"{'change' if changes else 'write'} {self.step}")
        return 200, {"results": [{}]}

    def _complete(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/completions" and self.kind == "vllm":
            if set(body) == {"model", "prompt", "top_k", "max_tokens", "seed"}:
                return 200, {"choices": [{"routed_experts": self._experts([1])}]}
            if body["prompt"] == [1] and body["logprobs"] == 1:
                value = -2.0 * (body["temperature"] if self.tempered else 1.0)
                return 200, {"choices": [{"logprobs": {"top_logprobs": [{"a": value, "b": -9.0}]}}]}
            self._check(body, VLLM_BODY)
            self.seeds.append(str(body["seed"]))
            ids, most, stop = body["prompt"], body["max_tokens"], body["stop"]
            tokens, logprobs, ended = self._write(ids, most, stop, body["temperature"])
            return 200, {
                "choices": [
                    {"index": 0, "text": "", "token_ids": tokens, "finish_reason": ended,
                     "logprobs": {"token_logprobs": logprobs, "tokens": [str(t) for t in tokens]},
                     "routed_experts": self._experts([*ids, *tokens][:-1])}
                ],
                "usage": {},
            }  # fmt: skip
        if path == "/inference/v1/generate" and self.supports:
            self._expect(set(body) == {"model", "token_ids", "sampling_params"}, f"fields {set(body)}")
            sampling = body["sampling_params"]
            self._check(sampling, GENERATE_SAMPLING)
            # As vLLM does, which would otherwise return the whole vocabulary for each token.
            self._expect(sampling["top_k"] > 0 and sampling["temperature"] > 0, f"no limit in {sampling}")
            tokens, logprobs, ended = self._write(
                body["token_ids"], sampling["max_tokens"], sampling["stop"], sampling["temperature"]
            )
            content = [{"token_id": t, "logprob": p} for t, p in zip(tokens, logprobs, strict=True)]
            masks = [[(t + 1) % VOCABULARY, t] for t in tokens]
            routed = self._experts([*body["token_ids"], *tokens][:-1])
            choice = {"index": 0, "token_ids": tokens, "finish_reason": ended, "sampling_mask": masks,
                      "routed_experts": routed}  # fmt: skip
            return 200, {"choices": [{**choice, "logprobs": {"content": content}}]}
        if path == "/generate" and self.kind == "sglang":
            self._expect(
                set(body) == {"input_ids", "sampling_params", "return_logprob"}, f"fields {set(body)}"
            )
            sampling = body["sampling_params"]
            self._check(sampling, SGLANG_SAMPLING)
            tokens, logprobs, ended = self._write(
                body["input_ids"], sampling["max_new_tokens"], sampling["stop"], sampling["temperature"]
            )
            rows = [[p, t, None] for p, t in zip(logprobs, tokens, strict=True)]
            meta = {"output_token_logprobs": rows, "finish_reason": {"type": ended}}
            return 200, {"text": "", "output_ids": tokens, "meta_info": meta}
        return 404, {"error": f"no such path {path}"}

    def _experts(self, read: list[int]) -> str | None:
        if not self.routes:
            return None
        file = io.BytesIO()
        np.save(file, np.array([[[token, layer] for layer in (0, 1)] for token in read], np.uint16))
        return base64.b64encode(file.getvalue()).decode()

    def _write(
        self, prompt: list[int], most: int, stop: list[str], temperature: float
    ) -> tuple[list[int], list[float], str]:
        tokens: list[int] = []
        with self.changed:
            self.changed.wait_for(lambda: not self._paused)
            self._expect(not self.asleep, f"asked for a reply without {self.asleep}")
            pauses, last = self._pauses, prompt[-1]
            self.writing += 1
            self.log.append(f"prompt {len(prompt)}")
            try:
                while len(tokens) < most:
                    if self.hold is not None and len(tokens) >= self.hold:
                        self.changed.notify_all()
                        self.changed.wait_for(lambda: self._pauses > pauses or self.down)
                        break
                    last = (last + self.step) % VOCABULARY
                    tokens.append(last)
                    if any(word in text_of(tokens) for word in stop):
                        return tokens, [-temperature] * len(tokens), "stop"
                else:
                    return tokens, [-temperature] * len(tokens), "length"
            finally:
                self.writing -= 1
        return tokens, [-temperature] * len(tokens), "abort"

    def _check(self, body: dict[str, Any], fields: dict[str, Any]) -> None:
        self._expect(set(body) == set(fields), f"fields {sorted(set(body) ^ set(fields))}")
        for name, kind in fields.items():
            self._expect(isinstance(body.get(name), kind), f"{name} is {body.get(name)!r}")
        self._expect(math.isfinite(body["temperature"]), "temperature")

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)


@contextmanager
def listening(stand_in: StandIn, port: int = 0) -> Generator[StandIn]:
    """The stand-in on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply(*stand_in.get(urlsplit(self.path).path))

        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._reply(*stand_in.post(parts.path, parse_qs(parts.query), json.loads(data or b"{}")))

        def _reply(self, status: int, body: Any) -> None:
            data = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()


def package(folder: Path) -> dict[str, str]:
    """The environment in which ``python -m vllm.entrypoints.openai.api_server`` is the stand-in."""
    place = folder / "packages" / "vllm" / "entrypoints" / "openai"
    place.mkdir(parents=True)
    (place / "api_server.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from tests import served_stand_in\nserved_stand_in.main(sys.argv[1:])\n"
    )
    return {"PYTHONPATH": str(folder / "packages")}


def interpreter(folder: Path, *, on_a_cpu: bool) -> str:
    """An interpreter whose torch says that it computes on an accelerator, or on none."""
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && echo {not on_a_cpu} && exit\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


class _FileLog(list[str]):
    """A log that is also a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def append(self, line: str) -> None:
        with self._file.open("a") as opened:
            opened.write(line + "\n")
        super().append(line)


def main(arguments: list[str]) -> None:
    """Be a server of its own, started as vLLM's is. ``STAND_IN_LOG``: a folder for logs and faults."""
    routing, sampling = "--enable-return-routed-experts", {"--return-sampling-mask", "--enable-scale-out"}
    known = {"--enable-sleep-mode", routing, *sampling}
    switches = [a for a in arguments if a in known]
    rest = [a for a in arguments if a not in switches]
    said = dict(zip(rest[::2], rest[1::2], strict=True))
    server = StandIn("vllm", step_of(said["--model"]))
    server.extension = said["--worker-extension-cls"]
    module, _, name = server.extension.rpartition(".")
    # As vLLM does, from the path that the run gave it.
    getattr(importlib.import_module(module), name)
    server.sleeps = "--enable-sleep-mode" in switches
    server.routes = routing in switches
    server.supports = sampling <= set(switches)
    if folder := os.environ.get("STAND_IN_LOG"):
        server.log = _FileLog(Path(folder) / f"{said['--port']}.log")
        server.faults = _FileLog(Path(folder) / f"{said['--port']}.faults")
        server.seeds = _FileLog(Path(folder) / f"{said['--port']}.seeds")
        server.log.append(f"devices {os.environ.get('CUDA_VISIBLE_DEVICES')}")
        if "RANK" in os.environ or "MASTER_PORT" in os.environ:
            server.faults.append("a server that is told to be a rank of the run")
    # Without the argument vLLM computes in half precision, whatever the folder's config.json says.
    server.dtype = said.get("--dtype", "bfloat16")
    with listening(server, int(said["--port"])):
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
