"""Exports a GPT of any size to ONNX, for benchmarks whose files are too big to keep.

    python bench/torch/export_gpt.py --model gpt2 --out out/gpt2 [--exporter dynamo]

writes <out>/<model>.onnx and <out>/data.safetensors (random tokens and labels).
"""

import argparse
import pathlib

import torch

import configs
from zoo import data, exporters


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    configs.add_arguments(parser, ["gpt2", "gpt"])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder to write")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--exporter", choices=["torchscript", "dynamo"], default="torchscript")
    args = parser.parse_args()

    model, config = configs.build(args)
    args.out.mkdir(parents=True, exist_ok=True)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab, (args.samples, config.context + 1), generator=random)
    tensors = {"tokens": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}  # [S, T]
    data.write(tensors, args.out / "data.safetensors")
    path = args.out / f"{args.model}.onnx"
    export = getattr(exporters, args.exporter)
    export(model.train(), tensors["tokens"][:2], ("tokens", "logits"), path)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{path}: {parameters} parameters, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
