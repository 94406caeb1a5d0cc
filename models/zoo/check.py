"""Checks of an exported file against the PyTorch model it came from."""

import numpy
import onnx
import onnxruntime
import torch
from onnx import numpy_helper

from .golden import aliases, relative


def outputs_agree(model, data, names, path, batches=(8, 3)):
    """Runs the file in ONNX Runtime at several batch sizes; returns the largest difference."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    worst = 0.0
    for batch in batches:
        with torch.no_grad():
            expected = model(*(data[name][:batch] for name in names[0]))
        (actual,) = session.run([names[1]], {name: data[name][:batch].numpy() for name in names[0]})
        worst = max(worst, relative(torch.from_numpy(actual), expected))
    if worst > 1e-5:
        raise RuntimeError(f"{path.name}: outputs differ from PyTorch's by {worst:.1e}")
    return worst


def parameters_kept(model, path):
    """Every parameter is an initializer with its own bits, under one of its own names."""
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    tied = aliases(model)
    for name, p in model.named_parameters():
        found = [alias for alias in tied[name] if alias in stored]
        if len(found) != 1 or not numpy.array_equal(stored[found[0]], p.detach().numpy()):
            raise RuntimeError(f"{path.name}: {name} is missing, copied or changed")
    values = {p.detach().numpy().tobytes() for p in model.parameters()}
    if len(values) != len(tied):
        raise RuntimeError(f"{path.name}: two parameters are equal")
