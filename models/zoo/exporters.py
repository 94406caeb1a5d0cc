"""Both of PyTorch's ONNX exporters, set up so that a file can be trained from.

Constant folding, optimisation and evaluation mode are all off: each of them renames, merges or
transposes parameters.
"""

import io
import logging
import pathlib
import re
import warnings

import onnx
import torch

from . import piper_moe

logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def torchscript(model, samples, names, path):
    """Exports by tracing.  `names` is (inputs, output); all get a dynamic first dim `batch`."""
    inputs, output = names
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of its own deprecation
        torch.onnx.export(
            model, samples, buffer, dynamo=False, opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
            input_names=list(inputs), output_names=[output],
            dynamic_axes={name: {0: "batch"} for name in [*inputs, output] if name != "loss"})
    save(onnx.load_from_string(buffer.getvalue()), path)


def dynamo(model, samples, names, path):
    """Exports by torch.export.  The same names and the same dynamic dim as `torchscript`."""
    inputs, output = names
    batch = torch.export.Dim("batch", min=2)  # 1 is special to it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, samples, dynamo=True, opset_version=18, optimize=False, verbose=False,
            input_names=list(inputs), output_names=[output],
            dynamic_shapes=tuple({0: batch} for _ in samples))
    save(program.model_proto, path)


def save(model, path):
    """Writes weights and graph into one file, with no absolute path of this machine inside."""
    if any(node.domain == "piper" for node in model.graph.node):
        (opset,) = (o.version for o in model.opset_import if o.domain == "")
        model.functions.extend(piper_moe.functions(opset))
    for proto in [model.graph, *model.graph.node]:
        for entry in proto.metadata_props:
            entry.value = _relative_paths(entry.value)
        if proto.doc_string:
            proto.doc_string = _relative_paths(proto.doc_string)
    data = model.SerializeToString(deterministic=True)
    for leak in (str(REPOSITORY), str(pathlib.Path.home()), "site-packages"):
        if leak != "/" and leak.encode() in data:
            raise RuntimeError(f"{path.name} mentions {leak}")
    path.write_bytes(data)


def _relative_paths(text):
    """Stack traces keep the paths below the repository or below site-packages."""
    text = text.replace(f"{REPOSITORY}/", "")
    return re.sub(r'"[^"\n]*/site-packages/', '"', text)
