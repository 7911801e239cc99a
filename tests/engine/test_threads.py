"""Passive waiting is asked for in time, and never against the user's own setting."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
from whetstone.engine.threads import sleep_while_waiting
print(sleep_while_waiting(), os.environ.get("OMP_WAIT_POLICY"))
"""
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).strip() == expected
    )
