"""Variants of the encoder side by side on one running server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbook.errors import ModelError, ServerError
from workbook.models.engine_record import check_engine
from workbook.serving.encoder_server import NULL_MODEL
from workbook.serving.encoder_spec import EncoderOptions, null_spec
from workbook.serving.model_spec import Backend, DynamicBatching, ModelSpec, backend_of
from workbook.serving.repository import assemble_repository
from workbook.serving.server import Server, ServerOptions, resolve_kind, start_server
from workbook.serving.variant_spec import served_name, variant_files, variant_spec

if TYPE_CHECKING:
    from workbook.models.e5 import Encoder
    from workbook.models.variants import VariantModel
    from workbook.runs import Run
    from workbook.settings import Settings

LEAST_BATCH_SIZE = 32


def start_variant_server(
    encoder: Encoder, models: Sequence[VariantModel], settings: Settings, run: Run, *, in_turn: bool = True
) -> Server:
    """Write a repository with one model a variant, and the null model, into the run directory and serve it.

    Args:
        encoder: gives the vocabulary's size, so that a wrong token id is refused with a plain message.
        models: from `make_variant`.
        settings: server, threads, instances, batching.
        run: where repository and log go.
        in_turn: load no variant yet: `server.load_model` and `unload_model` bring them in one at a time, so that one
            alone holds memory and threads. False loads all at start.

    Returns:
        The running server; a remote one is only looked at and serves what it serves.

    Raises:
        ModelError: a file is missing, or an engine is not what was built: found before anything is started.
        SettingError, SetupError, ServerError: as `start_server`; a file that does not load is named, with the way to
            make it anew.
    """
    names = [served_name(model.variant) for model in models]
    kind = resolve_kind(settings.server)
    if kind.startswith("remote:"):
        return start_server(kind, models=names)
    check_files(models)
    backend = backend_of(kind)
    entries = [(_spec(encoder, model, settings, backend), variant_files(model, backend)) for model in models]
    repository = run.directory / "model_repository" / run.notebook
    assemble_repository(repository, [*entries, (null_spec(encoder.hidden_size), {})], backend)
    options = ServerOptions(
        startup_timeout_s=settings.startup_timeout_s,
        model_control_mode="explicit",
        grpc_infer_thread_count=settings.grpc_infer_thread_count or None,
    )
    wanted = [NULL_MODEL] if in_turn else [*names, NULL_MODEL]
    try:
        return start_server(kind, repository, models=wanted, options=options, log_file=run.log_path)
    except ServerError as error:
        raise explain_load_failure(error, models) from error


def check_files(models: Sequence[VariantModel]) -> None:
    """Do nothing where every file lies there, and every engine is the one that was built.

    Raises:
        ModelError: the first that is not, with what to delete.
    """
    for model in models:
        if model.engine is not None:
            check_engine(model.path, model.sha256, model.bytes)
        elif not model.path.is_file():
            raise ModelError(
                f"{model.variant.name}: there is no file {model.path}. Delete its folder and run notebook "
                "02_build_engines again."
            )


def fit_in_memory(models: Sequence[VariantModel], share: float = 0.5) -> bool:
    """Whether all variants may be loaded at once: three times their files within a share of the memory now free.

    A library keeps its own layout of the weights beside the file's; three times is more than any of ours took.
    """
    import psutil

    return 3 * sum(model.bytes for model in models) <= share * int(psutil.virtual_memory().available)


@contextmanager
def serving(server: Server, model: VariantModel) -> Iterator[str]:
    """The variant on the server while the block runs, under its name there; one loaded at start simply stays.

    Raises:
        ServerError: it does not load; the message says what to make anew.
    """
    name = served_name(model.variant)
    if name in server.models:
        yield name
        return
    load_variant(server, model)
    try:
        yield name
    finally:
        if server.is_alive():
            unload_variant(server, model)


def load_variant(server: Server, model: VariantModel) -> str:
    """Load a variant into a server that was started with `in_turn`; returns its name there.

    A remote server's models are left as they are.

    Raises:
        ServerError: it does not load; the message says what to make anew.
    """
    name = served_name(model.variant)
    if server.kind == "remote":
        return name
    try:
        server.load_model(name)
    except ServerError as error:
        raise explain_load_failure(error, [model]) from error
    return name


def unload_variant(server: Server, model: VariantModel) -> None:
    """Unload it again, and free its memory; nothing happens to a remote server."""
    if server.kind != "remote":
        server.unload_model(served_name(model.variant))


def batching_of(settings: Settings) -> DynamicBatching | None:
    """The batcher that the settings ask for; None where every request runs alone."""
    if not settings.dynamic_batching:
        return None
    return DynamicBatching(
        max_queue_delay_microseconds=settings.queue_delay_microseconds,
        preferred_batch_sizes=settings.preferred_batch_sizes,
    )


def explain_load_failure(error: ServerError, models: Sequence[VariantModel]) -> ServerError:
    """The error with what to do about each variant that it says did not load."""
    text = f"{error}\n{error.log_tail}"
    failed = [model for model in models if re.search(rf"\b{re.escape(served_name(model.variant))}\b", text)]
    if not failed or re.search(r"\bports?\b", str(error).splitlines()[0]):
        return error
    fixes = "; ".join(
        f"{model.variant.name}: delete the folder {model.path.parent} and run notebook 02_build_engines again"
        for model in failed
    )
    tied = (
        " An engine loads only in the TensorRT and on the GPU that built it." if any(m.engine for m in failed) else ""
    )
    return ServerError(f"{str(error).splitlines()[0]}\nIf its file is malformed, {fixes}.{tied}", error.log_tail)


def _spec(encoder: Encoder, model: VariantModel, settings: Settings, backend: Backend) -> ModelSpec:
    options = EncoderOptions(
        model.hidden_size,
        threads=settings.compute_threads,
        instances=settings.instances,
        dynamic_batching=batching_of(settings),
        max_batch_size=max(LEAST_BATCH_SIZE, settings.batch_size),
        max_tokens=min(model.max_length, settings.max_length),
        vocabulary_size=int(encoder.config.vocab_size),
    )
    return variant_spec(model.variant, options, backend=backend)
