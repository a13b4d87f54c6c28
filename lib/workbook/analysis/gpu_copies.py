"""Ledger of the relay on a GPU.

The rules are those of the Python backend's source (python_be.cc GetInputTensor, infer_response.cc Send, pb_stub.cc
LoadGPUBuffers) and README: an output on the GPU is copied once into a buffer that Triton supplies, from its CUDA pool
while that has room; an input stays there only where `FORCE_CPU_ONLY_INPUT_TENSORS` is "no". None of it was counted:
there was no GPU to count on.
"""

from __future__ import annotations

import itertools

from workbook.analysis.copies import Copy
from workbook.errors import SettingError
from workbook.serving.gpu_arrangements import DEFAULT_POOL_BYTES, GPU_ARRANGEMENTS, gpu_pipeline

DEVICE, BUS = "device", "over the bus"


def gpu_ledger(
    arrangement: str, size_bytes: int, *, stay_on_gpu: bool, pool_bytes: int = DEFAULT_POOL_BYTES, in_flight: int = 1
) -> list[Copy]:
    """Copies of the tensors that are handed on, for one request of the relay on a GPU.

    Staying on the GPU a hop costs one copy on the device, of the output into Triton's buffer; the consumer maps it by a
    CUDA-IPC handle. Where the pool has no room for all tensors on their way, the buffer comes from plain CUDA memory
    and is copied once more, to be exported. By default the tensor goes over the bus to the CPU, through the stub's
    region, and over the bus back.

    Args:
        arrangement: one of GPU_ARRANGEMENTS.
        size_bytes: of the tensor.
        stay_on_gpu: as for `gpu_arrange`.
        pool_bytes: size of the CUDA pool.
        in_flight: requests at a time; each has one tensor in the pool.

    Raises:
        SettingError: no such arrangement.
    """
    if arrangement not in GPU_ARRANGEMENTS:
        raise SettingError(f"arrangement is {arrangement!r}: give one of {', '.join(GPU_ARRANGEMENTS)}.")
    stages = gpu_pipeline().stages
    copies = []
    for maker, taker in itertools.pairwise(stages):
        if arrangement == "monolith":
            continue
        hop = f"{maker.name} → {'caller → ' if arrangement == 'bls' else ''}{taker.name}"
        tensor = maker.outputs[0]

        def row(
            copied_by: str, shown_in: str, stage: str, kind: str, place: str, hop: str = hop, tensor: str = tensor
        ) -> Copy:
            return Copy(arrangement, hop, tensor, copied_by, shown_in, stage, kind, place, size_bytes)

        copies.append(row(f"stub of {maker.name}", "compute_output", maker.name, DEVICE, DEVICE))
        if not stay_on_gpu:
            copies.append(row("server", "compute_input", taker.name, BUS, "device to host"))
            copies.append(row(f"stub of {taker.name}", "compute_infer", taker.name, BUS, "host to device"))
        elif size_bytes * in_flight > pool_bytes:
            copies.append(row("server", "compute_input", taker.name, DEVICE, DEVICE))
    return copies


def place_of_input(total: int) -> tuple[int, str]:
    """Size and place that the last stage reports in its second number: where its input was."""
    return total & ((1 << 48) - 1), "GPU" if total >> 48 else "CPU"
