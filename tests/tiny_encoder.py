"""A BERT of a few thousand weights with a vocabulary of whole words, saved as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = (*SPECIAL, "query", ":", "storm", "flood", "fire", "calm", "a", "b")


def save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def save_tiny(folder: Path, kind: str = "bert", *, layers: int = 2, seed: int = 0, pooling: bool = True) -> Path:
    """Save a random encoder of the given kind, weights drawn from the seed; returns the folder."""
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    sizes = {"vocab_size": len(WORDS), "pad_token_id": 0}
    if kind == "distilbert":
        config = transformers.DistilBertConfig(dim=8, n_layers=layers, n_heads=2, hidden_dim=16, **sizes)
        module = transformers.DistilBertModel(config)
    else:
        config_type, module_type = {
            "bert": (transformers.BertConfig, transformers.BertModel),
            "xlm-roberta": (transformers.XLMRobertaConfig, transformers.XLMRobertaModel),
        }[kind]
        shape = {"hidden_size": 8, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 16}
        positions = 34 if kind == "xlm-roberta" else 512
        config = config_type(max_position_embeddings=positions, **shape, **sizes)
        module = module_type(config, add_pooling_layer=pooling)
    module.save_pretrained(folder)
    save_tokenizer(folder)
    return folder
