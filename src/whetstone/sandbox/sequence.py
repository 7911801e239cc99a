"""A Python program that runs over several inputs in one process: payload and result of the ``sequence``
harness."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from whetstone.sandbox.job import EndReason, RunLimits, RunResult, SandboxJob
from whetstone.sandbox.tiers import SEQUENCE
from whetstone.sandbox.zygote.run_sequence import SUCCEEDED

_MARKER_BYTES = 16


@dataclass(frozen=True)
class _Claim:
    """What the program claims about one input: that the run ended normally, and its output."""

    succeeded: bool
    stdout: bytes


@dataclass(frozen=True)
class _SequenceJob:
    """A job, and the marker that separates its outputs."""

    job: SandboxJob
    marker: bytes

    def claims(self, result: RunResult) -> list[_Claim]:
        """Return the runs that completed, in order. Empty if the process as a whole did not end normally.

        The program controls the process and can claim anything.
        """
        if result.ended is not EndReason.EXITED or result.exit_code != 0:
            return []
        output, *later = result.stdout.split(self.marker)
        claims: list[_Claim] = []
        for part in later:
            claims.append(_Claim(part[:1] == SUCCEEDED, output))
            output = part[1:]
        # Output after the last marker belongs to a run that did not complete, or was written too late.
        return claims[:-1] if output else claims


def sequence_job(source: bytes, inputs: Sequence[bytes], limits: RunLimits) -> _SequenceJob:
    """Return a job that runs ``source`` on each of ``inputs``, within ``limits`` for all of them together.

    It stops between two runs when half of the CPU time is used, or when a run leaves threads behind.
    """
    marker = os.urandom(_MARKER_BYTES)
    head = {
        "marker": marker.hex(),
        "source": len(source),
        "inputs": [len(text) for text in inputs],
        "cpu_s": limits.cpu_s,
    }
    payload = b"".join((json.dumps(head).encode(), b"\n", source, *inputs))
    return _SequenceJob(SandboxJob(SEQUENCE, payload, limits), marker)
