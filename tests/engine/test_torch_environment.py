"""Passive waiting is asked for in time, never against the user's own setting; kernels do not pile up."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

CASES = {
    "": ({}, "True passive"),
    "set by the user": ({"OMP_WAIT_POLICY": "active"}, "False active"),
    "torch came first": ({}, "False None"),
}


@pytest.mark.parametrize("case", CASES)
def test_waiting_is_set_only_where_it_can_work(case: str) -> None:
    environment, expected = CASES[case]
    code = f"""
import os, sys
if {case == "torch came first"}: import torch
from whetstone.engine.torch_environment import sleep_while_waiting
print(sleep_while_waiting(), os.environ.get("OMP_WAIT_POLICY"))
"""
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).strip() == expected
    )


@pytest.mark.extended
def test_compiled_kernels_of_many_shapes_do_not_pile_up() -> None:
    code = """
import sys
from pathlib import Path
from whetstone.engine.torch_environment import bound_kernel_caches
if sys.argv[1] == "bounded": assert bound_kernel_caches()
import torch

def used(): return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

weight = torch.ones(32, 64, dtype=torch.bfloat16)
for rows in range(1, 301):
    torch.nn.functional.linear(torch.ones(rows, 64, dtype=torch.bfloat16), weight)
    if rows == 100: first = used()
print(used() - first)
"""
    grown = {
        how: int(subprocess.check_output([sys.executable, "-c", code, how], env={}))
        for how in ("bounded", "as torch has it")
    }
    if grown["as torch has it"] < 20 * 2**20:
        pytest.skip("torch compiles no kernels for products in bfloat16 on this machine")
    assert grown["bounded"] < grown["as torch has it"] / 4
