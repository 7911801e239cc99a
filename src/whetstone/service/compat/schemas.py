"""The messages of SandboxFusion and ScaleBox, as their clients send and read them.

Unknown fields are ignored, as by these servers. Additional fields are marked *ours*.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from whetstone.core.problem import MOST_MEMORY_MB

Seconds = Annotated[float, Meta(ge=0.001, le=3600)]
WholeMegabytes = Annotated[int, Meta(le=int(MOST_MEMORY_MB))]
Megabytes = Annotated[float, Meta(le=MOST_MEMORY_MB)]
Kibibytes = Annotated[float, Meta(le=1024 * MOST_MEMORY_MB)]
Status = Literal["Success", "Failed", "SandboxError"]


class RunCodeRequest(Struct, frozen=True):
    """POST /run_code. ``files`` and ``fetch_files`` must be empty."""

    code: str
    language: str
    stdin: str | None = None
    compile_timeout: Seconds = 10.0
    run_timeout: Seconds = 10.0
    memory_limit_MB: WholeMegabytes = -1
    files: dict[str, str | None] = {}
    fetch_files: list[str] = []


class CommandRunResult(Struct, frozen=True):
    """The result of a compiler or program. ``cpu_time`` (s) and ``peak_rss`` (bytes) are *ours*."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    cpu_time: float | None = None
    peak_rss: int | None = None


class RunCodeResponse(Struct, frozen=True):
    """The response of /run_code, and the result of a test in other responses."""

    status: Status
    message: str = ""
    compile_result: CommandRunResult | None = None
    run_result: CommandRunResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


class Extra(Struct, frozen=True):
    """``config.extra``."""

    run_all_cases: bool = False
    total_timeout: Seconds | None = None
    special_judge_program: str | None = None
    special_judge_language: str | None = None
    return_full_case: bool = False
    memory_limit_mb: Megabytes | None = None
    memory_limit_MB: Megabytes | None = None


class TestConfig(Struct, frozen=True):
    """``config`` of /common_evaluate_batch."""

    language: str | None = None
    compile_timeout: Seconds | None = None
    run_timeout: Seconds | None = None
    mem_limit: Kibibytes | None = None
    memory_limit_mb: Megabytes | None = None
    memory_limit_MB: Megabytes | None = None
    custom_extract_logic: str | None = None
    provided_data: dict[str, Any] | list[dict[str, Any]] | None = None
    extra: Extra = Extra()


class SubmitRequest(Struct, frozen=True):
    """POST /common_evaluate_batch."""

    completion: str
    dataset: str = ""
    id: int | str = 0
    config: TestConfig = TestConfig()


class EvalTestCase(Struct, frozen=True):
    """The result of a case. The fields from ``verdict`` on are *ours*."""

    passed: bool
    exec_info: RunCodeResponse
    test_info: dict[str, Any] | None = None
    verdict: str = ""
    cpu_time: float = 0.0
    wall_time: float = 0.0
    peak_rss: int = 0
    index: int = 0


class EvalResult(Struct, frozen=True):
    """The result of judging. ``verdict`` and ``num_cases`` are *ours*."""

    id: int | str
    accepted: bool
    extracted_code: str
    full_code: str | None = None
    test_code: str | None = None
    tests: list[EvalTestCase] = []
    extracted_type: Literal["fenced", "incomplete_fenced", "heuristic", "empty"] | None = None
    extra: dict[str, Any] | None = None
    verdict: str = ""
    num_cases: int = 0
