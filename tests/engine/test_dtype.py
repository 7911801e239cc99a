"""``model.dtype: auto`` is bfloat16 only where the device computes it natively."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from whetstone.engine import device as device_module
from whetstone.engine.device import computes_bf16, resolve_dtype
from whetstone.engine.torch_environment import cpu_bf16_flags


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_an_explicit_dtype_is_kept_on_every_processor(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for native in (True, False):
        monkeypatch.setattr(device_module, "_cpu_computes_bf16", lambda native=native: native)
        assert resolve_dtype(dtype, torch.device("cpu")) == dtype


@pytest.mark.parametrize(("native", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_auto_follows_the_instructions_of_the_processor(
    native: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "_cpu_computes_bf16", lambda: native)
    assert resolve_dtype("auto", torch.device("cpu")) == dtype


@pytest.mark.parametrize(
    ("cpuinfo", "flags"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16 fma\n", ["avx512_bf16"]),
        ("flags\t\t: avx512_bf16 amx_bf16 amx_tile\n", ["amx_bf16", "avx512_bf16"]),
        ("flags\t\t: fpu avx2 avx512f fma\nmodel name : bf16 avx512_bf16\n", []),
        ("Features\t: fp asimd sve bf16 svebf16\n", ["bf16", "svebf16"]),
        ("", []),
    ],
)
def test_instructions_are_read_from_the_flags_alone(cpuinfo: str, flags: list[str]) -> None:
    assert cpu_bf16_flags(cpuinfo) == flags


@pytest.mark.extended
def test_a_masked_processor_computes_in_float32() -> None:
    """``ATEN_CPU_CAPABILITY`` is read once a process, when torch chooses its kernels."""
    code = (
        "import torch; from whetstone.engine.device import resolve_dtype; "
        "print(resolve_dtype('auto', torch.device('cpu')))"
    )
    for capability in ("avx2", "default"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"ATEN_CPU_CAPABILITY": capability},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == "float32"


@pytest.mark.parametrize(
    ("kind", "native", "emulated"), [("cuda", True, True), ("cuda", False, True), ("xpu", True, True)]
)
def test_an_accelerator_is_asked_and_emulation_does_not_count(
    kind: str, native: bool, emulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cuda(including_emulation: bool = True) -> bool:
        return emulated if including_emulation else native

    module = SimpleNamespace(is_bf16_supported=cuda if kind == "cuda" else lambda: native)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    assert computes_bf16(torch.device(kind)) is native


def test_an_accelerator_that_reports_nothing_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace())
    assert resolve_dtype("auto", torch.device("xpu")) == "float32"
