"""Llama with Hugging Face's module names: RMSNorm, rotary positions, grouped heads, SwiGLU.

Shapes: B batch, T sequence, C channels (width), H query heads, K key and value heads,
G = H / K, E = C / H, M feed-forward width, V vocabulary.
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
    kv_heads: int
    mlp_width: int
    context: int
    vocab: int
    rope_base: float = 10000.0
    norm_eps: float = 1e-6


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):  # [B, T, C]
        variance = x.pow(2).mean(-1, keepdim=True)  # [B, T, 1]
        return self.weight * (x * torch.rsqrt(variance + self.eps))


class RotaryEmbedding(nn.Module):
    """Made once per forward pass and read by every layer."""

    def __init__(self, c):
        super().__init__()
        e = c.width // c.heads
        inv_freq = 1.0 / c.rope_base ** (torch.arange(0, e, 2, dtype=torch.float32) / e)
        self.register_buffer("inv_freq", inv_freq, persistent=False)  # [E/2]

    def forward(self, positions):  # [1, T]
        inv_freq = self.inv_freq[None, :, None].expand(positions.shape[0], -1, 1)  # [1, E/2, 1]
        where = positions[:, None, :].to(inv_freq.dtype)  # [1, 1, T]
        angles = (inv_freq @ where).transpose(1, 2)  # [1, T, E/2]
        angles = torch.cat((angles, angles), dim=-1)  # [1, T, E]
        return angles.cos(), angles.sin()


def rotate_half(x):  # [B, heads, T, E]
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def repeat_kv(x, groups):  # [B, K, T, E]
    b, k, t, e = x.shape
    return x[:, :, None].expand(b, k, groups, t, e).reshape(b, k * groups, t, e)  # [B, H, T, E]


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.head_dim = c.width // c.heads
        self.groups = c.heads // c.kv_heads
        self.q_proj = nn.Linear(c.width, c.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(c.width, c.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(c.width, c.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * self.head_dim, c.width, bias=False)

    def forward(self, x, cos, sin):  # [B, T, C], [1, T, E], [1, T, E]
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, -1, self.head_dim).transpose(1, 2)  # [B, H, T, E]
        k = self.k_proj(x).view(b, t, -1, self.head_dim).transpose(1, 2)  # [B, K, T, E]
        v = self.v_proj(x).view(b, t, -1, self.head_dim).transpose(1, 2)  # [B, K, T, E]
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # [1, 1, T, E]
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        k, v = repeat_kv(k, self.groups), repeat_kv(v, self.groups)  # [B, H, T, E]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, H, T, E]
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.width, c.mlp_width, bias=False)
        self.up_proj = nn.Linear(c.width, c.mlp_width, bias=False)
        self.down_proj = nn.Linear(c.mlp_width, c.width, bias=False)

    def forward(self, x):  # [B, T, C]
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn = Attention(c)
        self.mlp = Mlp(c)
        self.input_layernorm = RMSNorm(c.width, c.norm_eps)
        self.post_attention_layernorm = RMSNorm(c.width, c.norm_eps)

    def forward(self, x, cos, sin):  # [B, T, C]
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = RMSNorm(c.width, c.norm_eps)
        self.rotary_emb = RotaryEmbedding(c)

    def forward(self, tokens):  # [B, T]
        x = self.embed_tokens(tokens)  # [B, T, C]
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)  # [1, T]
        cos, sin = self.rotary_emb(positions)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = Model(c)
        self.lm_head = nn.Linear(c.width, c.vocab, bias=False)

    def forward(self, tokens):  # [B, T] int64
        return self.lm_head(self.model(tokens))  # [B, T, V]


def build(config, seed):
    """Normal weights with residual layers scaled down; norm weights near 1, no two alike."""
    model = Llama(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            mean, std = 0.0, 0.04
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                std /= math.sqrt(2 * config.layers)
            elif p.dim() == 1:
                mean, std = 1.0, 0.02
            p.normal_(mean, std, generator=random)
    return model
