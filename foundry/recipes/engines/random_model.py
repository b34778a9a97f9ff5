"""The model of the recipes unless they are given one: Qwen3-0.6B's shape, random weights. Nothing is downloaded."""

from __future__ import annotations

import json
import os
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


def place(layers: int, part: str = "") -> Path:
    """Where processes of one machine find the same model, or a part of it: vLLM's compile cache knows a model by its path."""
    return Path(os.environ.get("TMPDIR", "/tmp"), f"foundry-qwen3-{layers}{part}")


def write(folder: Path, layers: int) -> str:
    """The folder of a model that engines can start from with dummy weights and without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SHAPE, "num_hidden_layers": layers}))
    return str(folder)


def checkpoint(folder: Path, layers: int) -> str:
    """The same model with its weights in a file, from N(0, 0.02); a folder that has them already is taken as it is."""
    path = folder / "model.safetensors"
    if path.exists():
        return str(folder)
    import torch

    write(folder, layers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(1)
    weights = {}
    for name, shape in sorted(_weights(layers).items()):
        tensor = (
            torch.ones(shape)
            if len(shape) == 1
            else torch.empty(shape, device=device).normal_(0, 0.02, generator=generator)
        )
        weights[name] = tensor.to("cpu", torch.bfloat16)
    _store(weights, path)
    return str(folder)


def _store(weights: dict[str, Any], path: Path) -> None:
    """Whoever finds the file finds all of it: several processes may write it at a time."""
    from safetensors.torch import save_file

    part = path.with_name(f"part-{os.getpid()}.safetensors")
    save_file(weights, part)
    part.replace(path)


def _weights(layers: int) -> dict[str, tuple[int, ...]]:
    """Names as in checkpoints of Qwen3; the head is the embedding."""
    hidden, inner, width = SHAPE["hidden_size"], SHAPE["intermediate_size"], SHAPE["head_dim"]
    queries, keys = SHAPE["num_attention_heads"] * width, SHAPE["num_key_value_heads"] * width
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (SHAPE["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for i in range(layers):
        found |= {
            f"model.layers.{i}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, queries),
                "self_attn.q_norm": (width,),
                "self_attn.k_norm": (width,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }.items()
        }
    return found


def adapter(folder: Path, layers: int, rank: int) -> str:
    """The folder of a LoRA adapter for every linear layer of the model, in PEFT's format: large enough to change answers."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    linear = {
        name.removesuffix(".weight"): shape for name, shape in _weights(layers).items() if name.endswith("_proj.weight")
    }
    modules = sorted({name.rsplit(".", 1)[-1] for name in linear})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": modules, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(2)
    weights = {}
    for name, (outputs, inputs) in sorted(linear.items()):
        for part, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            tensor = torch.empty(shape).normal_(0, 0.05, generator=generator)
            weights[f"base_model.model.{name}.lora_{part}.weight"] = tensor.to(torch.bfloat16)
    _store(weights, folder / "adapter_model.safetensors")
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
