"""trtexec: its command lines, its log read back, its process handled. No GPU: a stand-in prints what trtexec would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from busy_machine import wait_for
from trtexec_logs import BUILT, FAILED, NO_MODEL
from workbook.artifacts import file_sha256
from workbook.errors import ModelError, SettingError, SetupError
from workbook.models import engines, trtexec
from workbook.models.engine_inspection import inspect_engine, layer_precision
from workbook.models.engine_log import error_lines, parse_trtexec_log, parse_version
from workbook.models.engines import build_engine
from workbook.models.export import ExportedModel
from workbook.models.trtexec import EngineShapes, Trtexec, find_trtexec, trtexec_command

SEED_SHAPES = [
    "--minShapes=input_ids:1x1,attention_mask:1x1",
    "--optShapes=input_ids:32x128,attention_mask:32x128",
    "--maxShapes=input_ids:32x512,attention_mask:32x512",
    "--shapes=input_ids:32x512,attention_mask:32x512",
]


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ("[TensorRT v100500] [b18]", (10, 5, 0)),
        ("[TensorRT v101100] [b33]", (10, 11, 0)),  # ten eleven, not eleven one
        ("[TensorRT v110100] [b106]", (11, 1, 0)),
        ("[TensorRT v101303]", (10, 13, 3)),
        ("[TensorRT v8601]", (8, 6, 1)),
        ("[TensorRT v10.5.0]", (10, 5, 0)),
    ],
)
def test_version_from_the_banner(banner: str, version: tuple[int, int, int]):
    assert parse_version(f"&&&& RUNNING TensorRT.trtexec {banner} # trtexec --help\n=== Model Options ===") == version
    assert Trtexec("trtexec", version).generation == (11 if version[0] == 11 else 10)


def test_version_from_a_run_that_failed():
    assert parse_version(NO_MODEL) == (10, 13, 3)


def test_text_without_a_banner_is_no_log():
    with pytest.raises(ModelError, match=r"no banner .* ends with: command not found"):
        parse_version("sh: trtexec:\ncommand not found\n")


@pytest.mark.parametrize(
    ("precision", "flags"), [("fp32", []), ("fp16", ["--fp16"]), ("bf16", ["--bf16"]), ("best", ["--best"])]
)
def test_command_of_generation_10(precision: str, flags: list[str]):
    command = trtexec_command(Path("m.onnx"), Path("m.plan"), EngineShapes(), precision, 10, Path("t.cache"))
    assert command == [
        *("trtexec", "--onnx=m.onnx", "--saveEngine=m.plan"),
        *SEED_SHAPES,
        *flags,
        *("--useCudaGraph", "--timingCacheFile=t.cache", "--verbose"),
    ]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_command_of_generation_11_has_no_precision(precision: str):
    command = trtexec_command(Path("m.onnx"), Path("m.plan"), EngineShapes(), precision, 11)
    assert command == [
        *("trtexec", "--onnx=m.onnx", "--saveEngine=m.plan"),
        *SEED_SHAPES,
        *("--useCudaGraph", "--verbose"),
    ]


def test_other_shapes_and_switches():
    shapes = EngineShapes((1, 2), (4, 16), (8, 64))
    command = trtexec_command(Path("m"), Path("p"), shapes, "fp32", 10, cuda_graph=False, tf32=False, verbose=False)
    assert command[3:] == [
        "--minShapes=input_ids:1x2,attention_mask:1x2",
        "--optShapes=input_ids:4x16,attention_mask:4x16",
        "--maxShapes=input_ids:8x64,attention_mask:8x64",
        "--shapes=input_ids:8x64,attention_mask:8x64",
        "--noTF32",
    ]


@pytest.mark.parametrize(
    ("precision", "generation", "message"),
    [("best", 11, 'TensorRT 11 has no precision "best"'), ("int4", 10, "'int4'.*fp32, fp16"), ("fp32", 8, "is 8")],
)
def test_commands_no_trtexec_would_take(precision: str, generation: int, message: str):
    with pytest.raises(SettingError, match=message):
        trtexec_command(Path("m"), Path("p"), EngineShapes(), precision, generation)


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [(((0, 1), (1, 1), (1, 1)), "batch"), (((1, 1), (9, 1), (8, 1)), "batch"), (((1, 8), (1, 4), (1, 8)), "sequence")],
)
def test_shapes_out_of_order(shapes: tuple[tuple[int, int], ...], axis: str):
    with pytest.raises(SettingError, match=f"{axis} min/opt/max are"):
        EngineShapes(*shapes)


def test_figures_of_a_build():
    build = parse_trtexec_log(BUILT)
    assert build.tensorrt_version == (10, 5, 0)
    assert (build.build_s, build.engine_bytes, build.throughput_executions_per_s) == (36.5, 1_572_864, 123.25)
    assert (build.gpu_latency_mean_ms, build.gpu_latency_median_ms, build.gpu_latency_p99_ms) == (8.0625, 8, 8.375)
    assert build.warnings == (
        "[TRT] ModelImporter.cpp:420: Make sure input input_ids has Int64 binding.",
        "* GPU compute time is unstable, with coefficient of variance = 2.5%.",
    )


def test_a_build_that_was_not_measured():
    text = "\n".join(line for line in BUILT.splitlines() if "Time:" not in line and "Throughput" not in line)
    build = parse_trtexec_log(text)
    assert build.build_s == 36.5
    assert build.gpu_latency_mean_ms is build.throughput_executions_per_s is None


def test_a_failed_build_tells_its_error_lines():
    with pytest.raises(ModelError, match=r"trtexec 11\.1\.0 failed:\n\[TRT\] ITensor.*\nFailed to parse onnx file\n"):
        parse_trtexec_log(FAILED)
    assert error_lines("one\ntwo\n") == "one\ntwo"
    assert error_lines("") == "it printed nothing"


# ---- the process ----------------------------------------------------------------------------------------------------

STAND_IN = """\
#!{python}
import json, os, subprocess, sys, time
from pathlib import Path

