"""The bfloat16 instructions of a processor, read without torch."""

from __future__ import annotations

# Names of bfloat16 instructions in ``/proc/cpuinfo``, on x86 and on ARM.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})


def cpu_bf16_flags(cpuinfo: str) -> list[str]:
    """The bfloat16 instruction sets that the text of ``/proc/cpuinfo`` names, sorted."""
    words: set[str] = set()
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            words.update(value.split())
    return sorted(_BF16_FLAGS & words)
