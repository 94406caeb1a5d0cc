"""A small residual network, with group or with batch normalisation.

Shapes: B batch, S image side, C channels.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    width: int
    classes: int
    groups: int  # of a group normalisation; 0: batch normalisation


def norm(c, width):
    return nn.GroupNorm(c.groups, width) if c.groups else nn.BatchNorm2d(width)


class Block(nn.Module):
    """Two convolutions beside a shortcut; `stride` 2 halves the side and doubles the channels."""

    def __init__(self, c, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = norm(c, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(c, outputs)
        self.shortcut = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Cnn(nn.Module):
    def __init__(self, c):
        super().__init__()
        # A mean over the batch hides a bias.
        self.stem = nn.Conv2d(3, c.width, 3, padding=1, bias=c.groups > 0)
        self.stem_norm = norm(c, c.width)
        self.layers = nn.ModuleList([
            Block(c, c.width, c.width, 1), Block(c, c.width, 2 * c.width, 2),
            Block(c, 2 * c.width, 2 * c.width, 1), Block(c, 2 * c.width, 4 * c.width, 2)])
        self.fc = nn.Linear(4 * c.width, c.classes)

    def forward(self, image):  # [B, 3, S, S]
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(image))), 2)
        for block in self.layers:
            x = block(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))  # [B, classes]


def build(config, seed):
    model = Cnn(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.normal_(0.0, (2 / p[0].numel()) ** 0.5, generator=random)
            else:
                scale = "norm" in name and name.endswith("weight")
                p.normal_(1.0 if scale else 0.0, 0.02, generator=random)
    return model
