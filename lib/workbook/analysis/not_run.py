"""What a benchmark left out, each with what it needs: variants, transports, servers, tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbook.models.variants import Variant

PERF_ANALYZER = "perf_analyzer on PATH, or its path as the parameter perf_analyzer (pip install perf-analyzer)"
CUDA_SHARED_MEMORY = (
    "an NVIDIA GPU that client and server share, the package cuda-python, and a client that this notebook does not have"
)
CONTAINER = 'server = "container": Docker and the pinned Triton image'
SYSTEM_SHARED_MEMORY = 'a server that is a process of this machine (server = "embedded")'


def not_run_rows(
    variants: Iterable[tuple[Variant, str]], server_kind: str, *, perf_analyzer: bool
) -> list[dict[str, str]]:
    """The field `not_run` of the results.

    Args:
        variants: (variant, sentence) from `choose_variants`.
        server_kind: as `Server.kind` names it.
        perf_analyzer: whether it was there to compare with.

    Returns:
        `variant` and `needs` of each; for what is no variant, `variant` says what it is.
    """
    rows = [(variant.name, reason) for variant, reason in variants]
    rows.append(("transport grpc + CUDA shared memory", CUDA_SHARED_MEMORY))
    if server_kind != "embedded":
        rows.append(("transport grpc + system shared memory", SYSTEM_SHARED_MEMORY))
    if server_kind != "container":
        rows.append(("Triton's own backends of onnxruntime and openvino in the container", CONTAINER))
    if not perf_analyzer:
        rows.append(("comparison with perf_analyzer", PERF_ANALYZER))
    return [{"variant": name, "needs": needs} for name, needs in rows]
