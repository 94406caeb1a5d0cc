"""Mixture of experts with Hugging Face's module names: Llama's layers, whose feed-forward part is
a router over experts with stacked weights, and one expert that sees every token.

Without a capacity the experts are computed as Hugging Face's `experts_implementation="batched_mm"`
does, which is the form that both exporters can write: each (token, choice) pair is multiplied by
its expert's weights, picked from the stack.  With a capacity, which is one of each sample, tokens
travel by piper_moe, and what does not fit is left to the shared expert.  The loss is part of the graph: cross entropy plus the load balancing loss of
each sample, averaged.

Shapes: B batch, T sequence, C channels (width), N = B T tokens, X experts, K choices of a token,
M feed-forward width of an expert, V vocabulary.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn

from . import llama, piper_moe


@dataclasses.dataclass
class Config(llama.Config):
    experts: int = 4
    choices: int = 2
    aux_weight: float = 0.02
    capacity: int = 0


def batched_linear(x, weight):  # [NK, I], [NK, O, I]
    return torch.bmm(weight, x.unsqueeze(-1)).squeeze(-1)  # [NK, O]


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(c.experts, 2 * c.mlp_width, c.width))
        self.down_proj = nn.Parameter(torch.empty(c.experts, c.width, c.mlp_width))

    def forward(self, x, index, weight):  # [N, C], [N, K], [N, K]
        tokens, choices = index.shape
        token = torch.arange(tokens, device=x.device).unsqueeze(1).expand(-1, choices).reshape(-1)
        expert = index.reshape(-1)  # [NK]
        gate, up = batched_linear(x[token], self.gate_up_proj[expert]).chunk(2, dim=-1)
        y = batched_linear(F.silu(gate) * up, self.down_proj[expert])  # [NK, C]
        y = y * weight.reshape(-1, 1)
        return y.view(tokens, choices, -1).sum(dim=1)  # [N, C]


class CapacityExperts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(c.experts, c.width, 2 * c.mlp_width))
        self.gate_up_bias = nn.Parameter(torch.empty(c.experts, 2 * c.mlp_width))
        self.down_proj = nn.Parameter(torch.empty(c.experts, c.mlp_width, c.width))
        self.capacity = c.capacity

    def forward(self, x, index, weight):  # [B, T, C], [B, T, K], [B, T, K]
        rows, slot = piper_moe.dispatch(x, index, len(self.down_proj), self.capacity)
        hidden = rows @ self.gate_up_proj[:, None] + self.gate_up_bias[:, None, None]
        gate, up = hidden.chunk(2, dim=-1)  # [X, B, capacity, M]
        return piper_moe.combine(F.silu(gate) * up @ self.down_proj[:, None], slot, weight)


class SparseMlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = nn.Linear(c.width, c.experts, bias=False)
        self.experts = CapacityExperts(c) if c.capacity else Experts(c)
        self.shared_expert = llama.Mlp(c)
        self.choices = c.choices

    def forward(self, x):  # [B, T, C]
        batch, time, width = x.shape
        tokens = x.view(-1, width)  # [N, C]
        probabilities = F.softmax(self.gate(tokens), dim=-1)  # [N, X]
        weight, index = torch.topk(probabilities, self.choices, dim=-1)  # [N, K]
        weight = weight / weight.sum(dim=-1, keepdim=True)
        if isinstance(self.experts, CapacityExperts):
            y = self.experts(x, index.view(batch, time, -1), weight.view(batch, time, -1))
        else:
            y = self.experts(tokens, index, weight).view(batch, time, width)
        return y + self.shared_expert(x), balance(probabilities, index, batch)


def balance(probabilities, index, batch):  # [N, X], [N, K]
    """Experts times the scalar product of the shares of choices and of probability: [B]."""
    experts = probabilities.shape[-1]
    chosen = F.one_hot(index, experts).to(probabilities.dtype).mean(dim=1)  # [N, X]
    chosen = chosen.view(batch, -1, experts).mean(dim=1)  # [B, X]
    return experts * (chosen * probabilities.view(batch, -1, experts).mean(dim=1)).sum(dim=-1)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn = llama.Attention(c)
        self.mlp = SparseMlp(c)
        self.input_layernorm = llama.RMSNorm(c.width, c.norm_eps)
        self.post_attention_layernorm = llama.RMSNorm(c.width, c.norm_eps)

    def forward(self, x, cos, sin):  # [B, T, C]
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        y, aux = self.mlp(self.post_attention_layernorm(x))
        return x + y, aux


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = llama.RMSNorm(c.width, c.norm_eps)
        self.rotary_emb = llama.RotaryEmbedding(c)

    def forward(self, tokens):  # [B, T]
        x = self.embed_tokens(tokens)  # [B, T, C]
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)  # [1, T]
        cos, sin = self.rotary_emb(positions)
        aux = []
        for layer in self.layers:
            x, balanced = layer(x, cos, sin)
            aux.append(balanced)
        return self.norm(x), torch.stack(aux, dim=-1)  # [B, T, C], [B, layers]


class Moe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = Model(c)
        self.lm_head = nn.Linear(c.width, c.vocab, bias=False)
        self.aux_weight = c.aux_weight

    def forward(self, tokens, labels):  # [B, T] int64
        x, aux = self.model(tokens)
        logits = self.lm_head(x)  # [B, T, V]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return loss + self.aux_weight * aux.mean()


def build(config, seed):
    """As Llama's; the router's weights are large enough to choose clearly."""
    model = Moe(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            mean, std = 0.0, 0.04
            if name.endswith(("o_proj.weight", "down_proj.weight", "down_proj")):
                std /= math.sqrt(2 * config.layers)
            elif name.endswith("mlp.gate.weight"):
                std = 0.3
            elif p.dim() == 1:
                mean, std = 1.0, 0.02
            elif name.endswith("bias"):
                std = 0.01
            p.normal_(mean, std, generator=random)
    return model