here = Path({folder!r})
plan = [Path(a.split("=", 1)[1]) for a in sys.argv if a.startswith("--saveEngine=")]
if not plan:
    print("&&&& RUNNING TensorRT.trtexec [TensorRT v{number}] # trtexec --help")
    sys.exit(0)
(here / "calls").open("a").write(json.dumps(sys.argv[1:]) + "\\n")
if {mode!r} == "hang":
    child = subprocess.Popen(["sleep", "600"])
    (here / "pids").write_text(f"{{os.getpid()}} {{child.pid}}")
    print("[11/30/2026-10:00:04] [I] Start parsing network model.", flush=True)
    time.sleep(600)
print((here / "log").read_text().replace("v100500", "v{number}"), end="")
if {mode!r} == "build":
    plan[0].write_bytes(b"plan")
sys.exit({mode!r} == "fail")
"""


def stand_in(folder: Path, mode: str = "build", log: str = BUILT, number: str = "100500") -> Trtexec:
    """An executable that behaves as trtexec towards whoever started it."""
    folder.mkdir(exist_ok=True)
    (folder / "log").write_text(log)
    program = folder / "trtexec"
    program.write_text(STAND_IN.format(python=sys.executable, folder=str(folder), mode=mode, number=number))
    program.chmod(0o755)
    return Trtexec(str(program), parse_version(f"TensorRT.trtexec [TensorRT v{number}]"))


def calls(folder: Path) -> list[list[str]]:
    path = folder / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExportedModel:
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path / "artifacts"))
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", value[:1], value[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return ExportedModel(path, file_sha256(path), 8, 2, 512, "bundled", path.stat().st_size)


def test_an_engine_is_built_once_and_keeps_its_log(tmp_path: Path, exported: ExportedModel):
    told: list[str] = []
    tool = stand_in(tmp_path / "trt")
    engine = build_engine(exported, "fp16", tool, "GPU A", notify=told.append)
    assert engine == build_engine(exported, "fp16", tool, "GPU A", notify=told.append)
    (arguments,) = calls(tmp_path / "trt")
    assert arguments[:1] == [f"--onnx={exported.path}"]
    assert "--fp16" in arguments
    cache = next(a for a in arguments if a.startswith("--timingCacheFile"))
    assert cache == f"--timingCacheFile={tmp_path}/artifacts/engine/timing-10.5.0-gpu-a.cache"
    assert engine.path.read_bytes() == b"plan"
    assert (engine.build.engine_bytes, engine.build.build_s) == (4, 36.5)
    assert engine.log_file.read_text() == BUILT
    assert [line.strip() for line in told] == [
        "TensorRT 10.5.0 builds a fp16 engine on GPU A; this takes minutes.",
        "reading the ONNX file ...",
        "optimising the graph ...",
        "timing kernels ...",
        "writing the engine ...",
        "measuring the engine ...",
    ]


def test_another_tensorrt_or_gpu_rebuilds_and_says_so(tmp_path: Path, exported: ExportedModel):
    told: list[str] = []
    build_engine(exported, "bf16", stand_in(tmp_path / "ten"), "GPU A", notify=lambda _: None)
    build_engine(exported, "bf16", stand_in(tmp_path / "ten"), "GPU B", notify=told.append)
    assert told[0] == (
        "The bf16 engine of TensorRT 10.5.0 on GPU A loads nowhere else; this is TensorRT 10.5.0 on GPU B, so it is "
        "built again."
    )
    told.clear()
    build_engine(exported, "bf16", stand_in(tmp_path / "eleven", number="110100"), "GPU A", notify=told.append)
    assert sum("so it is built again" in line for line in told) == 2
    assert "--bf16" not in calls(tmp_path / "eleven")[0]


@pytest.mark.parametrize("change", ["onnx", "shapes", "precision", "tf32"])
def test_another_model_or_setting_is_another_engine_without_a_word(tmp_path: Path, exported: ExportedModel, change):
    tool, told = stand_in(tmp_path / "trt"), []
    build_engine(exported, "fp32", tool, "GPU", notify=lambda _: None)
    source = replace(exported, sha256="other") if change == "onnx" else exported
    shapes = EngineShapes(max=(64, 512)) if change == "shapes" else None
    precision = "best" if change == "precision" else "fp32"
    build_engine(source, precision, tool, "GPU", shapes=shapes, tf32=change != "tf32", notify=told.append)
    assert len(calls(tmp_path / "trt")) == 2
    assert not [line for line in told if "built again" in line]


def test_a_failed_build_leaves_its_log_and_no_engine(tmp_path: Path, exported: ExportedModel):
    tool = stand_in(tmp_path / "trt", "fail", FAILED)
    with pytest.raises(
        ModelError, match=r"no fp32 engine of .*exit code 1\):\n\[TRT\] ITensor(.|\n)*whole log: "
    ) as error:
        build_engine(exported, "fp32", tool, "GPU", notify=lambda _: None)
    assert Path(str(error.value).rsplit(": ", 1)[1]).read_text() == FAILED
    assert not list((tmp_path / "artifacts" / "engine").glob("*/model.plan"))


@pytest.mark.parametrize("content", [b"", b"other"])
def test_a_kept_engine_that_was_damaged_is_refused(tmp_path: Path, exported: ExportedModel, content: bytes):
    tool = stand_in(tmp_path / "trt")
    plan = build_engine(exported, "fp32", tool, "GPU", notify=lambda _: None).path
    plan.write_bytes(content)
    with pytest.raises(
        ModelError, match=rf"has {len(content)} bytes, and 4 were built.*delete the folder {plan.parent}"
    ):
        build_engine(exported, "fp32", tool, "GPU", notify=lambda _: None)


def test_success_without_an_engine_is_a_failure(tmp_path: Path, exported: ExportedModel):
    with pytest.raises(ModelError, match="no fp32 engine"):
        build_engine(exported, "fp32", stand_in(tmp_path / "trt", "nothing"), "GPU", notify=lambda _: None)


def test_a_tool_of_another_version_than_it_should_be(tmp_path: Path, exported: ExportedModel):
    tool = replace(stand_in(tmp_path / "trt", number="100600"), version=(10, 5, 0))
    with pytest.raises(ModelError, match=r"should be TensorRT 10\.5\.0 and is 10\.6\.0"):
        build_engine(exported, "fp32", tool, "GPU", notify=lambda _: None)


@pytest.mark.parametrize("content", [b"", b"not a model"])
def test_a_malformed_model_is_named_before_the_start(tmp_path: Path, exported: ExportedModel, content: bytes):
    exported.path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.onnx \(\d+ bytes\) is no valid ONNX model"):
        build_engine(exported, "fp32", stand_in(tmp_path / "trt"), "GPU", notify=lambda _: None)
    assert calls(tmp_path / "trt") == []


def test_best_on_eleven_is_refused_before_the_start(tmp_path: Path, exported: ExportedModel):
    tool = stand_in(tmp_path / "trt", number="110100")
    with pytest.raises(SettingError, match="Give fp32, fp16 or bf16"):
        build_engine(exported, "best", tool, "GPU", notify=lambda _: None)
    assert calls(tmp_path / "trt") == []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: Path) -> None:
    """A signal was sent; a busy machine may take a while to act on it."""
    for pid in pids.read_text().split():
        wait_for(lambda pid=pid: not is_running(int(pid)))


def test_ctrl_c_ends_trtexec_and_what_it_started(tmp_path: Path, exported: ExportedModel):
    tool = stand_in(tmp_path / "trt", "hang")
    program = textwrap.dedent(f"""
        from pathlib import Path
        from workbook.models.engines import build_engine
        from workbook.models.export import ExportedModel
        from workbook.models.trtexec import Trtexec
        exported = ExportedModel(Path({str(exported.path)!r}), "x", 8, 2, 512, "bundled", 1)
        build_engine(exported, "fp32", Trtexec({tool.program!r}, (10, 5, 0)), "GPU")
    """)
    with subprocess.Popen([sys.executable, "-uc", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert any(b"reading the ONNX file" in line for line in process.stdout)  # it reads what trtexec prints
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert b"KeyboardInterrupt" in errors
    wait_until_gone(tmp_path / "trt" / "pids")
    assert not list((tmp_path / "artifacts" / "engine").glob("*/"))


def test_an_error_while_it_runs_ends_trtexec_at_once(tmp_path: Path, exported: ExportedModel):
    def notify(line: str) -> None:
        if "reading" in line:
            raise ZeroDivisionError

    start = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        build_engine(exported, "fp32", stand_in(tmp_path / "trt", "hang"), "GPU", notify=notify)
    assert time.monotonic() - start < 120  # it would have slept for 600 s
    wait_until_gone(tmp_path / "trt" / "pids")


# ---- finding it -----------------------------------------------------------------------------------------------------


def on_path(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join(str(folder) for folder in folders))


def test_nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    on_path(monkeypatch, tmp_path)
    assert find_trtexec() is None


def test_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stand_in(tmp_path / "trt", number="101100")
    on_path(monkeypatch, tmp_path / "trt")
    found = find_trtexec()
    assert found == Trtexec(str(tmp_path / "trt" / "trtexec"), (10, 11, 0))
    assert found.wrap(["trtexec", "--a"], [tmp_path]) == [found.program, "--a"]


def test_a_broken_tool_on_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "trtexec"
    program.write_text("#!/bin/sh\necho libnvinfer.so.10: cannot open shared object file >&2\nexit 127\n")
    program.chmod(0o755)
    on_path(monkeypatch, tmp_path)
    with pytest.raises(SetupError, match=r"libnvinfer.*take it off PATH"):
        find_trtexec()


def test_found_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$3" = nvcr.io/nvidia/tritonserver:24.10-py3 ]\n')
    docker.chmod(0o755)
    on_path(monkeypatch, tmp_path)
    found = find_trtexec()
    assert found == Trtexec("nvcr.io/nvidia/tritonserver:24.10-py3", (10, 5, 0), in_container=True)


def test_command_line_in_a_container():
    tool = Trtexec("nvcr.io/nvidia/tensorrt:24.10-py3", (10, 5, 0), in_container=True)
    assert tool.wrap(["trtexec", "--onnx=/a/m.onnx"], [Path("/a"), Path("/b"), Path("/a")], "name") == [
        *("docker", "run", "--rm", "--init", "--name=name", "--gpus=all", f"--user={os.getuid()}:{os.getgid()}"),
        *("--mount=type=bind,source=/a,target=/a", "--mount=type=bind,source=/b,target=/b"),
        *("--entrypoint=sh", "nvcr.io/nvidia/tensorrt:24.10-py3", "-c", trtexec._IN_CONTAINER, "trtexec"),
        "--onnx=/a/m.onnx",
    ]
    with pytest.raises(SetupError, match="comma"):
        tool.wrap(["trtexec"], [Path("/a,b")])


def test_the_shell_line_hands_arguments_on(tmp_path: Path):
    stand_in(tmp_path / "trt")
    environment = {"PATH": f"{tmp_path / 'trt'}:/usr/bin:/bin"}
    plan = tmp_path / "a b.plan"
    command = ["sh", "-c", trtexec._IN_CONTAINER, "trtexec", f"--saveEngine={plan}"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert plan.read_bytes() == b"plan"


# ---- looking inside -------------------------------------------------------------------------------------------------


def test_inspection_without_tensorrt_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    plan = tmp_path / "model.plan"
    plan.write_bytes(b"plan")
    found = inspect_engine(plan)
    assert not found.available
    assert found.layers == 0
    assert "pypi.nvidia.com" in found.reason
    with pytest.raises(ModelError, match="there is no engine"):
        inspect_engine(tmp_path / "other.plan")


@pytest.mark.parametrize(
    ("layer", "precision"),
    [
        ("a bare name", "unknown"),
        ({"Outputs": []}, "unknown"),
        ({"Outputs": [{"Format/Datatype": "Row major linear FP16 format", "DataType": "Half"}]}, "Half"),
        ({"Outputs": [{"Format/Datatype": "Row major Linear Half"}, {"Format/Datatype": "Float"}]}, "Half"),
    ],
)
def test_precision_of_a_layer(layer: object, precision: str):
    assert layer_precision(layer) == precision


def test_public_names():
    assert engines.__all__ == sorted(engines.__all__, key=lambda name: (name[0].islower(), name))
    assert all(hasattr(engines, name) for name in engines.__all__)
