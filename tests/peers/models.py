"""Modules of the check that torchvision does not have."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        wide = 4 * width
        self.mlp = nn.Sequential(
            nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    """A decoder as GPT-2's, with tied embeddings."""

    def __init__(
        self, *, words: int, length: int, width: int, layers: int, heads: int
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Any) -> Any:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


class Tagger(nn.Module):
    """An LSTM of two layers that names each position."""

    def __init__(self, *, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.words(tokens))[0])


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return x + self.second(functional.relu(self.first(x)))


def gpt() -> nn.Module:
    """Four layers of width 256."""
    return GPT(words=4096, length=256, width=256, layers=4, heads=4)


def lstm() -> nn.Module:
    """Two layers of width 256."""
    return Tagger(words=2048, width=256)


def mlp() -> nn.Module:
    """Eight residual blocks of width 1024."""
    parts = [Residual(1024) for _ in range(8)]
    return nn.Sequential(nn.Linear(512, 1024), *parts, nn.Linear(1024, 100))
