"""The writer of the evaluated replies: a server, or a model in this process. Imports neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from whetstone.core.flag import Flag
from whetstone.engine.remote.request_policy import RequestPolicy


class EndpointSettings(RequestPolicy, frozen=True):
    """How replies are requested from an endpoint.

    body: fields added to every request, which override others. thinks: replies begin inside their thinking,
    without a ``<think>`` of their own.
    """

    TITLE: ClassVar[str] = "an endpoint instead of a model in this process"

    endpoint: Annotated[str, Flag("an OpenAI-compatible server, such as http://127.0.0.1:8000/v1", "URL")] = (
        ""
    )
    body: Annotated[
        Mapping[str, Any],
        Flag(
            'more fields of every request, such as \'{"chat_template_kwargs": {"enable_thinking": false}}\'; '
            'null leaves a field out, such as \'{"max_tokens": null, "max_completion_tokens": 8192}\'',
            "JSON",
        ),
    ] = {}
    thinks: Annotated[
        bool,
        Flag(
            "replies begin inside their thinking (the chat template opens it and no parser takes it out)",
            name="thinking",
        ),
    ] = False


class ModelWeights(Struct, frozen=True):
    """A model for the embedded engine: ``source`` is a folder, a .gguf file or a hub id.

    ``device`` is auto, cpu, cuda or cuda:N. ``threads`` is the number of torch's threads; 0 means one for
    each core. ``format`` and ``template_arguments`` are those of a recipe's ``model``, also for an endpoint.
    """

    TITLE: ClassVar[str] = "model"

    source: Annotated[
        str,
        Flag(
            "a model folder, a .gguf file or a hub id; with --endpoint, the name it serves",
            "MODEL",
            name="model",
        ),
    ] = ""
    revision: Annotated[str | None, Flag("branch, tag or commit of a hub id", "REV")] = None
    dtype: Annotated[
        str, Flag("bfloat16, float16, float32 or auto: bfloat16 where the device has it natively", "TYPE")
    ] = "auto"
    device: Annotated[str, Flag("auto, cpu, cuda, cuda:N", "NAME")] = "auto"
    threads: Annotated[int, Meta(ge=0), Flag("threads of torch; 0 (default): one for each core", "N")] = 0
    format: Annotated[
        str,
        Flag(
            "how the model writes thinking and tool calls, a name in docs/formats.md (default: the format of "
            "its chat template; of an endpoint: what the server reports)",
            "NAME",
        ),
    ] = ""
    template_arguments: Annotated[
        Mapping[str, Any],
        Flag("arguments of the model's chat template, such as '{\"enable_thinking\": false}'", "JSON"),
    ] = {}
