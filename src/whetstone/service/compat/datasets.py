"""Prompts of datasets: problem files of the server, or rows of the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from whetstone.core.http.refusal import bad_request, json_response
from whetstone.core.problem import Problem
from whetstone.service.compat.schemas import (
    DatasetPrompt,
    GetPromptByIdRequest,
    GetPromptsRequest,
)
from whetstone.service.endpoint_app import EndpointCall, HttpEndpoint


class _Row(msgspec.Struct, frozen=True):
    """A row of a request."""

    id: int | str = 0
    content: str = ""
    labels: dict[str, Any] = {}


async def get_prompts(call: EndpointCall) -> Response:
    """Serve POST /get_prompts."""
    return json_response(await _prompts(call))


async def get_prompt_by_id(call: EndpointCall) -> Response:
    """Serve POST /get_prompt_by_id."""
    asked = await call.message(GetPromptByIdRequest)
    given = asked.config.provided_data
    if given is not None:
        rows = _rows(given if isinstance(given, list) else [given])
        found = next((row for row in rows if str(row.id) == str(asked.id)), None)
        if found is None:
            raise bad_request(f"no row of config.provided_data has the id {asked.id!r}")
        return json_response(found)
    return json_response(_prompt(call.service.datasets.problem(asked.dataset, asked.id)))


async def _prompts(call: EndpointCall) -> list[DatasetPrompt]:
    asked = await call.message(GetPromptsRequest)
    given = asked.config.provided_data
    if given is not None:
        if not isinstance(given, list):
            raise bad_request("config.provided_data must be a list of rows here")
        prompts = _rows(given)
    else:
        prompts = [_prompt(problem) for problem in call.service.datasets.problems(asked.dataset)]
    return prompts[asked.offset : asked.offset + asked.limit]


def _rows(rows: Sequence[Mapping[str, Any]]) -> list[DatasetPrompt]:
    try:
        found = msgspec.convert(rows, list[_Row])
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise bad_request(f"config.provided_data: {error}") from None
    return [DatasetPrompt(row.id, row.content, row.labels) for row in found]


def _prompt(problem: Problem) -> DatasetPrompt:
    return DatasetPrompt(
        problem.id, problem.statement, {"language": problem.language, "source": problem.source}
    )


ENDPOINTS = (
    HttpEndpoint(
        *(
            "POST",
            "/get_prompts",
            get_prompts,
            "Prompts of a dataset.",
            GetPromptsRequest,
            list[DatasetPrompt],
        ),
        invalid_status=422,
    ),
    HttpEndpoint(
        *(
            "POST",
            "/get_prompt_by_id",
            get_prompt_by_id,
            "One prompt of a dataset.",
            GetPromptByIdRequest,
            DatasetPrompt,
        ),
        refuses=(404,),
        invalid_status=422,
    ),
)
