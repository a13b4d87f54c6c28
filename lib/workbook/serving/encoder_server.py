"""An exported encoder on a running server, from the settings of a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbook.serving.encoder_spec import EncoderOptions, e5_onnx_spec, null_spec
from workbook.serving.model_spec import DynamicBatching, backend_of
from workbook.serving.repository import assemble_repository
from workbook.serving.server import Server, ServerOptions, resolve_kind, start_server

if TYPE_CHECKING:
    from workbook.models.e5 import Encoder
    from workbook.models.export import ExportedModel
    from workbook.runs import Run
    from workbook.settings import Settings

ENCODER_MODEL = "e5_onnx"
NULL_MODEL = "null"


def start_encoder_server(
    encoder: Encoder,
    exported: ExportedModel,
    settings: Settings,
    run: Run,
    *,
    dynamic_batching: DynamicBatching | None = None,
) -> Server:
    """Write the repository into the run directory and serve the encoder and the null model from it.

    The encoder computes with `settings.compute_threads` threads in each of `settings.instances` instances. The null
    model answers at once: it shows what client and server cost when the model costs nothing.

    Args:
        encoder: gives the vocabulary's size, so that a wrong token id is refused with a plain message.
        exported: its ONNX file.
        settings: server, threads, instances, batch size.
        run: where repository and log go.
        dynamic_batching: None: every request runs alone, as it must when requests already fill the batch.

    Returns:
        The running server, both models ready; a remote one is only looked at, never changed.

    Raises:
        SettingError, SetupError, ServerError: as `start_server`.
    """
    kind = resolve_kind(settings.server)
    models = [ENCODER_MODEL, NULL_MODEL]
    if kind.startswith("remote:"):
        return start_server(kind, models=models)
    backend = backend_of(kind)
    encoder_options = EncoderOptions(
        exported.hidden_size,
        threads=settings.compute_threads,
        instances=settings.instances,
        dynamic_batching=dynamic_batching,
        max_batch_size=max(32, settings.batch_size),
        max_tokens=min(exported.max_length, settings.max_length),
        vocabulary_size=int(encoder.config.vocab_size),
    )
    spec = e5_onnx_spec(encoder_options, backend=backend)
    weights = {file.name: file for file in exported.files}
    destination = run.directory / "model_repository" / run.notebook
    repository = assemble_repository(destination, [(spec, weights), (null_spec(exported.hidden_size), {})], backend)
    options = ServerOptions(startup_timeout_s=settings.startup_timeout_s)
    return start_server(kind, repository, models=models, options=options, log_file=run.log_path)
