from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tiny_encoder import save_tiny
from workbook.errors import ModelError, SettingError
from workbook.models import export
from workbook.models.e5 import Encoder, embed, load_encoder
from workbook.models.export import ExportedModel, export_onnx
from workbook.models.parity import cosine, parity_table, random_tokens
from workbook.models.sessions import open_session


@dataclass
class Case:
    encoder: Encoder
    exported: ExportedModel


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("artifacts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_ARTIFACTS", str(folder))
        yield folder


@pytest.fixture(scope="module")
def case(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    encoder = load_encoder(f"path:{save_tiny(tmp_path_factory.mktemp('models') / 'tiny-e5')}")
    return Case(encoder, export_onnx(encoder))


def test_cosine():
    left = np.array([[1, 0], [3, 4], [1, 1]], np.float32)
    right = np.array([[5, 0], [-3, -4], [1, -1]], np.float32)
    np.testing.assert_allclose(cosine(left, right), [1, -1, 0], atol=1e-12)


def test_random_tokens_are_ragged_and_known(case: Case):
    tokens = random_tokens(case.encoder, 32, 7, np.random.default_rng(0))
    lengths = tokens.attention_mask.sum(axis=1)
    assert tokens.input_ids.shape == (32, 7)
    assert lengths[0] == 7
    assert set(lengths) == set(range(1, 8))
    assert tokens.input_ids.min() >= 0
    assert tokens.input_ids.max() < 12  # words of the tiny vocabulary
    assert (tokens.input_ids[tokens.attention_mask == 0] == 0).all()


def test_outputs_are_those_of_pytorch(case: Case):
    texts = ["storm", "fire flood a b a b"]
    tokens = case.encoder.tokenize(texts)
    session = open_session(case.exported.path, 1)
    assert [node.name for node in session.get_inputs()] == ["input_ids", "attention_mask"]
    assert [node.type for node in session.get_outputs()] == ["tensor(float)"] * 3
    feed = tokens.inputs
    hidden, first, embedding = session.run(["last_hidden_state", "cls_embedding", "sentence_embedding"], feed)
    assert hidden.shape == (*tokens.input_ids.shape, 8)
    np.testing.assert_array_equal(first, hidden[:, 0])
    np.testing.assert_allclose(embedding, embed(case.encoder, texts), atol=1e-6)


def test_parity_over_shapes_never_seen_by_the_exporter(case: Case):
    table = parity_table(case.encoder, case.exported, batches=(1, 3), lengths=(1, 2, 512), threads=1)
    assert list(table.columns) == ["batch", "sequence", "output", "max_abs_error", "min_cosine"]
    assert len(table) == 2 * 3 * 2
    assert table.max_abs_error.max() < 1e-5
    assert table.min_cosine.min() > 0.999999


def test_parity_sees_another_model(case: Case, tmp_path: Path):
    other = load_encoder(f"path:{save_tiny(tmp_path / 'tiny-e5', seed=1)}")
    table = parity_table(other, case.exported, batches=(2,), lengths=(7,))
    assert table.min_cosine.max() < 0.9
    assert table.max_abs_error.min() > 0.1


def test_parity_leaves_out_large_shapes_only_when_asked(case: Case):
    table = parity_table(case.encoder, case.exported, batches=(1, 4), lengths=(2, 4), max_tokens=8)
    assert sorted(set(zip(table.batch, table.sequence, strict=True))) == [(1, 2), (1, 4), (4, 2)]
    with pytest.raises(SettingError, match=r"tokens within 1\.\.512"):
        parity_table(case.encoder, case.exported, lengths=(513,))


def test_export_is_kept_and_rebuilt_only_for_another_key(case: Case, monkeypatch: pytest.MonkeyPatch):
    written = case.exported.path.stat().st_mtime_ns
    assert export_onnx(case.encoder) == case.exported
    assert case.exported.path.stat().st_mtime_ns == written
    monkeypatch.setattr(export, "OPSET", 20)
    changed = export_onnx(case.encoder)
    assert changed.path.parent != case.exported.path.parent
    assert case.exported.path.stat().st_mtime_ns == written


def test_weights_are_in_the_file_once(case: Case):
    assert case.exported.bytes == case.exported.path.stat().st_size
    weights = sum(4 * tensor.numel() for tensor in case.encoder.module.parameters())
    graph_bytes = 80_000
    assert weights < case.exported.bytes < weights + graph_bytes


def test_large_models_keep_their_weights_beside_the_graph(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(export, "EXTERNAL_DATA_FROM_BYTES", 0)
    exported = export_onnx(case.encoder)
    assert [path.name for path in exported.files] == ["model.onnx", "model.onnx.data"]
    assert exported.bytes == sum(path.stat().st_size for path in exported.files)
    assert exported.sha256 != case.exported.sha256
    for path in exported.files:
        os.link(path, tmp_path / path.name)
    linked = ExportedModel(tmp_path / "model.onnx", "", 8, 2, 512, "", 0)
    assert parity_table(case.encoder, linked, batches=(2,), lengths=(7,)).max_abs_error.max() < 1e-5


def test_export_is_silent(case: Case, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.setattr(export, "RECIPE", -1)
    gc.collect()  # what earlier tests left behind is not to speak up in the middle of this one
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export_onnx(case.encoder)
    assert not caught
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == logging.NOTSET


def test_changed_file_is_noticed(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in case.exported.path.parent.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "model.onnx").write_bytes(case.exported.path.read_bytes()[:-1])
    monkeypatch.setattr(export, "build_once", lambda kind, key, build: folder)
    with pytest.raises(ModelError, match="delete it, run again"):
        export_onnx(case.encoder)
    (folder / "export.json").unlink()
    with pytest.raises(ModelError, match=r"lost its export\.json: delete the folder, run again"):
        export_onnx(case.encoder)


def test_failed_export_leaves_nothing(case: Case, artifacts: Path):
    import torch

    class Broken(torch.nn.Module):
        def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no such thing")

    before = sorted(artifacts.rglob("*.onnx"))
    with pytest.raises(ModelError, match="cannot export path:"):
        export_onnx(replace(case.encoder, module=Broken(), fingerprint="broken"))
    assert sorted(artifacts.rglob("*.onnx")) == before


def test_file_says_what_was_asked_and_nothing_of_this_machine(case: Case):
    import onnx

    model = onnx.load(case.exported.path)
    assert [opset.version for opset in model.opset_import] == [export.OPSET]
    assert b"site-packages" not in case.exported.path.read_bytes()
    assert [[d.dim_param != "" for d in node.type.tensor_type.shape.dim] for node in model.graph.input] == [
        [True] * 2
    ] * 2


@pytest.mark.parametrize("content", [b"", b"not a protobuf", b"\x08\x07"], ids=["empty", "text", "no graph"])
def test_malformed_file_is_named_with_the_fix(tmp_path: Path, content: bytes):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"cannot load .*model\.onnx \(\d+ bytes\).*\nDelete .* export again"):
        open_session(path, 1)


def test_sessions_refuse_bad_settings(tmp_path: Path):
    with pytest.raises(ModelError, match=r"no ONNX file .*nowhere"):
        open_session(tmp_path / "nowhere.onnx", 1)
    with pytest.raises(SettingError, match="threads=0"):
        open_session(tmp_path / "nowhere.onnx", 0)
