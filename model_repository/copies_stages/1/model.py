"""Stages of a pipeline in one Python model: all of them make the monolith, one of them an ensemble's member.

A tensor that is named in `handles_in` or `handles_out` does not travel itself: its handle does, in a tensor of the same
name with `_handle` behind it.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from stages import make_stage

_OWN_BYTES = 64 << 20


class TritonPythonModel:
    """Runs the stages that the configuration's parameter `stages` names, in order."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters, open the sessions."""
        config = json.loads(args["model_config"])
        given = {name: value["string_value"] for name, value in config["parameters"].items()}
        folder = Path(args["model_repository"], args["model_version"])
        self.stages = [make_stage(name, folder, int(given["threads"])) for name in given["stages"].split(",")]
        self.handles_in = set(filter(None, given.get("handles_in", "").split(",")))
        self.handles_out = set(filter(None, given.get("handles_out", "").split(",")))
        self.inputs = [entry["name"].removesuffix("_handle") for entry in config["input"]]
        self.outputs = [entry["name"].removesuffix("_handle") for entry in config["output"]]
        self.own_arrays = int(given.get("own_arrays", "1"))
        self.own_memory: dict[str, collections.deque[np.ndarray]] = {}
        if self.handles_in | self.handles_out:
            self._open_handles(given)
        if cores := given.get("cores"):
            os.sched_setaffinity(0, {int(core) for core in cores.split(",")})

    def _open_handles(self, given: dict[str, str]) -> None:
        from handles import Arena, Reader, server_prefix

        prefix = given.get("handle_prefix") or server_prefix()
        self.reader = Reader(prefix)
        if self.handles_out:
            self.arena = Arena(
                prefix,
                slots=int(given["handle_slots"]),
                slot_bytes=int(given["handle_slot_bytes"]),
                ttl_s=int(given["handle_ttl_ms"]) / 1e3,
            )

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request by itself; what fails gets an error of its own."""
        return [self._answer(request, place) for place, request in enumerate(requests)]

    def _answer(self, request: Any, place: int) -> Any:
        leases: dict[str, Any] = {}
        try:
            with contextlib.ExitStack() as borrowed:
                inputs = {name: self._input(request, name, borrowed) for name in self.inputs}
                arrays = self._run(inputs, leases, place)
                return pb_utils.InferenceResponse([self._output(name, arrays[name], leases) for name in self.outputs])
        except Exception as error:  # whatever it is, the client should read it, and the slot must come back
            for lease in leases.values():
                lease.give_back()
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))

    def _input(self, request: Any, name: str, borrowed: contextlib.ExitStack) -> np.ndarray:
        if name not in self.handles_in:
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy()
        handle = pb_utils.get_input_tensor_by_name(request, f"{name}_handle").as_numpy()
        return borrowed.enter_context(self.reader.borrow(handle[0].tobytes()))

    def _run(self, arrays: dict[str, np.ndarray], leases: dict[str, Any], place: int) -> dict[str, np.ndarray]:
        def new(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            if name in self.handles_out:
                leases[name] = self.arena.lease(shape, dtype)
                return leases[name].array
            return self._own(f"{name} {place}", shape, dtype)

        for stage in self.stages:
            arrays = {**arrays, **stage({name: arrays[name] for name in stage.inputs}, new)}
        return arrays

    def _own(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Memory that is kept from call to call, so that no request pays for fresh pages.

        Several arrays take turns where the parameter `own_arrays` says so. A monolith that wrote into the same array
        again and again would find it in the processor's cache, which a stage between copies never does; so the
        arrangements would differ in more than their copies.
        """
        ring = self.own_memory.get(name)
        if ring is None or ring[0].shape != shape or ring[0].dtype != dtype:
            array_bytes = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
            count = max(1, min(self.own_arrays, _OWN_BYTES // array_bytes))
            ring = self.own_memory[name] = collections.deque(np.empty(shape, dtype) for _ in range(count))
            for array in ring:
                array.fill(0)  # touches its pages now
        ring.rotate(1)
        return ring[0]

    def _output(self, name: str, array: np.ndarray, leases: dict[str, Any]) -> Any:
        if name not in self.handles_out:
            return pb_utils.Tensor(name, array)
        handle = np.frombuffer(leases.pop(name).publish(), np.uint8)
        # Triton wants as many rows of a handle as the stage's other inputs have
        return pb_utils.Tensor(f"{name}_handle", np.tile(handle, (len(array), 1)))

    def finalize(self) -> None:
        """Remove the slots' files."""
        if self.handles_out:
            self.arena.close()
