"""Golden values: what PyTorch computes from the same weights and data in three steps."""

import copy

import torch

from . import data as files

BATCH, STEPS = 8, 3
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-3, "weight_decay": 0.1}


def train(model, data, names, loss_of, dtype):
    """Trains a copy of `model` in `dtype`; returns losses, step 0's gradients and norm, weights.

    `names` is (inputs, target); step s takes samples s * BATCH to (s + 1) * BATCH - 1.
    """
    model = copy.deepcopy(model).to(dtype)
    parameters = dict(model.named_parameters())  # a tied parameter comes once
    optimizer = torch.optim.AdamW(parameters.values(), **ADAMW)
    result = {}
    for step in range(STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        *inputs, targets = (
            data[name][batch].to(dtype) if data[name].is_floating_point() else data[name][batch]
            for name in [*names[0], names[1]])
        optimizer.zero_grad()
        loss = loss_of(model(*inputs), targets)
        loss.backward()
        result[f"loss.{step}"] = loss.detach()
        if step == 0:
            squares = sum(p.grad.square().sum() for p in parameters.values())
            result["norm.0"] = squares.sqrt()
            for name, p in parameters.items():
                result[f"grad.{name}"] = p.grad.clone()
                result[f"gradnorm.{name}"] = p.grad.norm()
        optimizer.step()
    for name, p in parameters.items():
        result[f"weight.{name}"] = p.detach().clone()
    return {name: value.reshape(value.shape or (1,)) for name, value in result.items()}


def write(model, data, names, loss_of, path, keep=None):
    """Writes the float64 run as f32; returns the float32 run's largest relative difference.

    `keep`, if given, is a list of parameter prefixes: others' grad. and weight. are left out.
    """
    exact = train(model, data, names, loss_of, torch.float64)
    rounded = train(model, data, names, loss_of, torch.float32)
    worst = max((relative(rounded[name], exact[name]), name) for name in exact)

    def kept(name):
        kind, _, parameter = name.partition(".")
        return keep is None or kind not in ("grad", "weight") or parameter.startswith(tuple(keep))

    out = {name: value.float() for name, value in exact.items() if kept(name)}
    for first, names_of_it in aliases(model).items():
        for alias in names_of_it[1:]:
            for kind in ("grad", "gradnorm", "weight"):
                if f"{kind}.{first}" in out:
                    out[f"{kind}.{alias}"] = out[f"{kind}.{first}"].clone()
    for step in range(STEPS):
        out[f"loss64.{step}"] = exact[f"loss.{step}"]
    files.write(out, path)
    return worst, [exact[f"loss.{step}"].item() for step in range(STEPS)]


def aliases(model):
    """{first name: [all names]} of each parameter; a tied one has several.

    The TorchScript exporter keeps the first name of a tied parameter, dynamo the last.
    """
    groups = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(p), []).append(name)
    return {names[0]: names for names in groups.values()}


def statistics(model):
    """Running statistics of batch normalisation.  ONNX takes the population's variance, PyTorch the
    sample's, so only means are comparable."""
    return [(name, b) for name, b in model.named_buffers() if name.endswith("running_mean")]


def relative(a, b):
    """max|a - b| / max|b|, the measure of every tolerance in Piper."""
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()
