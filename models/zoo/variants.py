"""Every way PyTorch writes the same small models: exporters, opsets, folding, dynamic dims.

Two-layer models of width 16, so that dozens of files fit into the repository.  Large tensors lie in
one sidecar a model (`weights.bin`), each distinct one once, whatever number of files read it.
"""

import copy
import dataclasses
import io
import warnings

import onnx
import torch
from onnx.external_data_helper import set_external_data
from torch.export import Dim

from . import data, exporters, gpt, llama, mlp

SIDECAR = "weights.bin"
INLINE_BYTES = 64  # larger tensors go to the sidecar
CONTEXT = 16
SHORT = 12  # another length of sequence, for files that leave it open

# The shared embedding has more than 1,024 elements: smaller ones are merged by value, and then a
# file does not tell a shared weight from two of equal values.
GPT = gpt.Config(layers=2, width=16, heads=2, context=CONTEXT, vocab=80)
SDPA = dataclasses.replace(GPT, sdpa=True)  # without a mask among its buffers
LLAMA = llama.Config(
    layers=2, width=16, heads=4, kv_heads=2, mlp_width=40, context=CONTEXT, vocab=32)


def fresh_llama():
    """Norm weights all 1, as PyTorch makes them: equal values, which exporters merge."""
    model = llama.build(LLAMA, seed=8)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.fill_(1.0)
    return model


def untied(model):
    """With a head of its own; a strategy ties it again."""
    model = copy.deepcopy(model)
    random = torch.Generator().manual_seed(26)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(GPT.vocab, GPT.width, generator=random))
    return model


class TurnedHead(torch.nn.Module):
    def __init__(self):
        super().__init__()
        random = torch.Generator().manual_seed(27)
        self.weight = torch.nn.Parameter(torch.randn(GPT.width, GPT.vocab, generator=random))

    def forward(self, x):  # [B, T, C]
        return x @ self.weight  # [B, T, V]


def untied_turned(model):
    """The same, and its head is the embedding's transpose."""
    model = copy.deepcopy(model)
    model.lm_head = TurnedHead()
    return model


@dataclasses.dataclass
class Family:
    build: object
    data: object
    names: tuple
    language: bool = True


def tokens(seed):
    tensors = data.random_tokens(CONTEXT, 32, seed)
    data.ignore_some(tensors["labels"])
    return tensors


LANGUAGE = ("tokens", "logits", "labels")
FAMILIES = {
    "mlp": Family(lambda: mlp.build(seed=1), lambda: data.regression(seed=11),
                  ("x", "prediction", "y"), language=False),
    "gpt": Family(lambda: gpt.build(GPT, seed=6), lambda: tokens(16), LANGUAGE),
    "sdpa": Family(lambda: gpt.build(SDPA, seed=6), lambda: tokens(16), LANGUAGE),
    "llama": Family(lambda: llama.build(LLAMA, seed=7), lambda: tokens(17), LANGUAGE),
    "fresh": Family(fresh_llama, lambda: tokens(18), LANGUAGE),
}


@dataclasses.dataclass
class Variant:
    name: str
    families: str  # those it is exported for
    dynamo: bool = False
    opset: int = 17
    fold: bool = False  # TorchScript: do_constant_folding in evaluation mode; dynamo: optimize
    dims: str = "batch"  # dynamic dims: none, batch, both (and sequence), or auto (both, unnamed)
    weightless: bool = False
    change: object = None  # what is done to the family's model before


ALL = "mlp gpt llama"
LM = "gpt llama"
VARIANTS = [
    Variant("script13", "mlp gpt", opset=13),
    Variant("script14", LM, opset=14),
    Variant("script17", ALL, opset=17),
    Variant("script18", LM, opset=18),
    Variant("script20", LM, opset=20),
    Variant("script13_folded", "gpt", opset=13, fold=True),
    Variant("script17_folded", ALL + " fresh", opset=17, fold=True),
    Variant("script20_folded", LM, opset=20, fold=True),
    Variant("script17_static", LM, dims="none"),
    Variant("script17_folded_static", LM, fold=True, dims="none"),
    Variant("script17_both", LM, dims="both"),
    Variant("script17_folded_both", LM, fold=True, dims="both"),
    Variant("dynamo18", ALL + " fresh", dynamo=True, opset=18),
    Variant("dynamo20", LM, dynamo=True, opset=20),
    Variant("dynamo21", LM, dynamo=True, opset=21),
    Variant("dynamo23", LM, dynamo=True, opset=23),
    # The optimizer folds the learned positions of a fixed length, and merges equal norm weights.
    Variant("dynamo18_optimized", ALL + " fresh", dynamo=True, opset=18, fold=True),
    Variant("dynamo18_optimized_both", LM, dynamo=True, opset=18, fold=True, dims="both"),
    Variant("dynamo20_optimized_both", LM, dynamo=True, opset=20, fold=True, dims="both"),
    Variant("dynamo23_optimized_both", LM, dynamo=True, opset=23, fold=True, dims="both"),
    Variant("dynamo18_static", LM, dynamo=True, opset=18, dims="none"),
    Variant("dynamo18_both", LM, dynamo=True, opset=18, dims="both"),
    Variant("dynamo18_auto", LM, dynamo=True, opset=18, dims="auto"),
    Variant("dynamo23_both", LM, dynamo=True, opset=23, dims="both"),
    Variant("dynamo18", "sdpa", dynamo=True, opset=18),
    Variant("dynamo18_weightless", "sdpa gpt", dynamo=True, opset=18, weightless=True),
    Variant("script17_untied", "gpt", change=untied),
    Variant("dynamo18_untied", "gpt", dynamo=True, opset=18, change=untied),
    Variant("script17_turned", "gpt", change=untied_turned),
    Variant("script17_folded_untied", "gpt", fold=True, change=untied),
]


