"""Members and ensemble on a running server whose configuration can be changed between two measurements."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from workbook.errors import SettingError
from workbook.serving.control import get_json, is_ready
from workbook.serving.ensemble_spec import (
    ENSEMBLE,
    MEMBER_A,
    MEMBER_B,
    NULL_A,
    NULL_B,
    NULL_ENSEMBLE,
    NULL_MEMBER,
    EnsembleVariant,
    ensemble_spec,
    member_a_spec,
    member_b_spec,
    null_ensemble_spec,
    null_member_spec,
)
from workbook.serving.model_spec import Backend, ModelSpec, backend_of
from workbook.serving.repository import assemble_repository, committed_repository
from workbook.serving.server import Server, ServerOptions, resolve_kind, start_server

if TYPE_CHECKING:
    from workbook.models.segmentation_model import SegmentationModel

SERVED = (MEMBER_A, MEMBER_B, ENSEMBLE)
NULL_MODELS = (NULL_A, NULL_B, NULL_ENSEMBLE)


class EnsembleServer:
    """A server with the two members, their ensemble and an ensemble of two members that do nothing.

    Use it in a `with` statement.

    Attributes:
        server: the running server.
        variant: the configuration it serves now.
        trace_file: where Triton writes what it traces; None: it was started without.
        cold: whether A was loaded anew and has run no full batch since; whoever warms it up sets it to False.
    """

    def __init__(
        self,
        server: Server,
        model: SegmentationModel | None,
        repository: Path,
        backend: Backend,
        first: EnsembleVariant,
        trace_file: Path | None = None,
    ) -> None:
        self.server = server
        self.variant = first
        self.trace_file = trace_file
        self.cold = True
        self._model = model
        self._repository = repository
        self._backend: Backend = backend

    def configure(self, variant: EnsembleVariant) -> EnsembleServer:
        """Serve this configuration from now on; only a member that changes is loaded anew. No request may run.

        Triton loads both members anew, always, when their ensemble is asked for, and the ensemble when a member is. So
        one request is enough, and a change of B alone leaves A as it is, warm.

        Raises:
            SettingError: the server is a remote one, whose configuration is not ours.
            ServerError: a member does not load.
        """
        if variant == self.variant:
            return self
        if self._model is None:
            raise SettingError(
                "the configuration of a remote server cannot be changed from here: measure the one it has, or "
                "use server embedded or container."
            )
        now, then = (
            (member_a_spec(one, self._backend), member_b_spec(one), ensemble_spec(one))
            for one in (self.variant, variant)
        )
        changed = [new for old, new in zip(now, then, strict=True) if new != old]  # the weights follow the spec
        models = [(spec, _files(spec, self._model, variant, self._backend)) for spec in changed]
        assemble_repository(self._repository, models, self._backend)
        if changed:
            self.server.load_model(changed[0].name if len(changed) == 1 else ENSEMBLE)
        self.cold = self.cold or any(spec.name != MEMBER_B for spec in changed)
        self.variant = variant
        return self

    def replace_code(self, model: str, code: Path | None) -> None:
        """Serve a Python member with other code, to see what happens when it fails; None: with its own again."""
        original = committed_repository() / model / "1" / "model.py"
        shutil.copyfile(code or original, self._repository / model / "1" / "model.py")
        self.server.load_model(model)

    def trace(self, on: bool) -> None:
        """Trace every request from now on, or none."""
        level = ["TIMESTAMPS" if on else "OFF"]
        get_json(self.server.http_url, "/v2/trace/setting", method="POST", body={"trace_level": level})

    def is_ready(self) -> bool:
        """Whether all three models are ready."""
        return all(is_ready(self.server.http_url, model) for model in SERVED)

    def __enter__(self) -> EnsembleServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.server.stop()


def start_ensemble_server(
    model: SegmentationModel,
    directory: Path,
    *,
    kind: str = "auto",
    variant: EnsembleVariant = EnsembleVariant(),  # noqa: B008 - frozen
    startup_timeout_s: float = 180.0,
    trace_file: Path | None = None,
    log_file: Path | None = None,
) -> EnsembleServer:
    """Export the model, write the repository and serve it.

    Args:
        model: the segmentation network.
        directory: where the repository goes; it is written over.
        kind: as `start_server`.
        variant: the first configuration.
        startup_timeout_s: from start until every model is ready.
        trace_file: where Triton writes the timestamps of requests while tracing is on; it starts switched off.
        log_file: of the server.

    Raises:
        SettingError, SetupError, ServerError: as `start_server`.
        ModelError: the export failed.
    """
    kind = resolve_kind(kind)
    if kind.startswith("remote:"):
        return EnsembleServer(start_server(kind, models=SERVED), None, directory, "container", variant)
    backend = backend_of(kind)
    specs = (member_a_spec(variant, backend), member_b_spec(variant), ensemble_spec(variant), *_null_specs())
    models = [(spec, _files(spec, model, variant, backend)) for spec in specs]
    assemble_repository(directory, models, backend)
    options = ServerOptions(
        startup_timeout_s=startup_timeout_s, model_control_mode="explicit", trace_file=trace_file, stop_grace_s=1
    )
    server = start_server(kind, directory, models=[*SERVED, *NULL_MODELS], options=options, log_file=log_file)
    served = EnsembleServer(server, model, directory, backend, variant, trace_file)
    if trace_file:
        served.trace(False)
    return served


def _null_specs() -> Sequence[ModelSpec]:
    return null_member_spec(NULL_A), null_member_spec(NULL_B), null_ensemble_spec()


def _files(spec: ModelSpec, model: SegmentationModel, variant: EnsembleVariant, backend: Backend) -> dict[str, Path]:
    """What goes into the version's folder beside the code of the same name."""
    if spec.name in (NULL_A, NULL_B):
        return {"model.py": committed_repository() / NULL_MEMBER / "1" / "model.py"}
    if spec.name != MEMBER_A:
        return {}
    from workbook.models.segmentation_export import export_segmentation

    written = "onnx_float32" if backend == "embedded" else "torchscript_float16"
    exported = export_segmentation(model, written, output=variant.hop)
    return {exported.path.name: exported.path}
