"""Tiny random checkpoints of the A2D and ModernBERT families, in the format of the published folders.

config.json has the keys that transformers 4 writes for these classes, the weights are written by the stock class itself
(so a tied head is not in the file), and the tokenizer declares its [MASK] as the published ones do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.tokenizers import write_fast

DECODER = {
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.57.0",
    "use_cache": True,
    "vocab_size": 208,
}
QWEN = {
    "max_window_layers": 3,
    "sliding_window": None,
    "use_sliding_window": False,
    "layer_types": ["full_attention"] * 3,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "a2d-qwen3": {
        **DECODER,
        **QWEN,
        "architectures": ["A2DQwen3LMHeadModel"],
        "attention_bias": False,
        "bos_token_id": 193,
        "eos_token_id": 195,
        "head_dim": 32,
        "tie_word_embeddings": True,
    },
    "a2d-qwen2": {
        **DECODER,
        **QWEN,
        "architectures": ["A2DQwen2LMHeadModel"],
        "bos_token_id": 193,
        "eos_token_id": 195,
        "tie_word_embeddings": True,
    },
    "a2d-llama": {
        **DECODER,
        "architectures": ["A2DLlamaLMHeadModel"],
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 190,
        "eos_token_id": [191, 194],
        "head_dim": 16,
        "pretraining_tp": 1,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 128,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
    },
    "modernbert": {
        "architectures": ["ModernBertForMaskedLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 191,
        "classifier_activation": "gelu",
        "classifier_bias": False,
        "classifier_dropout": 0.0,
        "classifier_pooling": "mean",
        "cls_token_id": 191,
        "decoder_bias": True,
        "deterministic_flash_attn": False,
        "embedding_dropout": 0.0,
        "eos_token_id": 192,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "gradient_checkpointing": False,
        "hidden_activation": "gelu",
        "hidden_size": 64,
        "initializer_cutoff_factor": 2.0,
        "initializer_range": 0.02,
        "intermediate_size": 96,
        "layer_norm_eps": 1e-05,
        "local_attention": 8,
        "local_rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "mlp_bias": False,
        "mlp_dropout": 0.0,
        "norm_bias": False,
        "norm_eps": 1e-05,
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "pad_token_id": 193,
        "position_embedding_type": "absolute",
        "sep_token_id": 192,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "transformers_version": "4.48.0",
        "vocab_size": 208,
    },
}
STOCK = {
    "a2d-qwen3": "Qwen3ForCausalLM",
    "a2d-qwen2": "Qwen2ForCausalLM",
    "a2d-llama": "LlamaForCausalLM",
    "modernbert": "ModernBertForMaskedLM",
}
SMALL = tuple(CONFIGS)
QWEN_TOKENS = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "mask_token": "<|mask|>"}
TOKENS = {
    "a2d-qwen3": QWEN_TOKENS,
    "a2d-qwen2": QWEN_TOKENS,
    "a2d-llama": {"eos_token": "<|end_of_text|>", "pad_token": "<|end_of_text|>", "bos_token": "<|begin_of_text|>"}
    | {"mask_token": "<|mask|>"},
    "modernbert": {
        **{"eos_token": "[PAD]", "pad_token": "[PAD]", "bos_token": "[PAD]", "mask_token": "[MASK]"},
        **{"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"},
    },
}


def stock_network(family: str, seed: int = 7, **config: Any) -> Any:
    """A random network of the stock class, as anyone would make it: causal where its class is."""
    import transformers

    kind: Any = getattr(transformers, STOCK[family])
    values = {**CONFIGS[family], **config}
    torch.manual_seed(seed)
    network = kind(kind.config_class(**{key: value for key, value in values.items() if key != "architectures"}))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.12).add_(float(parameter.ndim == 1))  # large enough that positions matter
    return network.float().eval()


def small_checkpoint(folder: Path, family: str, change: Any = None, **config: Any) -> Path:
    """A folder in the family's format; `change` edits the tensors, keywords edit config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    stock_network(family).save_pretrained(folder)
    if change:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
    values = {"model_type": family, **CONFIGS[family], **config}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_fast(folder, family, **TOKENS[family])
    return folder
