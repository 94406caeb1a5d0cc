"""A T5-style encoder: relative position biases in buckets, shared by all layers, norms without
mean, gated GELU, attention scores that are not scaled.

Shapes: B batch, T sequence, C channels, H heads, E = C / H, V vocabulary.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    layers: int
    width: int
    heads: int
    mlp_width: int
    vocab: int
    buckets: int = 8
    max_distance: int = 16


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


def bucket(distance, buckets, max_distance):
    """Half of the buckets for keys behind the query; each half exact when near, then in logs."""
    half = buckets // 2
    result = (distance > 0).long() * half
    distance = distance.abs()
    exact = half // 2
    far = exact + (torch.log(distance.float() / exact) / math.log(max_distance / exact)
                   * (half - exact)).long()
    far = torch.min(far, torch.full_like(far, half - 1))
    return result + torch.where(distance < exact, distance, far)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.width = c.heads, c.width // c.heads
        linears = [nn.Linear(c.width, c.width, bias=False) for _ in range(4)]
        self.q, self.k, self.v, self.o = linears

    def split(self, x):  # [B, T, C] -> [B, H, T, E]
        return x.view(x.shape[0], x.shape[1], self.heads, self.width).transpose(1, 2)

    def forward(self, x, bias):  # [B, T, C], [1, H, T, T]
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        y = F.softmax(q @ k.transpose(-1, -2) + bias, dim=-1) @ v
        return self.o(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention_norm, self.attention = Norm(c.width), Attention(c)
        self.mlp_norm = Norm(c.width)
        self.wi_0 = nn.Linear(c.width, c.mlp_width, bias=False)
        self.wi_1 = nn.Linear(c.width, c.mlp_width, bias=False)
        self.wo = nn.Linear(c.mlp_width, c.width, bias=False)

    def forward(self, x, bias):
        x = x + self.attention(self.attention_norm(x), bias)
        y = self.mlp_norm(x)
        return x + self.wo(F.gelu(self.wi_0(y), approximate="tanh") * self.wi_1(y))


class T5(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.buckets, self.max_distance = c.buckets, c.max_distance
        self.shared = nn.Embedding(c.vocab, c.width)
        self.relative_attention_bias = nn.Embedding(c.buckets, c.heads)
        self.block = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.final_norm = Norm(c.width)
        self.lm_head = nn.Linear(c.width, c.vocab, bias=False)

    def forward(self, tokens):  # [B, T] int64
        at = torch.arange(tokens.shape[1], device=tokens.device)
        buckets = bucket(at[None, :] - at[:, None], self.buckets, self.max_distance)  # [T, T]
        bias = self.relative_attention_bias(buckets).permute(2, 0, 1)[None]  # [1, H, T, T]
        x = self.shared(tokens)
        for block in self.block:
            x = block(x, bias)
        return self.lm_head(self.final_norm(x))  # [B, T, V]


def build(config, seed):
    model = T5(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.normal_(1.0, 0.005, generator=random)
            else:
                p.normal_(0.0, 0.5 if "relative" in name else 0.1, generator=random)
    return model
