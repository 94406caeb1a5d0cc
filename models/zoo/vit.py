"""A vision transformer: patches by a convolution, a class token, learned positions.

Shapes: B batch, S image side, P patch side, N = (S / P)^2 patches, C channels, H heads.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    layers: int
    width: int
    heads: int
    side: int
    patch: int
    classes: int


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.norm1 = nn.LayerNorm(c.width, eps=1e-6)
        self.qkv = nn.Linear(c.width, 3 * c.width)
        self.proj = nn.Linear(c.width, c.width)
        self.norm2 = nn.LayerNorm(c.width, eps=1e-6)
        self.fc1 = nn.Linear(c.width, 4 * c.width)
        self.fc2 = nn.Linear(4 * c.width, c.width)

    def forward(self, x):  # [B, 1 + N, C]
        b, n, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # 3 x [B, H, 1 + N, C / H]
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self, c):
        super().__init__()
        patches = (c.side // c.patch) ** 2
        self.patch_embed = nn.Conv2d(3, c.width, kernel_size=c.patch, stride=c.patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, c.width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + patches, c.width))
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width, eps=1e-6)
        self.head = nn.Linear(c.width, c.classes)

    def forward(self, image):  # [B, 3, S, S]
        x = self.patch_embed(image).flatten(2).transpose(1, 2)  # [B, N, C]
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])  # [B, classes]


def build(config, seed):
    model = Vit(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = "norm" in name and name.endswith("weight")
            p.normal_(1.0 if norm else 0.0, 0.02 if p.dim() > 1 else 0.005, generator=random)
    return model
