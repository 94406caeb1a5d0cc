"""A BERT-like encoder: norms behind the residual sums, padding masks, a tied head with a transform.

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
    context: int
    vocab: int


class Embeddings(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.word_embeddings = nn.Embedding(c.vocab, c.width)
        self.position_embeddings = nn.Embedding(c.context, c.width)
        self.token_type_embeddings = nn.Embedding(2, c.width)
        self.LayerNorm = nn.LayerNorm(c.width, eps=1e-12)

    def forward(self, tokens, segments):  # [B, T] each
        positions = torch.arange(tokens.shape[1], device=tokens.device)  # [T]
        x = self.word_embeddings(tokens) + self.token_type_embeddings(segments)
        return self.LayerNorm(x + self.position_embeddings(positions))  # [B, T, C]


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.width = c.heads, c.width // c.heads
        self.query, self.key, self.value = (nn.Linear(c.width, c.width) for _ in range(3))
        self.dense = nn.Linear(c.width, c.width)
        self.LayerNorm = nn.LayerNorm(c.width, eps=1e-12)

    def split(self, x):  # [B, T, C] -> [B, H, T, E]
        return x.view(x.shape[0], x.shape[1], self.heads, self.width).transpose(1, 2)

    def forward(self, x, hidden):  # [B, T, C], [B, 1, 1, T]
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.width) + hidden  # [B, H, T, T]
        y = F.softmax(scores, dim=-1) @ v  # [B, H, T, E]
        y = y.transpose(1, 2).reshape(x.shape)
        return self.LayerNorm(self.dense(y) + x)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention = Attention(c)
        self.intermediate = nn.Linear(c.width, 4 * c.width)
        self.output = nn.Linear(4 * c.width, c.width)
        self.LayerNorm = nn.LayerNorm(c.width, eps=1e-12)

    def forward(self, x, hidden):
        x = self.attention(x, hidden)
        return self.LayerNorm(self.output(F.gelu(self.intermediate(x))) + x)


class Bert(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embeddings = Embeddings(c)
        self.layer = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.transform = nn.Linear(c.width, c.width)
        self.transform_norm = nn.LayerNorm(c.width, eps=1e-12)
        self.decoder = nn.Linear(c.width, c.vocab)
        self.decoder.weight = self.embeddings.word_embeddings.weight

    def forward(self, tokens, segments, mask):  # [B, T] int64 each; mask: 0 is padding
        x = self.embeddings(tokens, segments)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
        for layer in self.layer:
            x = layer(x, hidden)
        return self.decoder(self.transform_norm(F.gelu(self.transform(x))))  # [B, T, V]


def build(config, seed):
    """BERT's initialisation, plus a little noise on norms and biases so that none are equal."""
    model = Bert(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = "norm" in name.lower() and name.endswith("weight")
            p.normal_(1.0 if norm else 0.0, 0.02 if p.dim() > 1 else 0.005, generator=random)
    return model
