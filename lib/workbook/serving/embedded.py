"""A real Triton server as a process of this machine, from the server environment's wheel; no Docker, no root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbook.errors import SettingError
from workbook.serving import server_environment
from workbook.serving.arguments import common_arguments
from workbook.serving.handle import Server, model_names, read_tail
from workbook.serving.options import ServerOptions
from workbook.serving.ports import LOOPBACK, Ports
from workbook.serving.server_environment import ServerEnvironment
from workbook.serving.starting import start_supervised
from workbook.serving.supervised import Job, SupervisedProcess
from workbook.serving.supervisor import IDENTITY_PLACEHOLDER, shared_memory_prefix

CONFIG_NAME = "embedded"
"""Where `configs/embedded.pbtxt` exists it stands in for a model's `config.pbtxt`."""


class EmbeddedServer(Server):
    """A tritonserver process under a supervisor of ours."""

    kind = "embedded"

    def __init__(self, process: SupervisedProcess, ports: Ports, models: tuple[str, ...], log_file: Path) -> None:
        super().__init__(ports, models, log_file)
        self._process = process

    @property
    def pid(self) -> int:
        """Process id of tritonserver."""
        return self._process.pid

    @property
    def supervisor_pid(self) -> int:
        """Process id of its supervisor."""
        return self._process.supervisor_pid

    @property
    def identity(self) -> str:
        """Marks the server's shared-memory files and stubs, see `supervisor`; also the server's `--id`."""
        return self._process.identity

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def cpu_seconds(self) -> float:
        """CPU time used so far by the server and its stubs, s."""
        return self._process.cpu_seconds()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines it and its models printed."""
        return read_tail(self.log_file, lines)

    def stop(self) -> None:
        """End the server, its stubs and its supervisor, and remove their shared memory."""
        self._process.stop()

    def _how_it_ended(self) -> str:
        code = self._process.exit_code()
        if code is None:
            return ""
        return f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"


def start_embedded(
    repository: Path, models: Sequence[str] | None, options: ServerOptions, log_file: Path | None
) -> EmbeddedServer:
    """Start tritonserver on the loopback and wait until its models are ready; see `start_server`.

    Raises:
        SettingError: an option that this release of Triton does not have.
        SetupError: the server's environment is missing or incomplete.
        ServerError: the server did not come up.
    """
    environment = server_environment.prepare()
    _refuse_unknown_options(environment, options)
    names = model_names(repository, models)

    def job(ports: Ports, log: Path) -> Job:
        return Job(
            command=embedded_command(environment, repository.absolute(), models, ports, options),
            environment=environment.process_environment(),
            log_file=log,
            grace_s=_grace_s(options),
        )

    return start_supervised(EmbeddedServer, job, names, models, options, log_file)


def _grace_s(options: ServerOptions) -> float:
    """Time for a gentle end, s: nothing but a trace is written then, and Triton takes 3 to 6 s over it."""
    return options.stop_grace_s if options.trace_file else 0.0


def _refuse_unknown_options(environment: ServerEnvironment, options: ServerOptions) -> None:
    """Triton's own message for an option it does not know is its whole help text."""
    name = "grpc-infer-thread-count"
    if options.grpc_infer_thread_count is not None and name.encode() not in environment.executable.read_bytes():
        raise SettingError(
            f"grpc_infer_thread_count is {options.grpc_infer_thread_count}, but the embedded Triton (2.51, release "
            f"24.10) has no --{name}: set it to 0, or give a newer server as remote:HOST:GRPC_PORT."
        )


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
        # our configurations are complete; completing them would start each Python model, with its imports, twice
        "--disable-auto-complete-config",
        f"--backend-directory={environment.backend_dir}",
        f"--backend-config=python,shm-region-prefix-name={shared_memory_prefix(IDENTITY_PLACEHOLDER)}",
        *addresses,
        *common_arguments(models, options),
    ]
