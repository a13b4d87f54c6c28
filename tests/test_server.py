"""The parts of the servers that need no Triton: options, ports, command lines, supervisor, and a pretended Docker."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from busy_machine import in_one_of, wait_for
from workbook.errors import ServerError, SettingError, SetupError
from workbook.serving import container, server_environment, supervisor
from workbook.serving.arguments import common_arguments
from workbook.serving.container import IMAGE, docker_command
from workbook.serving.embedded import embedded_command
from workbook.serving.handle import read_tail
from workbook.serving.options import ServerOptions
from workbook.serving.ports import Ports, choose_ports
from workbook.serving.readiness import PortTakenError, wait_until_ready
from workbook.serving.remote import parse_address
from workbook.serving.server import resolve_kind, start_server
from workbook.serving.server_environment import ServerEnvironment, find_libpython
from workbook.serving.supervised import Job, SupervisedProcess

PORTS = Ports(http=18000, grpc=18001, metrics=18002)


# --- options and ports -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"http_port": 0}, "http_port is 0; give a port from 1 to 65535"),
        ({"grpc_port": 70000}, "grpc_port is 70000"),
        ({"startup_timeout_s": 0.0}, "startup_timeout_s is 0.0; give 1 or more"),
        ({"log_verbose": -1}, "log_verbose is -1"),
        ({"container_shm_bytes": 1024}, "container_shm_bytes is 1024; give 67108864 or more"),
        ({"model_control_mode": "poll"}, "'poll'; give none or explicit"),
    ],
)
def test_bad_options_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        ServerOptions(**change)


def test_options_become_arguments() -> None:
    options = ServerOptions(
        stop_grace_s=6,
        log_verbose=1,
        http_thread_count=4,
        shm_growth_bytes=2 << 20,
        trace_file=Path("/tmp/t/trace.json"),
        trace_rate=10,
        extra_arguments=("--strict-readiness=false",),
    )
    assert common_arguments(["a", "b"], options) == [
        "--exit-timeout-secs=3",
        "--log-verbose=1",
        "--model-control-mode=explicit",
        "--http-thread-count=4",
        "--load-model=a",
        "--load-model=b",
        "--backend-config=python,shm-growth-byte-size=2097152",
        "--trace-config=mode=triton",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=rate=10",
        "--trace-config=triton,file=/tmp/t/trace.json",
        "--trace-config=triton,log-frequency=0",
        "--strict-readiness=false",
    ]
    assert common_arguments(None, ServerOptions()) == ["--exit-timeout-secs=5"]


def test_free_ports_differ_and_can_be_bound() -> None:
    def choose_and_bind(_: int) -> None:  # the test beside this one may take one in between
        ports = choose_ports(ServerOptions())
        assert len({ports.http, ports.grpc, ports.metrics}) == 3
        for port in (ports.http, ports.grpc, ports.metrics):
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", port))

    in_one_of(choose_and_bind)


def test_taken_port_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=f"grpc_port {port} cannot be taken on 127.0.0.1"):
            choose_ports(ServerOptions(grpc_port=port))


def test_embedded_listens_on_the_loopback_and_marks_its_memory() -> None:
    environment = ServerEnvironment(Path("/env"), Path("/env/lib/python3.11/site-packages"))
    command = embedded_command(environment, Path("/models"), None, PORTS, ServerOptions())
    assert command[0] == "/env/lib/python3.11/site-packages/pytriton/tritonserver/bin/tritonserver"
    for name in ("http", "grpc", "metrics"):
        assert f"--{name}-address=127.0.0.1" in command
    assert {"--http-port=18000", "--grpc-port=18001", "--metrics-port=18002"} < set(command)
    assert {"--model-config-name=embedded", "--backend-directory=/env/triton-backends"} < set(command)
    assert "--disable-auto-complete-config" in command  # else each Python model starts twice
    assert "--backend-config=python,shm-region-prefix-name=workbook-triton-{identity}-" in command


# --- the server's environment ----------------------------------------------------------------------------------------


def test_process_environment_puts_the_server_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/cuda")
    variables = ServerEnvironment(Path("/env"), Path("/env/site")).process_environment()
    assert variables["PATH"] == "/env/bin:/usr/bin"
    assert variables["LD_LIBRARY_PATH"] == "/env/site/nvidia_pytriton.libs:/env/triton-libpython:/cuda"
    assert "PYTHONPATH" not in variables


@pytest.mark.parametrize(
    ("base_prefix", "fix"),
    [
        ("/usr", "apt-get install libpython3.11"),
        ("/home/me/.pyenv/versions/3.11.7", "PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install"),
        ("/opt/python", "built with --enable-shared"),
    ],
)
def test_missing_libpython_says_how_to_get_it(base_prefix: str, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: False)
    facts = {"minor": [3, 11], "libdir": "/x", "multiarch": "x86_64-linux-gnu", "base_prefix": base_prefix}
    with pytest.raises(SetupError, match=r"needs libpython3\.11\.so\.1\.0") as caught:
        find_libpython(facts)
    assert fix in str(caught.value)


def test_libpython_is_found_where_debian_has_it(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "x86_64-linux-gnu" / "libpython3.12.so.1.0"
    library.parent.mkdir(parents=True)
    library.touch()
    facts = {"minor": [3, 12], "libdir": "/x", "multiarch": "x86_64-linux-gnu", "base_prefix": str(tmp_path)}
    assert find_libpython(facts) == library


def test_no_server_environment_says_make_setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKBOOK_SERVER_ENV", str(tmp_path))
    with pytest.raises(SetupError, match="Run: make setup"):
        server_environment.prepare()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"numpy": "2.4.6"}, "has numpy 2.4.6, not 1.26.4. Run: make setup"),
        ({"wheel": None}, "has nvidia-pytriton not at all, not 0.7.0"),
        ({"minor": [3, 9]}, r"has Python 3.9, the workbook 3\.\d+; .* Run: make clean setup"),
    ],
)
def test_wrong_versions_are_named(change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"minor": list(sys.version_info[:2]), "numpy": "1.26.4", "wheel": "0.7.0", **change}
    monkeypatch.setattr(server_environment, "_probe", lambda _: facts)
    with pytest.raises(SetupError, match=message):
        server_environment.prepare()


# --- waiting ---------------------------------------------------------------------------------------------------------


def wait(log: str, *, alive: bool = False, timeout_s: float = 0.2) -> None:
    wait_until_ready(
        "127.0.0.1:9", ["m"], expected_name=None, is_alive=lambda: alive, log=lambda: log, timeout_s=timeout_s
    )


def test_dead_server_shows_the_error_that_matters() -> None:
    log = """E1130 12:46:34.645043 155 server.cc:241] "CudaDriverHelper has not been initialized."
