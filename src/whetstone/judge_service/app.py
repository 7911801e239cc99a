"""The endpoints joined into one ASGI application."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from whetstone.errors import did_you_mean
from whetstone.judge_service import endpoints, health
from whetstone.judge_service.calls import Call, Endpoint, Served
from whetstone.judge_service.compat import datasets, evaluate, run_code
from whetstone.judge_service.door import Door
from whetstone.judge_service.openapi import openapi
from whetstone.judge_service.refusal import Refused, json_response
from whetstone.judge_service.service import Service

ENDPOINTS = (
    *(*health.ENDPOINTS, *endpoints.ENDPOINTS),
    *(*run_code.ENDPOINTS, *evaluate.ENDPOINTS, *datasets.ENDPOINTS),
)


def build_app(service: Service, tokens: tuple[str, ...] = ()) -> ASGIApp:
    """The application that serves ``service`` to those who have one of ``tokens`` (none: to everybody)."""
    page = openapi(ENDPOINTS)

    async def described(_: Call) -> Response:
        return json_response(page)

    everything = (*ENDPOINTS, Endpoint("GET", "/openapi.json", described, "This page."))
    return Door(_Routes(everything, service), service, tokens, frozenset({"/"}))


class _Routes:
    """Which endpoint a request is for. No path of ours has a variable part."""

    def __init__(self, served: tuple[Endpoint, ...], service: Service) -> None:
        self._paths: dict[str, dict[str, Served]] = {}
        for each in served:
            self._paths.setdefault(each.path, {})[each.method] = Served(each, service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Raises Refused where there is nothing."""
        path, method = scope["path"], scope["method"]
        methods = self._paths.get(path)
        if methods is None:
            hint = did_you_mean(path[:100], self._paths)
            raise Refused(
                404, "no_such_path", f"there is no {path[:100]}{hint}; /openapi.json says what there is"
            )
        if method not in methods:
            raise Refused(405, "method", f"{path} is asked by {' or '.join(methods)}, not {method[:20]}")
        await methods[method](scope, receive, send)
