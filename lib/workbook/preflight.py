"""What can be wrong with a run, found before its first notebook starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbook.environment import gpu_names
from workbook.errors import ModelError, SettingError
from workbook.past_runs import LATEST, PREVIOUS, find_past_run
from workbook.run_request import expanded
from workbook.settings import Settings


def check_run(settings: Settings, notebooks: Sequence[Path]) -> None:
    """Look at all that the settings name: corpus, model, variants, device, server, perf_analyzer.

    Whether a server can be had is asked only where a notebook of the run starts one.

    Raises:
        SettingError, CorpusError, ModelError, SetupError, ServerError: what is wrong, before any work.
    """
    from workbook.analysis.loss_causes import choose_causes, loss_causes
    from workbook.measuring.corpus.reading import load_corpus
    from workbook.measuring.online.perf_analyzer import find_perf_analyzer
    from workbook.models.sources import check_source
    from workbook.models.variants import find_variant
    from workbook.serving.ensemble_spec import EnsembleVariant
    from workbook.serving.server import resolve_kind

    kind = resolve_kind(settings.server)
    find_perf_analyzer(settings.perf_analyzer)
    for name in settings.variants if settings.variants != ("auto",) else ():
        find_variant(name)
    check_source(settings.model, settings.layers)
    _check_device(settings.device)
    _check_segmentation(settings.segmentation)
    _check_replay(settings.replay)
    choose_causes(loss_causes(EnsembleVariant(), 1, 1), settings.ensemble_causes)
    if any("server" in shown_parameters(notebook) for notebook in notebooks):
        _check_server(kind)
    load_corpus(settings.corpus, text_column=settings.text_column, rows=settings.rows, seed=settings.seed)


def shown_parameters(notebook: Path) -> set[str]:
    """Names assigned in the notebook's parameters cell."""
    import ast
    import json

    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
    assigned = [node for source in sources for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}


def _check_device(device: str) -> None:
    if device != "cuda" or gpu_names():
        return
    import torch

    if not torch.cuda.is_available():
        raise SettingError("device is 'cuda', but PyTorch finds no GPU on this machine: set device to cpu or auto.")


def _check_segmentation(segmentation: str) -> None:
    kind, _, place = segmentation.partition(":")
    if segmentation == "trained" or (kind == "hub" and place.count("/") == 1):
        return
    if kind not in ("checkpoint", "path") or not place:
        raise SettingError(
            f"segmentation is {segmentation!r}: give trained, checkpoint:FILE, or a backbone hub:ORG/NAME or path:DIR."
        )
    there = expanded(place).is_file() if kind == "checkpoint" else expanded(place).is_dir()
    if not there:
        what = "file" if kind == "checkpoint" else "folder"
        raise ModelError(f"segmentation is {segmentation!r}, and there is no such {what}: give one, or trained.")


def _check_replay(replay: str) -> None:
    if replay not in ("", LATEST, PREVIOUS):
        find_past_run(replay)


def _check_server(kind: str) -> None:
    from workbook.serving import container, remote

    if kind == "container":
        container.check_docker()
    if kind.startswith("remote:"):
        remote.connect(kind, ())