E1130 12:46:34.645043 155 model_repository_manager.cc:1] "Poll failed for model directory 'x'"
E1130 12:46:34.645043 155 model_lifecycle.cc:642] "failed to load 'e5' version 1: Internal: no weights"
error: creating server: Internal - failed to load all models"""
    with pytest.raises(
        ServerError, match="first error: \"failed to load 'e5' version 1: Internal: no weights\""
    ) as caught:
        wait(log)
    assert caught.value.log_tail == log
    assert not isinstance(caught.value, PortTakenError)


@pytest.mark.parametrize(
    "line",
    [
        "E1130 12:46:34.6 155 http_server.cc:1] failed to start HTTP service: Socket '127.0.0.1:1' already in use",
        "docker: Error response from daemon: Bind for 127.0.0.1:18000 failed: port is already allocated.",
    ],
)
def test_taken_port_is_told_from_other_ends(line: str) -> None:
    with pytest.raises(PortTakenError):
        wait(line)


def test_late_server_names_the_limit() -> None:
    with pytest.raises(ServerError, match=r"not ready after 0\.2 s \(startup_timeout_s"):
        wait("", alive=True)


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\n" + b"\xff line\n" * 3 + b"last\n")
    assert read_tail(log, 2) == "\ufffd line\nlast"
    assert read_tail(log, 9, from_byte=4).startswith("\ufffd line")
    assert read_tail(tmp_path / "none", 2) == ""
    assert read_tail(None, 2) == ""


# --- supervisor ------------------------------------------------------------------------------------------------------

# a "server" whose helper has left its process group, and which has a file in /dev/shm; both ignore SIGTERM
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("/dev/shm/workbook-triton-" + sys.argv[1] + "-file", "w").close()
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
subprocess.Popen([sys.executable, "-c", code, "workbook-triton-" + sys.argv[1]], start_new_session=True)
print("up", flush=True)
time.sleep(300)
"""


