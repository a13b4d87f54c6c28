from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_encoder import save_tiny
from workbook.errors import CorpusError, ModelError, SettingError
from workbook.models.e5 import Encoder, Tokens, embed, first_layers, load_encoder, mean_pool


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny-e5")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return load_encoder(f"path:{folder}")


def pooled(hidden: list[list[list[float]]], mask: list[list[int]], dtype: str = "float32") -> np.ndarray:
    import torch

    result = mean_pool(torch.tensor(hidden, dtype=getattr(torch, dtype)), torch.tensor(mask))
    assert result.dtype == torch.float32
    return result.numpy()


def test_mean_pool_is_the_mean_of_real_tokens_at_length_one():
    # (2, 0) and (4, 8) have the mean (3, 4), of length 5; the masked token would change both
    np.testing.assert_allclose(pooled([[[2, 0], [4, 8], [100, 100]]], [[1, 1, 0]]), [[0.6, 0.8]], rtol=1e-6)


def test_mean_pool_keeps_rows_apart_and_survives_a_row_without_tokens():
    hidden = [[[3.0, 4.0], [0.0, 9.0]], [[7.0, 7.0], [7.0, 7.0]]]
    np.testing.assert_allclose(pooled(hidden, [[1, 0], [0, 0]]), [[0.6, 0.8], [0, 0]], rtol=1e-6)


def test_half_precision_is_summed_in_float32():
    # 257 is no bfloat16: a sum kept in it would stop at 256
    ones_and_twos = [[[1.0, 2.0]] * 300]
    np.testing.assert_allclose(pooled(ones_and_twos, [[1] * 300], "bfloat16"), [[5**-0.5, 2 * 5**-0.5]], rtol=1e-6)


def test_token_counts():
    tokens = Tokens(np.zeros((2, 5), np.int64), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))
    assert (tokens.rows, tokens.real_tokens, tokens.padded_tokens) == (2, 8, 10)


def test_tokens_carry_prefix_and_padding(encoder: Encoder):
    tokens = encoder.tokenize(["storm", "fire a b"])
    assert tokens.input_ids.tolist() == [[2, 4, 5, 6, 3, 0, 0], [2, 4, 5, 8, 10, 11, 3]]
    assert tokens.attention_mask.tolist() == [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]]
    assert tokens.input_ids.dtype == tokens.attention_mask.dtype == np.int64


def test_pad_to_fixes_the_length(encoder: Encoder):
    assert encoder.tokenize(["storm"], pad_to=9).input_ids.tolist() == [[2, 4, 5, 6, 3, 0, 0, 0, 0]]
    assert encoder.tokenize(["fire a b"], pad_to=5).input_ids.tolist() == [[2, 4, 5, 8, 3]]
    with pytest.raises(SettingError, match=r"pad_to=513 is outside 2\.\.512"):
        encoder.tokenize(["storm"], pad_to=513)


def test_long_texts_are_truncated(encoder: Encoder):
    tokens = encoder.tokenize(["storm " * 20_000, "a"])
    assert tokens.input_ids.shape == (2, 512)
    assert tokens.input_ids[0, -1] == 3
    assert tokens.real_tokens == 512 + 5


def test_no_text_gives_no_rows(encoder: Encoder):
    assert encoder.tokenize([]).rows == 0
    assert embed(encoder, []).shape == (0, 8)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", "b\ud800"], r"text 1 .* lone surrogate at character 1"),
        ([float("nan")], "text 0 .* float nan, not a string"),
        ([None], "not a string"),
    ],
)
def test_unreadable_texts_are_named(encoder: Encoder, texts: list[str], message: str):
    with pytest.raises(CorpusError, match=message):
        encoder.tokenize(texts)


def test_one_string_is_no_batch(encoder: Encoder):
    with pytest.raises(SettingError, match="in a list"):
        encoder.tokenize("storm")


