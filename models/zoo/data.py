"""Inputs and targets.  The first dim of every tensor is the sample."""

import pathlib

import torch
from safetensors.torch import save

SAMPLES = 32
TEXT = pathlib.Path(__file__).resolve().parents[1] / "text" / "kjv.txt"


def write(tensors, path):
    """A safetensors file with ordinary permissions (its own save_file makes it private)."""
    path.write_bytes(save(tensors))


def regression(seed):
    """x [S, 16], y [S, 8]: a smooth function of x plus noise."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, 16, generator=random)
    mix = torch.randn(16, 8, generator=random) / 4
    y = torch.sin(x @ mix) + 0.1 * torch.randn(SAMPLES, 8, generator=random)
    return {"x": x, "y": y}


def text(context):
    """tokens and labels [S, T]: windows of the shipped text as bytes; a label is the next byte."""
    raw = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
    stride = (len(raw) - context - 1) // SAMPLES
    rows = torch.arange(SAMPLES)[:, None] * stride + torch.arange(context)[None]
    return {"tokens": raw[rows], "labels": raw[rows + 1]}


def random_tokens(context, vocab, seed):
    """tokens and labels [S, T]: noise with some repetition, so that embeddings are hit twice."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (SAMPLES, context + 1), generator=random)
    ids = ids * torch.randint(0, 2, ids.shape, generator=random)  # half of them are token 0
    return {"tokens": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}


def ignore_some(labels):
    """Sets the first n of the 16 labels of each sample to -100.

    n differs within every golden batch of 8; it is 16 for sample 2, which then counts for nothing.
    """
    context = labels.shape[1]
    counts = (torch.arange(SAMPLES) % 8 * 7 + 2) % 17  # 2 9 16 6 13 3 10 0, again and again
    labels[torch.arange(context)[None] < counts[:, None]] = -100
    return labels


def masked_language(context, vocab, seed):
    """tokens, segments, mask and labels [S, T]: sentences of differing lengths with padding behind.

    Half of the tokens in a sentence are replaced by token 1; only those have a label.
    """
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, vocab, (SAMPLES, context), generator=random)
    lengths = 4 + torch.randint(0, context - 3, (SAMPLES, 1), generator=random)
    at = torch.arange(context)[None]
    mask = (at < lengths).long()
    hidden = (torch.rand(SAMPLES, context, generator=random) < 0.5) & (mask == 1)
    tokens = torch.where(hidden, torch.ones_like(ids), ids) * mask
    return {"tokens": tokens, "segments": (at >= lengths // 2).long() * mask, "mask": mask,
            "labels": torch.where(hidden, ids, torch.full_like(ids, -100))}


def images(side, classes, seed):
    """image [S, 3, side, side] and label [S]: a class is the direction of a gradient, in noise."""
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(0, classes, (SAMPLES,), generator=random)
    ramp = torch.linspace(-1, 1, side)
    angle = (label * (2 * torch.pi / classes))[:, None, None]
    plane = angle.cos() * ramp[None, :, None] + angle.sin() * ramp[None, None, :]
    noise = torch.randn(SAMPLES, 3, side, side, generator=random)
    return {"image": plane[:, None] + 0.5 * noise, "label": label}
