"""A GPT in plain PyTorch, of any size: what the demo's scenarios train."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GPTConfig:
    """``kv_heads`` < ``heads`` shares keys and values between heads; ``context`` is the longest sequence in tokens."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int


# 1.42 B parameters: 2.6 GiB in bfloat16, 7.9 GiB with AdamW's state.
LARGE = GPTConfig(layers=24, width=2048, heads=16, kv_heads=16, vocabulary=50_304, context=1024)
SMALL = GPTConfig(layers=2, width=128, heads=4, kv_heads=4, vocabulary=8192, context=256)


class Attention(nn.Module):  # type: ignore[misc]  # torch is not type-checked here, so its classes are Any
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_width = config.width // config.heads
        self.qkv = nn.Linear(config.width, (config.heads + 2 * config.kv_heads) * self.head_width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x)
        mixed = F.scaled_dot_product_attention(query, self.shared(key), self.shared(value), is_causal=True)
        return self.merged(mixed)

    def eager(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the new (2, batch, kv_heads, tokens, head_width) keys and values.

        The scores are materialised, as in implementations that are asked for attention weights.
        """
        query, key, value = self.project(x)
        scores = query @ self.shared(key).transpose(-2, -1)
        weights = scores.mul_(self.head_width**-0.5).softmax(-1)
        return self.merged(weights @ self.shared(value)), torch.stack((key, value))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens, _ = x.shape
        heads = self.qkv(x).view(batch, tokens, self.heads + 2 * self.kv_heads, self.head_width).transpose(1, 2)
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        return query, key, value

    def shared(self, x: Tensor) -> Tensor:
        return x if self.kv_heads == self.heads else x.repeat_interleave(self.heads // self.kv_heads, dim=1)

    def merged(self, x: Tensor) -> Tensor:
        return self.out(x.transpose(1, 2).flatten(2))


class MLP(nn.Module):  # type: ignore[misc]
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))

    def eager(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed, keys_values = self.attn.eager(self.norm1(x))
        x = x + mixed
        return x + self.mlp(self.norm2(x)), keys_values


class GPT(nn.Module):  # type: ignore[misc]
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions.weight[: ids.shape[1]]

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits (batch, tokens, vocabulary) of ``ids`` (batch, tokens)."""
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def prefill(self, ids: Tensor) -> Tensor:
        """Return the keys and values of a prompt: (2, layers, batch, kv_heads, tokens, head_width), one tensor."""
        x, found = self.embed(ids), []
        for layer in self.layers:
            x, keys_values = layer.eager(x)
            found.append(keys_values)
        return torch.stack(found, dim=1)


def build(config: GPTConfig) -> tuple[GPT, torch.optim.Optimizer]:
    """Return the model in bfloat16 and its AdamW.

    The default dtype is set while the model is built, because a later ``.to(dtype)`` cannot swap parameters whose
    storages carry weak references, which the mirror gives them.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = GPT(config)
    finally:
        torch.set_default_dtype(before)
    # Fused: its state lies on the device in full, so that a mirror of the CPU's tensors is right for a GPU too.
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
