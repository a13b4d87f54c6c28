"""How a server is started, apart from which models it serves."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from workbook.errors import SettingError

_LEAST = {
    "startup_timeout_s": 1,
    "stop_grace_s": 1,
    "log_verbose": 0,
    "http_thread_count": 1,
    "grpc_infer_thread_count": 1,
    "grpc_infer_allocation_pool_size": 1,
    "buffer_manager_thread_count": 0,
    "model_load_thread_count": 1,
    "shm_default_bytes": 1 << 20,
    "shm_growth_bytes": 1 << 20,
    "container_shm_bytes": 64 << 20,
    "trace_rate": 1,
    "trace_log_frequency": 0,
}
_CONTROL_MODES = ("none", "explicit")


@dataclass(frozen=True)
class ServerOptions:
    """Options of a Triton server; None leaves Triton's own default.

    Raises:
        SettingError: a value is outside its range.
    """

    http_port: int | None = None
    """None: a free one is chosen. The same for the next two."""
    grpc_port: int | None = None
    metrics_port: int | None = None
    startup_timeout_s: float = 180.0
    """From start until every model is ready."""
    stop_grace_s: float = 10.0
    """From SIGTERM until SIGKILL. An embedded server without a trace to write is not given it: it is killed at once."""
    log_verbose: int = 0
    """0 is quiet; each step writes more lines a request and so slows the server."""
    model_control_mode: str = "none"
    """`none` loads every model (or those asked for) at start; `explicit` lets them be loaded and unloaded later."""
    http_thread_count: int | None = None
    grpc_infer_allocation_pool_size: int | None = None
    """Request objects kept for reuse; more requests in flight than this allocate."""
    grpc_infer_thread_count: int | None = None
    """Threads that take inference requests off gRPC; releases after 24.10 have it, 2.51 refuses it by name."""
    buffer_manager_thread_count: int | None = None
    model_load_thread_count: int | None = None
    shm_default_bytes: int | None = None
    """First size of the region a Python model shares with its stub."""
    shm_growth_bytes: int | None = None
    container_shm_bytes: int = 1 << 30
    """`docker run --shm-size`; Docker's own default of 64 MiB is too small for the Python backend."""
    gpus: str | None = None
    """`docker run --gpus`, for example `all` or `device=0`; None: `all` where an NVIDIA GPU is found."""
    trace_file: Path | None = None
    """Triton writes a trace of requests here (with a number behind it where trace_log_frequency is above 0)."""
    trace_rate: int = 1
    """One request in so many is traced."""
    trace_log_frequency: int = 0
    """Traces per file; 0 writes one file when the server stops."""
    extra_arguments: tuple[str, ...] = ()
    """Given to tritonserver as they are, last."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = _LEAST.get(field.name)
            if value is not None and least is not None and value < least:
                raise SettingError(f"ServerOptions.{field.name} is {value}; give {least} or more.")
        for name in ("http_port", "grpc_port", "metrics_port"):
            _check_port(name, getattr(self, name))
        if self.model_control_mode not in _CONTROL_MODES:
            raise SettingError(
                f"ServerOptions.model_control_mode is {self.model_control_mode!r}; give {' or '.join(_CONTROL_MODES)}."
            )


def _check_port(name: str, port: int | None) -> None:
    if port is not None and not 1 <= port <= 65535:
        raise SettingError(f"ServerOptions.{name} is {port}; give a port from 1 to 65535, or None for a free one.")
