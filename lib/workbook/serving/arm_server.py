"""All served forms of the encoder that the comparison of batch and online needs, on one running server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.serving.encoder_server import ENCODER_MODEL, NULL_MODEL
from workbook.serving.encoder_spec import EncoderOptions, e5_onnx_spec, encoder_code, null_spec
from workbook.serving.model_spec import Backend, DynamicBatching, ModelSpec, backend_of
from workbook.serving.repository import assemble_repository
from workbook.serving.server import Server, ServerOptions, resolve_kind, start_server

if TYPE_CHECKING:
    from workbook.models.e5 import Encoder
    from workbook.models.export import ExportedModel
    from workbook.runs import Run
    from workbook.settings import Settings

STREAMS_MODEL = "e5_streams"
"""Several instances, each with its share of the threads."""
ROWS_MODEL = "e5_rows"
"""One instance that puts waiting requests of single rows together."""
MOST_ROWS = 128


def depth_model(layers: int) -> str:
    """Name of the encoder cut to its first layers."""
    return f"e5_depth_{layers}"


def start_arm_server(
    encoder: Encoder,
    exported: ExportedModel,
    settings: Settings,
    run: Run,
    *,
    depths: Mapping[int, ExportedModel] | None = None,
) -> Server:
    """Serve the encoder as ENCODER_MODEL, STREAMS_MODEL and ROWS_MODEL, its cuts as `depth_model`, and the null model.

    All have the same weights and together no more threads than `settings.compute_threads`, since only one is asked at a
    time. A remote server is only looked at: there all forms are its ENCODER_MODEL.

    Args:
        encoder: gives the vocabulary's size.
        exported: its ONNX file.
        settings: server, threads, streams, batch size.
        run: where repository and log go.
        depths: layers -> the encoder cut to them, exported.

    Raises:
        SettingError, SetupError, ServerError: as `start_server`.
    """
    kind = resolve_kind(settings.server)
    if kind.startswith("remote:"):
        return start_server(kind, models=[ENCODER_MODEL, NULL_MODEL])
    backend = backend_of(kind)
    threads, streams = settings.compute_threads, settings.compute_streams
    forms: dict[str, tuple[ExportedModel, int, int, DynamicBatching | None]] = {
        ENCODER_MODEL: (exported, threads, 1, None),
        STREAMS_MODEL: (exported, max(1, threads // streams), streams, None),
        ROWS_MODEL: (exported, threads, 1, DynamicBatching()),
        **{depth_model(layers): (model, threads, 1, None) for layers, model in (depths or {}).items()},
    }
    entries = [
        (_spec(name, encoder, settings, backend, form), _files(form[0], backend)) for name, form in forms.items()
    ]
    repository = run.directory / "model_repository" / run.notebook
    assemble_repository(repository, [*entries, (null_spec(exported.hidden_size), {})], backend)
    options = ServerOptions(startup_timeout_s=settings.startup_timeout_s)
    return start_server(kind, repository, models=[*forms, NULL_MODEL], options=options, log_file=run.log_path)


def served_models(server: Server) -> tuple[str, str]:
    """The models that stand for streams and for single rows: a remote server has ENCODER_MODEL alone."""
    return (STREAMS_MODEL, ROWS_MODEL) if STREAMS_MODEL in server.models else (ENCODER_MODEL, ENCODER_MODEL)


def _spec(
    name: str,
    encoder: Encoder,
    settings: Settings,
    backend: Backend,
    form: tuple[ExportedModel, int, int, DynamicBatching | None],
) -> ModelSpec:
    exported, threads, instances, batching = form
    options = EncoderOptions(
        exported.hidden_size,
        threads=threads,
        instances=instances,
        dynamic_batching=batching,
        max_batch_size=settings.batch_size if batching else max(MOST_ROWS, settings.batch_size),
        max_tokens=min(exported.max_length, settings.max_length),
        vocabulary_size=int(encoder.config.vocab_size),
    )
    return replace(e5_onnx_spec(options, backend=backend), name=name)


def _files(exported: ExportedModel, backend: Backend) -> dict[str, Path]:
    return {**{file.name: file for file in exported.files}, **encoder_code(backend)}
