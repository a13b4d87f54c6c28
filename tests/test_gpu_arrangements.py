import subprocess
import sys

import pytest

from workbook.analysis.gpu_copies import gpu_ledger, place_of_input
from workbook.artifacts import PROJECT_DIR
from workbook.environment import gpu_names
from workbook.errors import SettingError
from workbook.serving.gpu_arrangements import (
    FORCE_CPU,
    gpu_arrange,
    gpu_options,
)
from workbook.serving.model_config import read_config_pbtxt, to_config_pbtxt
from workbook.serving.options import ServerOptions

MIB = 1 << 20


def places(arrangement: str, size: int, **options: object) -> list[str]:
    return [copy.place for copy in gpu_ledger(arrangement, size, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("stay", "value", "memory"), [(True, "no", "gpu"), (False, "yes", "cpu")])
def test_inputs_stay_on_the_gpu_only_where_asked(stay: bool, value: str, memory: str) -> None:
    specs = {spec.name: spec for spec, _ in gpu_arrange(stay_on_gpu=stay)}
    assert set(specs) == {f"copies_gpu_{name}" for name in ("monolith", "ensemble", "bls", "make", "shift", "total")}
    assert {spec.parameters[FORCE_CPU] for spec in specs.values() if not spec.steps} == {value}
    assert specs["copies_gpu_bls"].parameters["preferred_memory"] == memory
    assert {(i.kind, i.gpus) for spec in specs.values() for i in spec.instances} == {("gpu", (0,))}
    for spec in specs.values():
        assert read_config_pbtxt(to_config_pbtxt(spec)) == spec


def test_every_python_model_has_code() -> None:
    for spec, files in gpu_arrange(stay_on_gpu=True):
        assert bool(spec.steps) or files["model.py"].is_file()


def test_the_pool_goes_to_the_server_beside_what_was_set() -> None:
    options = gpu_options(256 * MIB, ServerOptions(extra_arguments=("--a=b",)))
    assert options.extra_arguments == ("--a=b", "--cuda-memory-pool-byte-size=0:268435456")
    with pytest.raises(SettingError, match="pool_bytes is -1"):
        gpu_options(-1)


def test_ledger_one_device_copy_a_hop_while_the_pool_has_room() -> None:
    assert places("monolith", MIB, stay_on_gpu=True) == []
    assert places("ensemble", MIB, stay_on_gpu=True) == ["device", "device"]
    assert places("ensemble", 50 * MIB, stay_on_gpu=True) == ["device", "device"]  # one of 50 fits into 64
    assert len(places("ensemble", 50 * MIB, stay_on_gpu=True, in_flight=2)) == 4  # two do not
    assert len(places("ensemble", 50 * MIB, stay_on_gpu=True, in_flight=2, pool_bytes=128 * MIB)) == 2


def test_ledger_by_default_the_tensor_goes_to_the_cpu_and_back() -> None:
    assert places("bls", MIB, stay_on_gpu=False) == ["device", "device to host", "host to device"] * 2
    with pytest.raises(SettingError, match="arrangement is 'handle'"):
        gpu_ledger("handle", MIB, stay_on_gpu=False)


def test_the_last_stage_tells_where_its_input_was() -> None:
    assert place_of_input(1000) == (1000, "CPU")
    assert place_of_input(1000 + (1 << 48)) == (1000, "GPU")


@pytest.mark.skipif(bool(gpu_names()), reason="this machine has a GPU: run tests/gpu/measure_copies.py itself")
def test_without_a_gpu_the_script_says_so() -> None:
    script = PROJECT_DIR / "tests" / "gpu" / "measure_copies.py"
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert ended.stderr.strip() == "Not run on this machine: nvidia-smi shows no GPU."
