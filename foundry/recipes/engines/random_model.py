"""The model of the recipes unless they are given one: Qwen3-0.6B's shape, random weights. Nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SHAPE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def write(folder: Path, layers: int) -> str:
    """The folder of a model that engines can start from with dummy weights and without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SHAPE, "num_hidden_layers": layers}))
    return str(folder)


def refill(model: Any) -> None:
    """Weights from N(0, 0.02), in place, the same in every process: engines' dummy weights are so small that logits tie."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(1)
    for name, parameter in sorted(model.named_parameters()):
        if parameter.is_floating_point():
            if "norm" in name:
                parameter.data.fill_(1)
            else:
                parameter.data.normal_(0, 0.02, generator=generator)
    torch.cuda.synchronize()


def prompts(count: int, first: int = 0) -> list[list[int]]:
    """Fixed token ids of `count` prompts, of 16 to 47 tokens; `first`: number of the first one."""
    return [[(17 * i + 31 * j + 5) % 150000 for j in range(16 + i % 32)] for i in range(first, first + count)]
