"""NVIDIA's Triton container, run through the docker command line under the same supervisor as the embedded server.

`docker run` stays attached: its output is the server's log, its end the server's end, and SIGTERM given to it reaches
Triton. Should the supervisor be killed, the container lives on without it: the handle's `stop`, or the next start,
removes it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from workbook.errors import ServerError, SetupError
from workbook.serving import supervisor
from workbook.serving.arguments import common_arguments
from workbook.serving.handle import Server, model_names, read_tail
from workbook.serving.options import ServerOptions
from workbook.serving.ports import LOOPBACK, Ports
from workbook.serving.starting import start_supervised
from workbook.serving.supervised import Job, SupervisedProcess

IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
"""Triton 2.51 with TensorRT 10.5: the release of the embedded server."""
_NAME = f"{supervisor.NAME_STEM}-{supervisor.IDENTITY_PLACEHOLDER}"
_LABEL = "workbook.triton"
_TRACES = "/traces"
_INSTEAD = 'or give server = "embedded", which needs no Docker.'


class ContainerServer(Server):
    """A container run by an attached docker client under a supervisor of ours."""

    kind = "container"

    def __init__(self, process: SupervisedProcess, ports: Ports, models: tuple[str, ...], log_file: Path) -> None:
        super().__init__(ports, models, log_file)
        self._process = process

    @property
    def pid(self) -> None:
        """None: the server's process belongs to the container."""
        return

    @property
    def container_name(self) -> str:
        """Name of the container, for docker's own commands."""
        return _NAME.replace(supervisor.IDENTITY_PLACEHOLDER, self._process.identity)

    def is_alive(self) -> bool:
        """Whether the container runs."""
        return self._process.is_alive()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of what the container printed."""
        return read_tail(self.log_file, lines)

    def stop(self) -> None:
        """Stop and remove the container."""
        self._process.stop()


def start_container(
    repository: Path, models: Sequence[str] | None, options: ServerOptions, log_file: Path | None
) -> ContainerServer:
    """Run the pinned image and wait until its models are ready; see `start_server`.

    Raises:
        SetupError: Docker, its daemon, the image, or its access to the GPU is missing.
        ServerError: the server did not come up.
    """
    check_docker()
    names = model_names(repository, models)
    gpus = options.gpus if options.gpus is not None else "all" if has_nvidia_gpu() else "none"
    remove_leftovers()

    def job(ports: Ports, log: Path) -> Job:
        return Job(
            command=docker_command(repository.absolute(), ports, options, models=models, gpus=gpus),
            environment=os.environ,
            log_file=log,
            grace_s=options.stop_grace_s,
            cleanup_command=("docker", "rm", "--force", _NAME),
        )

    try:
        return start_supervised(ContainerServer, job, names, models, options, log_file)
    except ServerError as error:
        if "could not select device driver" in error.log_tail:
            raise SetupError(
                f"Docker has no access to the GPU (--gpus={gpus}): install nvidia-container-toolkit, restart Docker, "
                f'give gpus = "none" to serve from the CPU, {_INSTEAD}'
            ) from error
        raise


def docker_command(
    repository: Path, ports: Ports, options: ServerOptions, *, models: Sequence[str] | None = None, gpus: str = "none"
) -> list[str]:
    """The `docker run` line; `{identity}` stands where the supervisor's identity goes.

    Args:
        repository: absolute folder, mounted read-only at /models.
        ports: of this machine's loopback, led to Triton's 8000, 8001 and 8002.
        options: of the server.
        models: which to serve; None: all.
        gpus: for --gpus, `all` or `device=0`; `none`: no GPU.
    """
    published = ((ports.http, 8000), (ports.grpc, 8001), (ports.metrics, 8002))
    return [
        *("docker", "run", "--rm", f"--name={_NAME}", f"--label={_LABEL}={supervisor.IDENTITY_PLACEHOLDER}"),
        *([] if gpus == "none" else [f"--gpus={gpus}"]),
        f"--shm-size={options.container_shm_bytes}",
        "--ulimit=memlock=-1",
        *(f"--publish={LOOPBACK}:{ours}:{theirs}" for ours, theirs in published),
        _mount(repository, "/models", ",readonly"),
        *([_mount(options.trace_file.absolute().parent, _TRACES, "")] if options.trace_file else []),
        IMAGE,
        "tritonserver",
        f"--id={supervisor.IDENTITY_PLACEHOLDER}",
        "--model-repository=/models",
        *common_arguments(models, options, trace_dir=_TRACES),
    ]


def _mount(source: Path, target: str, access: str) -> str:
    if "," in str(source) or '"' in str(source):
        raise SetupError(f"Docker cannot mount {source}: its name holds a comma or a quote; move the folder.")
    return f"--mount=type=bind,source={source},target={target}{access}"


def check_docker() -> None:
    """Do nothing where the container can be started.

    Raises:
        SetupError: what is missing, and how to get it.
    """
    if shutil.which("docker") is None:
        raise SetupError(f"There is no docker command on PATH: install Docker, {_INSTEAD}")
    daemon = _docker("version", "--format", "{{.Server.Version}}")
    if daemon.returncode != 0:
        raise SetupError(f"Docker does not answer ({_last_line(daemon.stderr)}): start its daemon, {_INSTEAD}")
    if _docker("image", "inspect", IMAGE).returncode != 0:
        raise SetupError(f"The image is not on this machine: run docker pull {IMAGE} (several GB), {_INSTEAD}")


def is_usable() -> bool:
    """Whether there are an NVIDIA GPU and a Docker daemon that answers."""
    return (
        has_nvidia_gpu() and shutil.which("docker") is not None and _docker("version", "--format", "1").returncode == 0
    )


def has_nvidia_gpu() -> bool:
    """Whether nvidia-smi lists a GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU " in listed.stdout


def remove_leftovers() -> list[str]:
    """Remove containers of ours whose supervisor is gone; returns their names."""
    listed = _docker("ps", "--all", f"--filter=label={_LABEL}", f'--format={{{{.Label "{_LABEL}"}}}}')
    stale = [identity for identity in listed.stdout.split() if supervisor.is_stale(identity)]
    names = [_NAME.replace(supervisor.IDENTITY_PLACEHOLDER, identity) for identity in stale]
    if names:
        _docker("rm", "--force", *names)
    return names


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(arguments, 1, "", str(error))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
