"""A real Triton server as a process of this machine, from the server environment's wheel; no Docker, no root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workbook.errors import ServerError
from workbook.serving import server_environment
from workbook.serving.handle import Server, model_names, read_tail
from workbook.serving.options import ServerOptions
from workbook.serving.ports import LOOPBACK, Ports, choose_ports
from workbook.serving.readiness import PortTakenError, wait_until_ready
from workbook.serving.server_environment import ServerEnvironment
from workbook.serving.supervised import Job, SupervisedProcess
from workbook.serving.supervisor import IDENTITY_PLACEHOLDER, shared_memory_prefix

CONFIG_NAME = "embedded"
_PORT_ATTEMPTS = 5
_LOG_LINES_SEARCHED = 400


class EmbeddedServer(Server):
    """A tritonserver process under a supervisor of ours."""

    kind = "embedded"

    def __init__(self, process: SupervisedProcess, ports: Ports, models: tuple[str, ...], log_file: Path) -> None:
        self._process = process
        self.http_url = f"{LOOPBACK}:{ports.http}"
        self.grpc_url = f"{LOOPBACK}:{ports.grpc}"
        self.metrics_url = f"{LOOPBACK}:{ports.metrics}"
        self.models = models
        self.log_file = log_file

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def supervisor_pid(self) -> int:
        """Process id of the supervisor."""
        return self._process.supervisor_pid

    @property
    def identity(self) -> str:
        """Marks the server's shared-memory files and stubs, see `supervisor`; also the server's `--id`."""
        return self._process.identity

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def cpu_seconds(self) -> float:
        return self._process.cpu_seconds()

    def log_tail(self, lines: int = 40) -> str:
        return read_tail(self.log_file, lines) if self.log_file else ""

    def stop(self) -> None:
        self._process.stop()

    def _how_it_ended(self) -> str:
        code = self._process.exit_code()
        if code is None:
            return ""
        return f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"


def start_embedded(
    repository: Path, models: Sequence[str] | None, options: ServerOptions, log_file: Path | None
) -> EmbeddedServer:
    """Start tritonserver on the loopback and wait until its models are ready; see `start_server`."""
    environment = server_environment.prepare()
    names = model_names(repository, models)
    for attempt in range(_PORT_ATTEMPTS):
        ports = choose_ports(options)
        log = log_file or _temporary_log()
        command = embedded_command(environment, repository.absolute(), models, ports, options)
        process = SupervisedProcess(_job(command, environment, log, options, temporary=log_file is None))
        server = EmbeddedServer(process, ports, names, log)
        try:
            wait_until_ready(
                server.http_url,
                () if options.model_control_mode == "explicit" and models is None else names,
                expected_name=server.identity,
                is_alive=server.is_alive,
                log=lambda server=server: server.log_tail(_LOG_LINES_SEARCHED),  # type: ignore[misc]
                timeout_s=options.startup_timeout_s,
            )
            return server
        except PortTakenError:
            server.stop()
            if attempt == _PORT_ATTEMPTS - 1:
                raise
        except BaseException:
            server.stop()
            raise
    raise AssertionError("unreachable")


def embedded_command(
    environment: ServerEnvironment, repository: Path, models: Sequence[str] | None, ports: Ports, options: ServerOptions
) -> list[str]:
    """The command line of tritonserver; `{identity}` stands where the supervisor's identity goes."""
    addresses = [
        part
        for name, port in (("http", ports.http), ("grpc", ports.grpc), ("metrics", ports.metrics))
        for part in (f"--{name}-address={LOOPBACK}", f"--{name}-port={port}")
    ]
    return [
        str(environment.executable),
        f"--id={IDENTITY_PLACEHOLDER}",
        f"--model-repository={repository}",
        f"--model-config-name={CONFIG_NAME}",
        f"--backend-directory={environment.backend_dir}",
        f"--backend-config=python,shm-region-prefix-name={shared_memory_prefix(IDENTITY_PLACEHOLDER)}",
        *addresses,
        *common_arguments(models, options),
    ]


def common_arguments(models: Sequence[str] | None, options: ServerOptions) -> list[str]:
    """Arguments of tritonserver that do not depend on how it is started."""
    explicit = options.model_control_mode == "explicit" or models is not None
    valued = {
        "--exit-timeout-secs": max(1, round(options.stop_grace_s / 2)),
        "--log-verbose": options.log_verbose or None,
        "--model-control-mode": "explicit" if explicit else None,
        "--http-thread-count": options.http_thread_count,
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
        *_trace_arguments(options),
        *options.extra_arguments,
    ]


def _trace_arguments(options: ServerOptions) -> list[str]:
    if options.trace_file is None:
        return []
    settings = (
        "mode=triton",
        "level=TIMESTAMPS",
        f"rate={options.trace_rate}",
        f"triton,file={options.trace_file.absolute()}",
        f"triton,log-frequency={options.trace_log_frequency}",
    )
    return [f"--trace-config={setting}" for setting in settings]


def _job(
    command: list[str], environment: ServerEnvironment, log: Path, options: ServerOptions, *, temporary: bool
) -> Job:
    if not environment.executable.exists():
        raise ServerError(f"{environment.executable} is not there.")
    return Job(
        command=command,
        environment=environment.process_environment(),
        log_file=log,
        grace_s=options.stop_grace_s,
        remove_when_orphaned=[log] if temporary else [],
    )


def _temporary_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="workbook-triton-", suffix=".log")
    os.close(descriptor)
    return Path(name)
