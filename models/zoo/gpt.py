"""GPT-2 with Hugging Face's module names, nn.Linear layers and attention written out.

Shapes: B batch, T sequence, C channels (width), H heads, E = C / H, V vocabulary.
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
    context: int
    vocab: int
    sdpa: bool = False  # attention by F.scaled_dot_product_attention, for benchmarks only


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.width, self.sdpa = c.heads, c.width, c.sdpa
        self.c_attn = nn.Linear(c.width, 3 * c.width)
        self.c_proj = nn.Linear(c.width, c.width)
        causal = torch.ones(c.context, c.context, dtype=torch.bool).tril()
        self.register_buffer("bias", causal.view(1, 1, c.context, c.context), persistent=False)

    def forward(self, x):  # [B, T, C]
        b, t, c = x.shape
        q, k, v = self.c_attn(x).split(self.width, dim=2)  # 3 x [B, T, C]
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)  # [B, H, T, E]
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)  # [B, H, T, E]
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)  # [B, H, T, E]
        if self.sdpa:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.width // self.heads))
            hidden = self.bias[:, :, :t, :t].logical_not()  # [1, 1, T, T]
            scores = scores.masked_fill(hidden, float("-inf"))  # [B, H, T, T]
            y = F.softmax(scores, dim=-1) @ v  # [B, H, T, E]
        y = y.transpose(1, 2).contiguous().view(b, t, c)  # [B, T, C]
        return self.c_proj(y)


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_fc = nn.Linear(c.width, 4 * c.width)
        self.c_proj = nn.Linear(4 * c.width, c.width)

    def forward(self, x):  # [B, T, C]
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c.width)
        self.attn = Attention(c)
        self.ln_2 = nn.LayerNorm(c.width)
        self.mlp = Mlp(c)

    def forward(self, x):  # [B, T, C]
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(c.vocab, c.width)
        self.wpe = nn.Embedding(c.context, c.width)
        self.h = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.ln_f = nn.LayerNorm(c.width)

    def forward(self, tokens):  # [B, T]
        positions = torch.arange(tokens.shape[1], device=tokens.device)  # [T]
        x = self.wte(tokens) + self.wpe(positions)  # [B, T, C]
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class Gpt(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.transformer = Transformer(c)
        self.lm_head = nn.Linear(c.width, c.vocab, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):  # [B, T] int64
        return self.lm_head(self.transformer(tokens))  # [B, T, V]


def build(config, seed):
    """GPT-2's initialisation, plus a little noise on norms and biases so that none are equal."""
    model = Gpt(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            mean, std = 0.0, 0.02
            if name.endswith("c_proj.weight"):  # the layers that write the residual stream
                std /= math.sqrt(2 * config.layers)
            elif p.dim() == 1:
                mean, std = (1.0 if "ln_" in name and name.endswith("weight") else 0.0), 0.005
            p.normal_(mean, std, generator=random)
    return model
