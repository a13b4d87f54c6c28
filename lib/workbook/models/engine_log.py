"""What trtexec prints, read back: its version, how long a build took, how fast the engine ran, what went wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbook.errors import ModelError

BANNER = re.compile(r"TensorRT\.trtexec \[TensorRT v([\d.]+)\]")
STAGES = (
    ("Start parsing network model", "reading the ONNX file"),
    ("Finished parsing network model", "optimising the graph"),
    ("Timing Runner:", "timing kernels"),
    ("Engine generation completed", "writing the engine"),
    ("Starting inference", "measuring the engine"),
)
"""Words of a log line -> the stage of a build that it opens."""
KERNEL_TIMED = "Timing Runner:"
_LEVEL = re.compile(r"^(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?\[([EWIVF])\] ?(.*)$")


@dataclass(frozen=True)
class EngineBuild:
    """Figures of one build; None where the log does not tell, as after `--skipInference`.

    Attributes:
        build_s: seconds of building, ONNX parsing included.
        engine_bytes: size of the engine; from a log alone to about six digits.
        gpu_latency_mean_ms: GPU compute time of one execution at `--shapes`, without copies.
        gpu_latency_median_ms: the same, median.
        gpu_latency_p99_ms: the same, 99th percentile.
        throughput_executions_per_s: executions of `--shapes` in a second, one enqueued ahead; times the batch for rows.
        warnings: in the order printed, each once.
        tensorrt_version: major, minor, patch.
    """

    build_s: float | None
    engine_bytes: int | None
    gpu_latency_mean_ms: float | None
    gpu_latency_median_ms: float | None
    gpu_latency_p99_ms: float | None
    throughput_executions_per_s: float | None
    warnings: tuple[str, ...]
    tensorrt_version: tuple[int, int, int]


def parse_version(text: str) -> tuple[int, int, int]:
    """Major, minor and patch of the first trtexec banner in the text.

    The number in `[TensorRT v100500]` is major * 10000 + minor * 100 + patch since 10.0, so v101100 is 10.11 and
    v110100 is 11.1; before, it was major * 1000 + minor * 100 + patch (v8601 is 8.6.1).

    Raises:
        ModelError: there is no banner.
    """
    found = BANNER.search(text)
    if not found:
        shown = text.strip().splitlines()[-1:] or ["nothing"]
        raise ModelError(
            f"this is not the output of trtexec, it has no banner [TensorRT v...]; it ends with: {shown[0]}"
        )
    if "." in found[1]:
        major, minor, patch, *_ = (int(part) for part in f"{found[1]}.0.0".split("."))
        return major, minor, patch
    number = int(found[1])
    major, rest = divmod(number, 10_000 if number >= 100_000 else 1_000)
    return major, rest // 100, rest % 100


def parse_trtexec_log(text: str) -> EngineBuild:
    """Read the figures of a finished build.

    Raises:
        ModelError: the text is no trtexec log, or trtexec says that it failed; the message holds its error lines.
    """
    version = parse_version(text)
    if "&&&& FAILED" in text:
        raise ModelError(f"trtexec {dotted(version)} failed:\n{error_lines(text)}")
    mib = _number(r"Created engine with size: ([\d.e+]+) MiB", text)
    return EngineBuild(
        build_s=_number(r"Engine built in ([\d.e+]+) sec", text),
        engine_bytes=None if mib is None else round(mib * 2**20),
        gpu_latency_mean_ms=_latency("mean", text),
        gpu_latency_median_ms=_latency("median", text),
        gpu_latency_p99_ms=_latency("percentile(99%)", text),
        throughput_executions_per_s=_number(r"Throughput: ([\d.e+]+) qps", text),
        warnings=tuple(dict.fromkeys(_messages(text, "W"))),
        tensorrt_version=version,
    )


def error_lines(text: str, most: int = 12) -> str:
    """The error lines of a log, first to last; the last lines of any kind where it has none."""
    errors = _messages(text, "EF")
    return "\n".join(errors[:most] or text.strip().splitlines()[-most:] or ["it printed nothing"])


def dotted(version: tuple[int, int, int]) -> str:
    """The version as NVIDIA writes it: 10.5.0."""
    return ".".join(str(part) for part in version)


def _messages(text: str, levels: str) -> list[str]:
    found = (_LEVEL.match(line) for line in text.splitlines())
    return [match[2].strip() for match in found if match and match[1] in levels and match[2].strip()]


def _latency(statistic: str, text: str) -> float | None:
    return _number(rf"\] GPU Compute Time: .*?\b{re.escape(statistic)} = ([\d.e+-]+) ms", text)


def _number(pattern: str, text: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) if found else None