def test_embeddings_do_not_depend_on_the_batch(encoder: Encoder):
    texts = ["storm", "fire flood a b a b", "calm", "a b", "flood fire"]
    alone = np.concatenate([embed(encoder, [text]) for text in texts])
    np.testing.assert_allclose(embed(encoder, texts, batch_size=2), alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, rtol=1e-6)
    assert alone.dtype == np.float32
    assert not np.allclose(alone[0], alone[1], atol=1e-3)
    with pytest.raises(SettingError, match="batch_size=0"):
        embed(encoder, texts, batch_size=0)


def test_embedding_is_the_pooled_hidden_state_of_the_prefixed_text(encoder: Encoder):
    import torch

    with torch.inference_mode():
        hidden = encoder.module(torch.tensor([[2, 4, 5, 6, 3]])).last_hidden_state[0].mean(dim=0).numpy()
    np.testing.assert_allclose(embed(encoder, ["storm"])[0], hidden / np.linalg.norm(hidden), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("multilingual-e5-base", "query: "),
        ("E5_large.v2", "query: "),
        ("e5", "query: "),
        ("bge-small", ""),
        ("cafe5-base", ""),
        ("model-e50", ""),
    ],
)
def test_prefix_follows_the_name(folder: Path, tmp_path: Path, name: str, prefix: str):
    link = tmp_path / "models" / name
    link.mkdir(parents=True)
    for file in folder.iterdir():
        (link / file.name).symlink_to(file)
    assert load_encoder(f"path:{link}").prefix == prefix
    assert load_encoder(f"path:{link}", prefix="passage: ").prefix == "passage: "


def test_layers_are_the_first_ones(folder: Path, encoder: Encoder):
    import torch

    first = load_encoder(f"path:{folder}", layers=1)
    assert (encoder.layers, first.layers) == (2, 1)
    ids = torch.tensor([[2, 6, 3]])
    with torch.inference_mode():
        expected = encoder.module(ids, output_hidden_states=True).hidden_states[1]
        torch.testing.assert_close(first.module(ids).last_hidden_state, expected)


def test_cutting_a_loaded_encoder_is_loading_a_cut_one(folder: Path, encoder: Encoder):
    encoder.tokenize(["storm", "a longer one"])  # leaves its padding in the tokenizer
    cut, loaded = first_layers(encoder, 1), load_encoder(f"path:{folder}", layers=1)
    assert (cut.layers, cut.fingerprint, cut.prefix) == (1, loaded.fingerprint, loaded.prefix)
    np.testing.assert_array_equal(embed(cut, ["storm"]), embed(loaded, ["storm"]))
    assert encoder.layers == len(encoder.module.encoder.layer) == 2  # the one it was cut from is whole
    assert encoder.module.config.num_hidden_layers == 2
    weights = [one.module.embeddings.word_embeddings.weight.data_ptr() for one in (cut, encoder)]
    assert weights[0] == weights[1]  # no second copy of the vocabulary
    with pytest.raises(SettingError, match=r"outside 1\.\.2"):
        first_layers(encoder, 3)


@pytest.mark.parametrize(("layers", "message"), [(0, "at least 1"), (3, r"outside 1\.\.2")])
def test_layers_out_of_bounds(folder: Path, layers: int, message: str):
    with pytest.raises(SettingError, match=message):
        load_encoder(f"path:{folder}", layers=layers)


def test_fingerprint_keys_weights_and_layers(folder: Path, encoder: Encoder, tmp_path: Path):
    other = save_tiny(tmp_path / "tiny-e5", seed=1)
    prints = [load_encoder(f"path:{folder}", layers=layers).fingerprint for layers in (None, 2, 1)]
    assert prints[0] == prints[1] == encoder.fingerprint
    assert len({*prints, load_encoder(f"path:{other}").fingerprint}) == 3


def test_copies_with_another_prefix_are_cheap(encoder: Encoder):
    assert replace(encoder, prefix="").tokenize(["storm"]).input_ids.tolist() == [[2, 6, 3]]


