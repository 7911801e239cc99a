"""The dataset endpoints: problem files that the server was started with, and rows that requests bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from whetstone.judge_service.calls import Call, Endpoint
from whetstone.judge_service.compat.schemas import (
    GetPromptByIdRequest,
    GetPromptsRequest,
    MetricsFunction,
    MetricsRequest,
    Prompt,
)
from whetstone.judge_service.refusal import bad_request, json_response
from whetstone.problem import Problem

_OF_REQUESTS = "code_contests"
"""What SandboxFusion calls the set whose problems have standard input and output."""


class _Row(msgspec.Struct, frozen=True):
    """A row as a request brings it."""

    id: int | str = 0
    content: str = ""
    labels: dict[str, Any] = {}


async def list_datasets(call: Call) -> Response:
    """GET /list_datasets: the sets of this server, and the one whose rows come with a request."""
    return json_response(sorted({*call.service.datasets.names(), _OF_REQUESTS}))


async def list_ids(call: Call) -> Response:
    """POST /list_ids."""
    prompts = await _prompts(call)
    return json_response([prompt.id for prompt in prompts])


async def get_prompts(call: Call) -> Response:
    """POST /get_prompts."""
    return json_response(await _prompts(call))


async def get_prompt_by_id(call: Call) -> Response:
    """POST /get_prompt_by_id."""
    asked = await call.message(GetPromptByIdRequest)
    given = asked.config.provided_data
    if given is not None:
        rows = _rows(given if isinstance(given, list) else [given])
        found = next((row for row in rows if str(row.id) == str(asked.id)), None)
        if found is None:
            raise bad_request(f"no row of config.provided_data has the id {asked.id!r}")
        return json_response(found)
    return json_response(_prompt(call.service.datasets.problem(asked.dataset, asked.id)))


async def get_metrics(call: Call) -> Response:
    """POST /get_metrics: nothing beyond what each result says."""
    await call.message(MetricsRequest)
    return json_response({})


async def get_metrics_function(call: Call) -> Response:
    """POST /get_metrics_function."""
    await call.message(MetricsRequest)
    return json_response(MetricsFunction())


async def _prompts(call: Call) -> list[Prompt]:
    asked = await call.message(GetPromptsRequest)
    given = asked.config.provided_data
    if given is not None:
        if not isinstance(given, list):
            raise bad_request("config.provided_data must be a list of rows here")
        prompts = _rows(given)
    else:
        prompts = [_prompt(problem) for problem in call.service.datasets.problems(asked.dataset)]
    return prompts[asked.offset : asked.offset + asked.limit]


def _rows(rows: Sequence[Mapping[str, Any]]) -> list[Prompt]:
    try:
        found = msgspec.convert(rows, list[_Row])
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise bad_request(f"config.provided_data: {error}") from None
    return [Prompt(row.id, row.content, row.labels) for row in found]


def _prompt(problem: Problem) -> Prompt:
    return Prompt(problem.id, problem.statement, {"language": problem.language, "source": problem.source})


_LISTED = "The ids of a dataset."
ENDPOINTS = (
    Endpoint("GET", "/list_datasets", list_datasets, "The datasets served here.", None, list[str]),
    Endpoint(
        *("POST", "/list_ids", list_ids, _LISTED, GetPromptsRequest, list[int | str]),
        invalid_status=422,
    ),
    Endpoint(
        *("POST", "/get_prompts", get_prompts, "Its prompts.", GetPromptsRequest, list[Prompt]),
        invalid_status=422,
    ),
    Endpoint(
        *("POST", "/get_prompt_by_id", get_prompt_by_id, "One of them.", GetPromptByIdRequest, Prompt),
        refuses=(404,),
        invalid_status=422,
    ),
    Endpoint(
        *("POST", "/get_metrics", get_metrics, "Always empty.", MetricsRequest, dict[str, Any]),
        invalid_status=422,
    ),
    Endpoint(
        *("POST", "/get_metrics_function", get_metrics_function, "Always null."),
        *(MetricsRequest, MetricsFunction),
        invalid_status=422,
    ),
)
