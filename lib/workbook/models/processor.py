"""What this machine's processor can compute with."""

from __future__ import annotations

from pathlib import Path

BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
CPUINFO = Path("/proc/cpuinfo")


def processor_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Instruction sets as Linux names them (`flags` on x86, `Features` on ARM); empty where it does not tell."""
    if not cpuinfo.is_file():
        return frozenset()
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def has_bf16_instructions(flags: frozenset[str] | None = None) -> bool:
    """Whether the processor multiplies bf16; without, PyTorch emulates it many times slower than fp32."""
    return not BF16_FLAGS.isdisjoint(processor_flags() if flags is None else flags)
