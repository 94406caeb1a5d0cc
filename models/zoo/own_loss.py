"""A language model whose loss is in the graph: the next token's cross-entropy without padding, a
small weight on the size of activations, and a masked mean.

Shapes: B batch, T sequence, C channels, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):  # [B, T, C]; a token sees the one before it
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]
        return x + self.down(torch.tanh(self.up(self.norm(x + before))))


class OwnLoss(nn.Module):
    def __init__(self, width, layers, vocab):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens, labels):  # [B, T] int64 each; a label of -100 does not count
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)  # [B, T, V]
        shifted = logits[:, :-1].reshape(-1, logits.shape[-1])
        loss = F.cross_entropy(shifted, labels[:, 1:].reshape(-1), ignore_index=-100)
        counted = (labels != -100).to(x.dtype)
        size = (x.square().sum(-1) * counted).sum() / counted.sum()
        return loss + 0.001 * size - 0.01 * torch.tanh(logits).mean()


def build(seed):
    model = OwnLoss(width=16, layers=4, vocab=64)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = "norm" in name and name.endswith("weight")
            p.normal_(1.0 if norm else 0.0, 0.2 if p.dim() > 1 else 0.02, generator=random)
    return model
