"""Regenerates every model folder: `python models/export.py [name ...]`.

For each model: the two exported files, data.safetensors and golden.safetensors.  See README.md.
"""

import dataclasses
import pathlib
import sys
from typing import Callable

import torch
import torch.nn.functional as F

from zoo import (
    bert, check, cnn, data, exporters, golden, gpt, gpt_dropout, llama, mlp, moe, own_loss, rnn, t5,
    variants,
    vit)

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Entry:
    build: Callable  # () -> nn.Module
    data: Callable  # () -> {name: tensor}
    names: tuple  # (input or inputs, output, target)
    loss: Callable | None  # (output, target) -> scalar; None: PyTorch draws other random numbers
    keep: list | None = None  # the golden file holds only tensors with these prefixes


def cross_entropy(logits, labels):  # [B, T, V], [B, T]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def masked(tensors):
    data.ignore_some(tensors["labels"])
    return tensors


GPT = gpt.Config(layers=4, width=160, heads=5, context=64, vocab=256)
GPT_TINY = gpt.Config(layers=4, width=32, heads=4, context=16, vocab=64)
LLAMA = llama.Config(layers=4, width=64, heads=4, kv_heads=2, mlp_width=176, context=32, vocab=256)
LLAMA_TINY = llama.Config(
    layers=4, width=32, heads=4, kv_heads=2, mlp_width=88, context=16, vocab=64)
MOE_TINY = moe.Config(
    layers=4, width=32, heads=4, kv_heads=2, mlp_width=24, context=16, vocab=64, experts=4,
    choices=2)
MOE_CAPACITY = dataclasses.replace(MOE_TINY, experts=3, capacity=9)  # of 16 tokens
BERT_TINY = bert.Config(layers=4, width=32, heads=4, context=16, vocab=64)
VIT_TINY = vit.Config(layers=4, width=32, heads=4, side=16, patch=4, classes=8)
T5_TINY = t5.Config(layers=4, width=32, heads=4, mlp_width=64, vocab=64)
LANGUAGE = ("tokens", "logits", "labels")
IMAGE = ("image", "logits", "label")

MODELS = {
    "mlp": Entry(lambda: mlp.build(seed=1), lambda: data.regression(seed=11),
                 ("x", "prediction", "y"), F.mse_loss),
    "gpt": Entry(lambda: gpt.build(GPT, seed=2), lambda: data.text(GPT.context), LANGUAGE,
                 cross_entropy,
                 keep=["transformer.wte", "transformer.wpe", "transformer.ln_f",
                       "transformer.h.0.ln_1", "transformer.h.0.attn",
                       "transformer.h.3.ln_2"]),  # all of it would be 10 MB
    "gpt_tiny": Entry(lambda: gpt.build(GPT_TINY, seed=3),
                      lambda: masked(data.random_tokens(16, 64, seed=13)), LANGUAGE,
                      cross_entropy),
    "gpt_dropout": Entry(lambda: gpt_dropout.build(GPT_TINY, seed=3),
                         lambda: masked(data.random_tokens(16, 64, seed=13)), LANGUAGE, None),
    "llama": Entry(lambda: llama.build(LLAMA, seed=4), lambda: data.text(LLAMA.context), LANGUAGE,
                   cross_entropy,
                   keep=["model.embed_tokens", "model.layers.0.", "model.layers.3.",
                         "model.norm", "lm_head"]),
    "llama_tiny": Entry(lambda: llama.build(LLAMA_TINY, seed=5),
                        lambda: masked(data.random_tokens(16, 64, seed=15)), LANGUAGE,
                        cross_entropy),
    "bert_tiny": Entry(lambda: bert.build(BERT_TINY, seed=6),
                       lambda: data.masked_language(16, 64, seed=16),
                       (("tokens", "segments", "mask"), "logits", "labels"), cross_entropy),
    "vit_tiny": Entry(lambda: vit.build(VIT_TINY, seed=7), lambda: data.images(16, 8, seed=17),
                      IMAGE, F.cross_entropy),
    "t5_tiny": Entry(lambda: t5.build(T5_TINY, seed=8),
                     lambda: masked(data.random_tokens(16, 64, seed=18)), LANGUAGE, cross_entropy),
    "cnn_gn": Entry(lambda: cnn.build(cnn.Config(8, 8, groups=4), seed=9),
                    lambda: data.images(16, 8, seed=19), IMAGE, F.cross_entropy),
    "cnn_bn": Entry(lambda: cnn.build(cnn.Config(8, 8, groups=0), seed=10),
                    lambda: data.images(16, 8, seed=20), IMAGE, F.cross_entropy),
    "rnn_tiny": Entry(lambda: rnn.build(rnn.Config(width=24, vocab=32), seed=12),
                      lambda: masked(data.random_tokens(16, 32, seed=22)), LANGUAGE, cross_entropy),
    "moe_tiny": Entry(lambda: moe.build(MOE_TINY, seed=13),
                      lambda: masked(data.random_tokens(16, 64, seed=23)),
                      (("tokens", "labels"), "loss", "labels"), lambda loss, labels: loss),
    "moe_capacity": Entry(lambda: moe.build(MOE_CAPACITY, seed=14),
                          lambda: masked(data.random_tokens(16, 64, seed=24)),
                          (("tokens", "labels"), "loss", "labels"), lambda loss, labels: loss),
    "own_loss": Entry(lambda: own_loss.build(seed=11),
                      lambda: masked(data.random_tokens(16, 64, seed=21)),
                      (("tokens", "labels"), "loss", "labels"), lambda loss, labels: loss),
}


def export(name, entry):
    inputs, output, target = entry.names
    if isinstance(inputs, str):
        inputs = (inputs,)
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    model, tensors = entry.build().train(), entry.data()
    data.write(tensors, folder / "data.safetensors")
    samples = tuple(tensors[name][:2] for name in inputs)
    for exporter, path in [(exporters.torchscript, folder / f"{name}.onnx"),
                           (exporters.dynamo, folder / f"{name}.dynamo.onnx")]:
        exporter(entry.build().train(), samples, (inputs, output), path)  # tracing moves statistics
        check.parameters_kept(model, path)
        # ONNX Runtime does not normalise by the batch, and it draws random numbers of its own.
        if entry.loss and not list(golden.statistics(model)):
            worst = check.outputs_agree(model, tensors, (inputs, output), path)
            print(f"{path.name}: outputs within {worst:.1e} of PyTorch's")
    if not entry.loss:
        return
    (worst, where), losses = golden.write(
        model, tensors, (inputs, target), entry.loss, folder / "golden.safetensors", entry.keep)
    count = sum(p.numel() for p in model.parameters())
    print(f"{name}: {count} parameters, losses {losses}, "
          f"float32 within {worst:.1e} of float64 (worst: {where})")


def main():
    torch.set_num_threads(1)  # a fixed order of summation
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or [*MODELS, "variants"]:
        if name == "variants":
            variants.write(HERE / name, golden,
                           lambda language: cross_entropy if language else F.mse_loss)
        else:
            export(name, MODELS[name])


if __name__ == "__main__":
    main()
