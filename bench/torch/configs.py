"""Model sizes of the PyTorch benchmarks, built by the code of models/zoo."""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "models"))

from zoo import gpt, llama  # noqa: E402  (found through the line above)

PRESETS = {
    "gpt": gpt.Config(layers=4, width=160, heads=5, context=64, vocab=256),  # models/gpt
    "gpt2": gpt.Config(layers=12, width=768, heads=12, context=256, vocab=50257),
    "llama": llama.Config(layers=4, width=64, heads=4, kv_heads=2, mlp_width=176, context=32,
                          vocab=256),  # models/llama
}


def add_arguments(parser, presets):
    parser.add_argument("--model", choices=presets, default=presets[0])
    for field in ("layers", "width", "heads", "vocab"):
        parser.add_argument(f"--{field}", type=int, help="instead of the preset's")
    parser.add_argument("--seq", type=int, help="sequence length and context; the preset's if "
                        "not given")


def build(args):
    """(model, config) of the command line; weights come from a fixed seed."""
    given = {name: getattr(args, name) for name in ("layers", "width", "heads", "vocab")}
    given = {name: value for name, value in given.items() if value is not None}
    if args.seq is not None:
        given["context"] = args.seq
    if getattr(args, "sdpa", False):
        given["sdpa"] = True
    config = dataclasses.replace(PRESETS[args.model], **given)
    module = llama if isinstance(config, llama.Config) else gpt
    return module.build(config, seed=2), config
