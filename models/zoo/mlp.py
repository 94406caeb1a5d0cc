"""An 8-layer MLP that is awkward to cut into pipeline stages.

It has what a cut between any two layers must carry besides the hidden state:
a float skip value, a boolean mask, an integer index, a weight used on both sides, and a layer
with no parameters.  Shapes: B batch, I = 16 input features, D = 32 hidden, O = 8 outputs.

    value    made in   used in
    h        0 .. 6    the next layer
    bucket   0         6            int64 [B]
    skip     1         5, 7         float [B, D]
    mask     1         4            bool  [B, D]
    weight   2 (own)   2, 6         float [D, D], one parameter
"""

import torch
import torch.nn.functional as F
from torch import nn

I, D, O = 16, 32, 8


class Enter(nn.Module):
    """layers.0: the first hidden state, and how many features of each sample are positive."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(I, D)

    def forward(self, x):  # [B, I]
        bucket = (x > 0.25).to(torch.int64).sum(dim=-1)  # [B], 0 .. I
        return F.relu(self.fc(x)), bucket  # [B, D], [B]


class Fork(nn.Module):
    """layers.1: the skip value and the mask that later layers consume."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(D, D)

    def forward(self, h, x):  # [B, D], [B, I]
        skip = torch.sigmoid(self.fc(h))  # [B, D]
        mask = torch.cat([x, -x], dim=-1) > 0  # [B, 2 I] = [B, D]
        return h + skip, skip, mask


class Tied(nn.Module):
    """layers.2 and the base of layers.6: a linear layer whose weight the two share."""

    def __init__(self, weight=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(D, D)) if weight is None else weight
        self.bias = nn.Parameter(torch.empty(D))

    def forward(self, h):  # [B, D]
        return F.relu(F.linear(h, self.weight, self.bias))  # [B, D]


class Bare(nn.Module):
    """layers.3: no parameters at all."""

    def forward(self, h):  # [B, D]
        return torch.tanh(h)


class Masked(nn.Module):
    """layers.4: a leaky unit whose branch is chosen by the mask of layers.1."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(D, D)
        self.slope = nn.Parameter(torch.empty(D))

    def forward(self, h, mask):  # [B, D], [B, D]
        h = self.fc(h)
        return torch.where(mask, h, self.slope * h)


class Join(nn.Module):
    """layers.5: adds the skip value, then normalises."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(D, D)
        self.norm = nn.LayerNorm(D)

    def forward(self, h, skip):  # [B, D], [B, D]
        return self.norm(self.fc(h) + skip)


class Lookup(Tied):
    """layers.6: the weight of layers.2 again, plus an embedding of the bucket."""

    def __init__(self, weight):
        super().__init__(weight)
        self.table = nn.Embedding(I + 1, D)

    def forward(self, h, bucket):  # [B, D], [B]
        return super().forward(h) + self.table(bucket)


class Leave(nn.Module):
    """layers.7: reads the hidden state and the skip value side by side."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2 * D, O)

    def forward(self, h, skip):  # [B, D], [B, D]
        return self.fc(torch.cat([h, skip], dim=-1))  # [B, O]


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        tied = Tied()
        self.layers = nn.ModuleList(
            [Enter(), Fork(), tied, Bare(), Masked(), Join(), Lookup(tied.weight), Leave()])

    def forward(self, x):  # [B, I]
        h, bucket = self.layers[0](x)
        h, skip, mask = self.layers[1](h, x)
        h = self.layers[2](h)
        h = self.layers[3](h)
        h = self.layers[4](h, mask)
        h = self.layers[5](h, skip)
        h = self.layers[6](h, bucket)
        return self.layers[7](h, skip)  # [B, O]


def build(seed):
    """The model with every parameter drawn from `seed`; no two of them are equal."""
    model = Mlp()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name == "layers.5.norm.weight":
                p.normal_(1.0, 0.1, generator=random)
            elif p.dim() == 1:
                p.normal_(0.0, 0.1, generator=random)
            else:
                p.normal_(0.0, p.shape[-1] ** -0.5, generator=random)
    return model