def stubborn(tmp_path: Path, cleanup: list[str] | None = None) -> SupervisedProcess:
    log = tmp_path / "log"
    command = [sys.executable, "-c", STUBBORN, supervisor.IDENTITY_PLACEHOLDER]
    process = SupervisedProcess(Job(command, os.environ, log, grace_s=0.2, cleanup_command=cleanup or []))
    wait_for(lambda: "up" in log.read_text())
    wait_for(lambda: len(supervisor.processes_of(process.identity)) == 2)
    return process


def left_of(process: SupervisedProcess) -> list[object]:
    files = supervisor.SHARED_MEMORY_DIR.glob(f"{supervisor.shared_memory_prefix(process.identity)}*")
    return [*files, *supervisor.processes_of(process.identity)]


def test_stop_ends_a_server_that_does_not_want_to(tmp_path: Path) -> None:
    process = stubborn(tmp_path, ["touch", str(tmp_path / "cleaned-{identity}")])
    assert process.is_alive()
    assert len(left_of(process)) == 3
    process.stop()
    assert not process.is_alive()
    assert left_of(process) == []
    assert (tmp_path / f"cleaned-{process.identity}").exists()


def test_server_that_is_killed_is_cleared_without_being_asked(tmp_path: Path) -> None:
    process = stubborn(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not process.is_alive())
    assert process.exit_code() == -signal.SIGKILL
    assert left_of(process) == []
    process.stop()


def test_signal_to_the_supervisor_ends_both(tmp_path: Path) -> None:
    process = stubborn(tmp_path)
    os.kill(process.supervisor_pid, signal.SIGTERM)
    wait_for(lambda: supervisor.is_stale(process.identity))
    assert left_of(process) == []
    process.stop()


