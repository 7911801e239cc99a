"""A Python program run over several inputs in one process: payload and answer of the ``sequence`` harness."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from whetstone.sandbox.job import Ended, Job, RunLimits, RunResult
from whetstone.sandbox.tiers import SEQUENCE
from whetstone.sandbox.zygote.run_sequence import SUCCEEDED

_MARKER_BYTES = 16


@dataclass(frozen=True)
class Claim:
    """What the program says of its run on one input: that it ended well, and what it wrote until then."""

    succeeded: bool
    stdout: bytes


@dataclass(frozen=True)
class SequenceJob:
    """A job, and the marker by which its output is told apart."""

    job: Job
    marker: bytes

    def claims(self, result: RunResult) -> list[Claim]:
        """The runs that came to their end, in order. None if the process as a whole did not end well.

        The process is the program's: it can claim whatever it likes.
        """
        if result.ended is not Ended.EXITED or result.exit_code != 0:
            return []
        output, *later = result.stdout.split(self.marker)
        claims: list[Claim] = []
        for part in later:
            claims.append(Claim(part[:1] == SUCCEEDED, output))
            output = part[1:]
        # What follows the last marker is of a run that did not come to its end, or was written too late.
        return claims[:-1] if output else claims


def sequence_job(source: bytes, inputs: Sequence[bytes], limits: RunLimits) -> SequenceJob:
    """A job that runs ``source`` on each of ``inputs``, within ``limits`` for all of them together.

    It stops earlier, between two runs, when half of the CPU time is gone, or when a run leaves threads.
    """
    marker = os.urandom(_MARKER_BYTES)
    head = {
        "marker": marker.hex(),
        "source": len(source),
        "inputs": [len(given) for given in inputs],
        "cpu_s": limits.cpu_s,
    }
    payload = b"".join((json.dumps(head).encode(), b"\n", source, *inputs))
    return SequenceJob(Job(SEQUENCE, payload, limits), marker)