@pytest.mark.parametrize(("kind", "max_length"), [("distilbert", 512), ("xlm-roberta", 33)])
def test_other_encoders(tmp_path: Path, kind: str, max_length: int):
    encoder = load_encoder(f"path:{save_tiny(tmp_path / kind, kind)}", layers=1)
    assert (encoder.max_length, encoder.prefix, encoder.hidden_size, encoder.layers) == (max_length, "", 8, 1)
    assert embed(encoder, ["storm " * 1000]).shape == (1, 8)


def test_no_pooling_layer_is_kept_or_needed(tmp_path: Path):
    for pooling in (True, False):
        encoder = load_encoder(f"path:{save_tiny(tmp_path / str(pooling), pooling=pooling)}")
        assert not [name for name, _ in encoder.module.named_parameters() if "pooler" in name]


@pytest.mark.parametrize("model", ["", "e5", "hub:", "path:", "file:x"])
def test_unknown_sources(model: str):
    with pytest.raises(SettingError, match='use "bundled", "hub:ORG/NAME" or "path:DIR"'):
        load_encoder(model)


def test_missing_pieces_are_named(folder: Path, tmp_path: Path):
    with pytest.raises(ModelError, match="no folder"):
        load_encoder(f"path:{tmp_path / 'nowhere'}")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(ModelError, match=r"lacks weights \(model.safetensors\) and a tokenizer"):
        load_encoder(f"path:{tmp_path}")


def test_damaged_weights_are_a_model_error(tmp_path: Path):
    folder = save_tiny(tmp_path / "tiny")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    with pytest.raises(ModelError, match="cannot read the model in"):
        load_encoder(f"path:{folder}")


def test_absent_weights_are_a_model_error(tmp_path: Path):
    from safetensors.numpy import load_file, save_file

    weights = save_tiny(tmp_path / "tiny") / "model.safetensors"
    kept = {name: value for name, value in load_file(weights).items() if "layer.1.output.dense" not in name}
    save_file(kept, weights, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 2 tensors of the encoder, such as encoder\.layer\.1\.output\.dense"):
        load_encoder(f"path:{tmp_path / 'tiny'}")


@pytest.mark.parametrize("offline", [True, False], ids=["offline", "closed port"])
def test_unreachable_hub_names_the_alternatives_quickly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    start_ns = time.perf_counter_ns()
    with pytest.raises(ModelError, match=r'"bundled".*"path:DIR"') as caught:
        load_encoder("hub:intfloat/multilingual-e5-base")
    assert (time.perf_counter_ns() - start_ns) / 1e9 < 60
    assert len(str(caught.value).splitlines()) == 1


def test_impossible_hub_id():
    with pytest.raises(ModelError, match="the hub has no model 'not an id'"):
        load_encoder("hub:not an id")


def rewrite(file: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_parts_that_do_not_fit_together_are_a_model_error(tmp_path: Path):
    foreign = save_tiny(tmp_path / "foreign")
    rewrite(foreign / "tokenizer.json", lambda content: content["model"]["vocab"].update(storm=999))
    with pytest.raises(
        ModelError, match="is of another model: it gives ids up to 999, the encoder knows them up to 11"
    ):
        load_encoder(f"path:{foreign}")
    unpadded = save_tiny(tmp_path / "unpadded")
    rewrite(unpadded / "tokenizer_config.json", lambda content: content.pop("pad_token"))
    with pytest.raises(ModelError, match="no padding token"):
        load_encoder(f"path:{unpadded}")
    resized = save_tiny(tmp_path / "resized")
    rewrite(resized / "config.json", lambda content: content.update(hidden_size=16))
    with pytest.raises(ModelError, match=r"other sizes than its config\.json says"):
        load_encoder(f"path:{resized}")


def test_a_shorter_length_truncates_and_a_longer_one_changes_nothing(folder: Path, encoder: Encoder):
    short = load_encoder(f"path:{folder}", max_length=4)
    assert short.tokenize(["storm flood fire calm"]).input_ids.shape == (1, 4)
    assert short.fingerprint == encoder.fingerprint
    assert load_encoder(f"path:{folder}", max_length=8192).max_length == encoder.max_length == 512
    with pytest.raises(SettingError, match="max_length=1 must be at least 2"):
        load_encoder(f"path:{folder}", max_length=1)
