"""A tagger of recurrent layers: bidirectional and plain LSTM, GRU, and a bare RNN, with residual sums.

Shapes: B batch, T sequence, C channels (width), V vocabulary.
"""

import dataclasses

import torch
from torch import nn


@dataclasses.dataclass
class Config:
    width: int
    vocab: int


class Layer(nn.Module):
    """A recurrent layer of C channels altogether, added to its input, then normalised."""

    def __init__(self, width, rnn):
        super().__init__()
        self.rnn = rnn
        self.norm = nn.LayerNorm(width)

    def forward(self, x):  # [B, T, C]
        return self.norm(x + self.rnn(x)[0])


class Rnn(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.vocab, c.width)
        self.layers = nn.ModuleList([
            Layer(c.width, nn.LSTM(c.width, c.width // 2, batch_first=True, bidirectional=True)),
            Layer(c.width, nn.GRU(c.width, c.width, batch_first=True)),
            Layer(c.width, nn.LSTM(c.width, c.width, batch_first=True)),
            Layer(c.width, nn.RNN(c.width, c.width, batch_first=True, nonlinearity="relu"))])
        self.head = nn.Linear(c.width, c.vocab)

    def forward(self, tokens):  # [B, T] int64
        x = self.embed(tokens)  # [B, T, C]
        for layer in self.layers:
            x = layer(x)
        return self.head(x)  # [B, T, V]


def build(config, seed):
    """Normal weights; norms near 1 and biases near 0, no two alike."""
    model = Rnn(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            mean, std = float("norm.weight" in name), 0.1
            if p.dim() > 1:
                std = 0.5 if "embed" in name else p.shape[-1] ** -0.5
            p.normal_(mean, std, generator=random)
    return model
