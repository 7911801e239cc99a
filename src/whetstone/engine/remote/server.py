"""An OpenAI-compatible endpoint: its address, and the properties that it reports."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct

from whetstone.core.addresses import may_use_proxy
from whetstone.core.errors import UserError, did_you_mean

KEY_VARIABLES = ("WHETSTONE_API_KEY", "OPENAI_API_KEY")
# Servers, by the reported owner of their models, that continue a reply begun in the request, and accept
# sampling settings beyond the standard ones.
CONTINUES_REPLIES = frozenset({"vllm", "sglang"})

_PROBE_S = 30.0


class RemoteServer(Struct, frozen=True):
    """An endpoint that answers. ``url`` ends in ``/v1`` or similar; ``model`` is the model name for requests.

    ``owner``, ``root`` (the weights), ``context`` (tokens) and ``version`` are as reported, None if the
    endpoint does not report them.
    """

    url: str
    model: str
    owner: str | None = None
    root: str | None = None
    context: int | None = None
    version: str | None = None

    @property
    def continues_replies(self) -> bool:
        """Whether a request can contain the start of the reply, and vLLM's sampling settings."""
        return self.owner in CONTINUES_REPLIES


def base_url(url: str) -> str:
    """Return the base address of requests; ``/v1`` is added to an address without a path.

    Raises UserError for an address that is not http(s).
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UserError(f"{url}: expected an address such as http://127.0.0.1:8000/v1")
    return url.rstrip("/") + ("/v1" if parts.path in {"", "/"} else "")


def headers() -> dict[str, str]:
    """Return the authorization header from the environment (``KEY_VARIABLES``, in that order), if set."""
    key = next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    return {"Authorization": f"Bearer {key}"} if key else {}


def probe_server(url: str, model: str | None) -> RemoteServer:
    """Query the endpoint for its models and version.

    Without ``model`` it must serve exactly one. Raises UserError if it cannot be reached, refuses the key, or
    the model is ambiguous.
    """
    base = base_url(url)
    proxy = may_use_proxy(base)
    with httpx2.Client(headers=headers(), timeout=_PROBE_S, follow_redirects=True, trust_env=proxy) as client:
        listed = {str(entry.get("id")): entry for entry in _models(client, base)}
        if model is None and len(listed) != 1:
            known = f" (it serves {', '.join(sorted(listed)[:20])})" if listed else ""
            raise UserError(f"--model is missing: the name of the model to ask {base} for{known}")
        name = model or next(iter(listed))
        # An empty list means that the endpoint does not report its models.
        if listed and name not in listed:
            known = ", ".join(sorted(listed)[:20])
            raise UserError(f"{base} does not serve `{name}`{did_you_mean(name, listed)} (it serves {known})")
        entry = listed.get(name, {})
        return RemoteServer(
            url=base,
            model=name,
            owner=_text(entry.get("owned_by")),
            root=_text(entry.get("root")),
            context=entry["max_model_len"] if isinstance(entry.get("max_model_len"), int) else None,
            version=_version(client, base),
        )


def _models(client: httpx2.Client, base: str) -> list[dict[str, Any]]:
    """Return the entries of ``GET /models``; empty if the endpoint has no such list."""
    try:
        answer = client.get(f"{base}/models")
    except httpx2.HTTPError as error:
        raise UserError(
            f"{base} cannot be reached ({str(error) or type(error).__name__}); is the server running?"
        ) from None
    if answer.status_code in {401, 403}:
        raise UserError(f"{base} refuses the key ({answer.status_code}); set {' or '.join(KEY_VARIABLES)}")
    body = _json(answer)
    entries = body.get("data") if isinstance(body, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _version(client: httpx2.Client, base: str) -> str | None:
    """Return vLLM's answer at ``/version``, next to ``/v1``; None if there is none."""
    try:
        body = _json(client.get(f"{base.removesuffix('/v1')}/version"))
    except httpx2.HTTPError:
        return None
    return _text(body.get("version")) if isinstance(body, dict) else None


def _json(answer: httpx2.Response) -> Any:
    try:
        return answer.json() if answer.is_success else None
    except ValueError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