AXES = {"none": {}, "batch": {0: "batch"}}  # otherwise both


def dynamic(name, dims):
    """A named dim of torch.export, or one whose name it makes up."""
    if dims == "auto":
        return Dim.DYNAMIC
    return Dim("sequence", min=2, max=CONTEXT) if name == "sequence" else Dim(name)


def export(variant, family, model, sample):
    """The ModelProto of one variant."""
    source, output, _ = family.names
    axes = AXES.get(variant.dims, {0: "batch", 1: "sequence"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not variant.dynamo:
            buffer = io.BytesIO()
            mode = torch.onnx.TrainingMode
            torch.onnx.export(
                model, (sample,), buffer, dynamo=False, opset_version=variant.opset,
                training=mode.EVAL if variant.fold else mode.TRAINING,
                do_constant_folding=variant.fold, input_names=[source], output_names=[output],
                dynamic_axes={source: axes, output: axes})
            return onnx.load_from_string(buffer.getvalue())
        shapes = {dim: dynamic(name, variant.dims) for dim, name in axes.items()}
        program = torch.onnx.export(
            model, (sample,), dynamo=True, opset_version=variant.opset, optimize=variant.fold,
            verbose=False, input_names=[source], output_names=[output],
            dynamic_shapes=(shapes,) if shapes else None)
        if not variant.weightless:
            return program.model_proto
        buffer = io.BytesIO()
        program.save(buffer, include_initializers=False, keep_initializers_as_inputs=True)
        return onnx.load_from_string(buffer.getvalue())


class Sidecar:
    """Tensors of many files, each distinct one once."""

    def __init__(self):
        self.data, self.offsets = bytearray(), {}

    def take(self, proto):
        for tensor in proto.graph.initializer:
            raw = onnx.numpy_helper.to_array(tensor).tobytes()
            if len(raw) <= INLINE_BYTES or tensor.data_type != onnx.TensorProto.FLOAT:
                continue
            if raw not in self.offsets:
                self.offsets[raw] = len(self.data)
                self.data += raw
            for field in ("raw_data", "float_data"):
                tensor.ClearField(field)
            tensor.raw_data = raw
            set_external_data(tensor, SIDECAR, self.offsets[raw], len(raw))
            tensor.ClearField("raw_data")


def strip(proto):
    """Leaves out what only people read: stack traces and comments."""
    for node in proto.graph.node:
        node.ClearField("doc_string")
        kept = [(e.key, e.value) for e in node.metadata_props
                if e.key in ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node")]
        node.ClearField("metadata_props")
        for key, value in kept:
            node.metadata_props.add(key=key, value=value)
    weights = {t.name for t in proto.graph.initializer}
    kept = [i for i in proto.graph.value_info if i.name in weights]
    proto.graph.ClearField("value_info")
    proto.graph.value_info.extend(kept)


def write(folder, golden, loss_of):
    """Writes models/variants: every variant, its sidecar, data and golden values."""
    for family_name, family in FAMILIES.items():
        model, tensors = family.build(), family.data()
        out = folder / family_name
        out.mkdir(parents=True, exist_ok=True)
        data.write(tensors, out / "data.safetensors")
        source, _, target = family.names
        golden.write(model, tensors, ((source,), target), loss_of(family.language),
                     out / "golden.safetensors")
        if family.language:
            short = {name: tensor[:, :SHORT].contiguous() for name, tensor in tensors.items()}
            data.write(short, out / "short_data.safetensors")
            golden.write(model, short, ((source,), target), loss_of(True),
                         out / "short_golden.safetensors", keep=[])
        sidecar = Sidecar()
        for variant in VARIANTS:
            if family_name not in variant.families.split():
                continue
            exported = variant.change(model) if variant.change else model
            exported.train(variant.dynamo or not variant.fold)
            proto = export(variant, family, exported, tensors[source][:3])
            strip(proto)
            sidecar.take(proto)
            exporters.save(proto, out / f"{variant.name}.onnx")
        (out / SIDECAR).write_bytes(sidecar.data)