def test_stop_clears_up_after_a_killed_supervisor(tmp_path: Path) -> None:
    def kill_and_stop(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        process = stubborn(folder)
        os.kill(process.supervisor_pid, signal.SIGKILL)
        wait_for(lambda: not process.is_alive())
        left = left_of(process)  # the helper and the file
        process.stop()
        assert left_of(process) == []
        assert left  # unless a server that the test beside this one starts has cleared it up, as it should

    in_one_of(kill_and_stop)


def test_handle_that_is_dropped_stops_its_server(tmp_path: Path) -> None:
    process = stubborn(tmp_path)
    identity = process.identity
    del process
    assert supervisor.processes_of(identity) == []


def test_forked_child_cannot_stop_the_server(tmp_path: Path) -> None:
    process = stubborn(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            process.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert process.is_alive()
    process.stop()
    assert left_of(process) == []


def test_exit_code_of_a_server_that_ends_by_itself(tmp_path: Path) -> None:
    process = SupervisedProcess(Job([sys.executable, "-c", "raise SystemExit(3)"], os.environ, tmp_path / "log", 1))
    wait_for(lambda: not process.is_alive())
    assert process.exit_code() == 3
    process.stop()
    assert process.exit_code() == 3


def test_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="/no/such/program could not be started"):
        SupervisedProcess(Job(["/no/such/program"], os.environ, tmp_path / "log", 1))


def test_cpu_time_counts_the_children(tmp_path: Path) -> None:
    # more than is waited for: the kernel counts in ticks of 10 ms and may for ever show less than the child itself sees
    busy = "import time; e = time.process_time() + 0.6\nwhile time.process_time() < e: pass\ntime.sleep(300)"
    command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"]
    process = SupervisedProcess(Job(command, os.environ, tmp_path / "log", 0.2))
    wait_for(lambda: process.cpu_seconds() >= 0.3)
    process.stop()


def test_only_dead_supervisors_of_this_machine_are_stale() -> None:
    pid, ticks, namespace = supervisor.own_identity().split("-")
    assert not supervisor.is_stale(f"{pid}-{ticks}-{namespace}")
    assert supervisor.is_stale(f"{pid}-{int(ticks) - 1}-{namespace}")  # the number was given to another process
    assert supervisor.is_stale(f"{2**22 + 1}-{ticks}-{namespace}")
    assert not supervisor.is_stale(f"{2**22 + 1}-{ticks}-1")  # another container's


def test_empty_folders_of_servers_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STUB_FOLDERS", (tmp_path, "python_env_*"))
    program = tmp_path / supervisor.SERVER_PROGRAM
    program.symlink_to("/bin/sleep")
    before, full, after = (tmp_path / f"python_env_{name}" for name in ("before", "full", "after"))
    for folder in (before, full, after):
        folder.mkdir()
    (full / "kept").touch()
    with subprocess.Popen([program, "300"]) as server:
        try:
            wait_for(lambda: Path(f"/proc/{server.pid}/comm").read_text().strip() == supervisor.SERVER_PROGRAM)
            for folder in (before, full):
                os.utime(folder, (0, 0))  # older than any server that may run beside this test
            supervisor.remove_stub_folders()
            assert (before.exists(), full.exists(), after.exists()) == (False, True, True)
        finally:
            server.kill()
    monkeypatch.setattr(supervisor, "SERVER_PROGRAM", "a server that nobody runs")
    os.utime(after, (time.time() - 10,) * 2)
    supervisor.remove_stub_folders()
    assert (full.exists(), after.exists()) == (True, False)


# --- container -------------------------------------------------------------------------------------------------------


def test_docker_command_line() -> None:
    command = docker_command(Path("/run/my models"), PORTS, ServerOptions(), models=["e5_onnx"], gpus="all")
    assert shlex.join(command) == (
        "docker run --rm '--name=workbook-triton-{identity}' '--label=workbook.triton={identity}' --gpus=all "
        "--shm-size=1073741824 --ulimit=memlock=-1 "
        "--publish=127.0.0.1:18000:8000 --publish=127.0.0.1:18001:8001 --publish=127.0.0.1:18002:8002 "
        "'--mount=type=bind,source=/run/my models,target=/models,readonly' "
        "nvcr.io/nvidia/tritonserver:24.10-py3 tritonserver '--id={identity}' --model-repository=/models "
        "--exit-timeout-secs=5 --model-control-mode=explicit --load-model=e5_onnx"
    )


def test_docker_command_without_gpu_and_with_traces() -> None:
    options = ServerOptions(trace_file=Path("/run/traces/e5.json"), container_shm_bytes=2 << 30)
    command = docker_command(Path("/models"), PORTS, options)
    assert not any(part.startswith("--gpus") for part in command)
    assert "--shm-size=2147483648" in command
    assert "--mount=type=bind,source=/run/traces,target=/traces" in command
    assert "--trace-config=triton,file=/traces/e5.json" in command
    assert command.index(IMAGE) < command.index("tritonserver") < command.index("--model-repository=/models")


def test_folder_that_docker_cannot_mount_is_refused() -> None:
    with pytest.raises(SetupError, match="comma"):
        docker_command(Path("/a,b"), PORTS, ServerOptions())


@pytest.fixture
def fake_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker command of ours, first on PATH; returns the folder that steers it."""
    folder = tmp_path / "docker"
    folder.mkdir()
    script = folder / "docker"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_docker.py")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER_DIR", str(folder))
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repository" / "m").mkdir(parents=True)
    return tmp_path / "repository"


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_container_starts_and_leaves_nothing(fake_docker: Path, repository: Path, tmp_path: Path) -> None:
    log = tmp_path / "triton.log"
    with start_server("container", repository, options=ServerOptions(gpus="none"), log_file=log) as server:
        assert isinstance(server, container.ContainerServer)
        assert (server.kind, server.models, server.pid) == ("container", ("m",), None)
        assert server.is_alive()
        assert server.server_info.version == "2.51.0"
        assert "served /v2/models/m/ready" in server.log_tail()
        identity = server.container_name.removeprefix("workbook-triton-")
        assert not supervisor.is_stale(identity)
    assert not server.is_alive()
    assert supervisor.is_stale(identity)
    run = next(call for call in calls(fake_docker) if call[0] == "run")
    assert f"--name={server.container_name}" in run
    assert f"--label=workbook.triton={identity}" in run
    assert calls(fake_docker)[-1] == ["rm", "--force", server.container_name]


def test_container_of_a_killed_supervisor_is_removed_at_the_next_start(fake_docker: Path, repository: Path) -> None:
    pid, ticks, namespace = supervisor.own_identity().split("-")
    dead = f"{pid}-{int(ticks) - 1}-{namespace}"
    (fake_docker / "leftover").write_text(f"{dead}\n{supervisor.own_identity()}\n")
    with start_server("container", repository, options=ServerOptions(gpus="none")):
        assert ["rm", "--force", f"workbook-triton-{dead}"] in calls(fake_docker)
    assert not any(f"workbook-triton-{supervisor.own_identity()}" in call for call in calls(fake_docker))


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("no-daemon", "Docker does not answer .Cannot connect to the Docker daemon"),
        ("no-image", f"run docker pull {IMAGE}"),
        ("no-gpu-access", "install nvidia-container-toolkit"),
    ],
)
def test_what_docker_lacks_is_said(fake_docker: Path, repository: Path, flag: str, message: str) -> None:
    (fake_docker / flag).touch()
    with pytest.raises(SetupError, match=message) as caught:
        start_server("container", repository, options=ServerOptions(gpus="all"))
    assert 'server = "embedded"' in str(caught.value)


def test_no_docker_at_all(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SetupError, match=r"no docker command on PATH: install Docker, or give server = \"embedded\""):
        start_server("container", repository)
    assert resolve_kind("auto") == "embedded"


@pytest.mark.parametrize(("gpu", "kind"), [(True, "container"), (False, "embedded")])
def test_auto_takes_the_container_only_with_a_gpu(
    fake_docker: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool, kind: str
) -> None:
    nvidia_smi = fake_docker / "nvidia-smi"
    nvidia_smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200'\n" if gpu else "#!/bin/sh\nexit 9\n")
    nvidia_smi.chmod(0o755)
    assert resolve_kind("auto") == kind


# --- remote ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "host", "ports"),
    [
        ("remote:gpu-box:8001", "gpu-box", Ports(http=8000, grpc=8001, metrics=8002)),
        ("remote:10.0.0.7:9001:9500", "10.0.0.7", Ports(http=9500, grpc=9001, metrics=9002)),
        ("remote:h:1001:1002:1003", "h", Ports(http=1002, grpc=1001, metrics=1003)),
    ],
)
def test_address(address: str, host: str, ports: Ports) -> None:
    assert parse_address(address) == (host, ports)


@pytest.mark.parametrize("address", ["remote:", "remote:host", "remote:host:x", "remote:h:1:2:3:4", "remote:h:65536"])
def test_malformed_address_shows_the_form(address: str) -> None:
    with pytest.raises(SettingError, match="give remote:HOST:GRPC_PORT"):
        start_server(address)


def test_unreachable_remote_names_the_address() -> None:
    with socket.socket() as held:  # nobody else can take it, and nobody listens
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        with pytest.raises(ServerError, match=f"No ready Triton server answers at http://127.0.0.1:{port}"):
            start_server(f"remote:127.0.0.1:9:{port}")


def test_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(SettingError, match="server is 'cloud'; give auto, embedded, container or remote:"):
        start_server("cloud", Path("/models"))
    with pytest.raises(SettingError, match="needs a model repository"):
        start_server("embedded")
