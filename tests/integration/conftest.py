"""Running servers that tests of several files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from workbook.models.e5 import Encoder
from workbook.models.variants import VariantModel
from workbook.serving.encoder_spec import EncoderOptions, e5_onnx_spec
from workbook.serving.model_spec import DynamicBatching
from workbook.serving.repository import assemble_repository, committed_repository
from workbook.serving.server import Server, start_server


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "integration: starts a real server or runs a real model")


@pytest.fixture(scope="session")
def null_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An embedded server with the null model."""
    log = tmp_path_factory.mktemp("null") / "triton.log"
    with start_server("embedded", committed_repository(), models=["null"], log_file=log) as server:
        yield server


@pytest.fixture(scope="session")
def bundled_encoder() -> Encoder:
    """The real multilingual-e5-small."""
    from workbook.models.e5 import load_encoder

    return load_encoder("bundled")


@pytest.fixture(scope="session")
def short_encoder(bundled_encoder: Encoder) -> Encoder:
    """Its first two layers, on the same weights."""
    from workbook.models.e5 import first_layers

    return first_layers(bundled_encoder, 2)


@pytest.fixture(scope="session")
def short_variants(short_encoder: Encoder) -> dict[str, VariantModel]:
    """Every variant of the two layers that runs in this process, by name."""
    from workbook.models.export import export_onnx
    from workbook.models.machine import describe_machine
    from workbook.models.variants import VARIANTS, Ingredients, choose_variants, make_variant

    machine = describe_machine()
    ingredients = Ingredients(short_encoder, export_onnx(short_encoder), machine)
    runnable, not_run = choose_variants([variant.name for variant in VARIANTS], machine)
    assert len(runnable) + len(not_run) == len(VARIANTS)
    return {variant.name: make_variant(variant, ingredients) for variant in runnable if variant.in_process}


@pytest.fixture(scope="session")
def e5_repository(tmp_path_factory: pytest.TempPathFactory, bundled_encoder: Encoder) -> Path:
    """A repository with the real e5, two threads, a batcher that waits 20 ms."""
    from workbook.models.export import export_onnx

    exported = export_onnx(bundled_encoder)
    options = EncoderOptions(
        exported.hidden_size,
        threads=2,
        dynamic_batching=DynamicBatching(max_queue_delay_microseconds=20_000),
        vocabulary_size=bundled_encoder.module.config.vocab_size,
    )
    spec = e5_onnx_spec(options, backend="embedded")
    files = {file.name: file for file in exported.files}
    return assemble_repository(tmp_path_factory.mktemp("e5") / "repository", [(spec, files)], "embedded")


@pytest.fixture(scope="session")
def e5_server(e5_repository: Path) -> Iterator[Server]:
    """An embedded server with the real e5."""
    with start_server("embedded", e5_repository, log_file=e5_repository.parent / "triton.log") as server:
        yield server
