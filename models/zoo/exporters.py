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

logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def torchscript(model, sample, names, path):
    """Exports by tracing.  `names` is (input, output); both get a dynamic first dim `batch`."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of its own deprecation
        torch.onnx.export(
            model, (sample,), buffer, dynamo=False, opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
            input_names=[names[0]], output_names=[names[1]],
            dynamic_axes={names[0]: {0: "batch"}, names[1]: {0: "batch"}})
    save(onnx.load_from_string(buffer.getvalue()), path)


def dynamo(model, sample, names, path):
    """Exports by torch.export.  The same names and the same dynamic dim as `torchscript`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, (sample,), dynamo=True, opset_version=18, optimize=False, verbose=False,
            input_names=[names[0]], output_names=[names[1]],
            dynamic_shapes=({0: torch.export.Dim("batch")},))
    save(program.model_proto, path)


def save(model, path):
    """Writes weights and graph into one file, with no absolute path of this machine inside."""
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
