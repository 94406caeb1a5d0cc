"""The GPT of gpt.py with dropout: of positions, attention weights and what joins the residual stream.

In a file of its own: exports hold the line numbers of the code they came from.
Shapes: B batch, T sequence, C channels (width), H heads, E = C / H.
"""

import math

import torch.nn.functional as F
from torch import nn

from . import gpt

RATIO = 0.1


class Attention(gpt.Attention):
    def __init__(self, c):
        super().__init__(c)
        self.attn_dropout = nn.Dropout(RATIO)
        self.resid_dropout = nn.Dropout(RATIO)

    def forward(self, x):  # [B, T, C]
        b, t, c = x.shape
        q, k, v = self.c_attn(x).split(self.width, dim=2)  # 3 x [B, T, C]
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)  # [B, H, T, E]
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)  # [B, H, T, E]
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)  # [B, H, T, E]
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.width // self.heads))
        hidden = self.bias[:, :, :t, :t].logical_not()  # [1, 1, T, T]
        scores = scores.masked_fill(hidden, float("-inf"))  # [B, H, T, T]
        y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v  # [B, H, T, E]
        y = y.transpose(1, 2).contiguous().view(b, t, c)  # [B, T, C]
        return self.resid_dropout(self.c_proj(y))


class Mlp(gpt.Mlp):
    def __init__(self, c):
        super().__init__(c)
        self.dropout = nn.Dropout(RATIO)

    def forward(self, x):  # [B, T, C]
        return self.dropout(super().forward(x))


class Positions(nn.Embedding):
    def __init__(self, count, width):
        super().__init__(count, width)
        self.dropout = nn.Dropout(RATIO)

    def forward(self, positions):  # [T]
        return self.dropout(super().forward(positions))  # [T, C]: the same for every sample


def build(config, seed):
    """With the weights of gpt.build."""
    model = gpt.build(config, seed)
    weights = model.state_dict()
    for block in model.transformer.h:
        block.attn, block.mlp = Attention(config), Mlp(config)
    model.transformer.wpe = Positions(config.context, config.width)
    model.load_state_dict(weights)
    return model
