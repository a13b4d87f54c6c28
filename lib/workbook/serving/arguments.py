"""Arguments of tritonserver that embedded and container share."""

from __future__ import annotations

from collections.abc import Sequence

from workbook.serving.options import ServerOptions


def common_arguments(
    models: Sequence[str] | None, options: ServerOptions, *, trace_dir: str | None = None
) -> list[str]:
    """The options as tritonserver takes them.

    Args:
        models: the ones to load; None: all of the repository.
        options: of the server.
        trace_dir: folder of the trace file as the server sees it; None: as this machine does.
    """
    explicit = options.model_control_mode == "explicit" or models is not None
    valued = {
        "--exit-timeout-secs": max(1, round(options.stop_grace_s / 2)),
        "--log-verbose": options.log_verbose or None,
        "--model-control-mode": "explicit" if explicit else None,
        "--http-thread-count": options.http_thread_count,
        "--grpc-infer-thread-count": options.grpc_infer_thread_count,
        "--grpc-infer-allocation-pool-size": options.grpc_infer_allocation_pool_size,
        "--buffer-manager-thread-count": options.buffer_manager_thread_count,
        "--model-load-thread-count": options.model_load_thread_count,
    }
    shared_memory = {
        "shm-default-byte-size": options.shm_default_bytes,
        "shm-growth-byte-size": options.shm_growth_bytes,
    }
    return [
        *(f"{name}={value}" for name, value in valued.items() if value is not None),
        *(f"--load-model={model}" for model in models or ()),
        *(f"--backend-config=python,{name}={size}" for name, size in shared_memory.items() if size is not None),
        *_trace_arguments(options, trace_dir),
        *options.extra_arguments,
    ]


def _trace_arguments(options: ServerOptions, trace_dir: str | None) -> list[str]:
    if options.trace_file is None:
        return []
    file = f"{trace_dir}/{options.trace_file.name}" if trace_dir else str(options.trace_file.absolute())
    settings = (
        "mode=triton",
        "level=TIMESTAMPS",
        f"rate={options.trace_rate}",
        f"triton,file={file}",
        f"triton,log-frequency={options.trace_log_frequency}",
    )
    return [f"--trace-config={setting}" for setting in settings]
