"""Step times of Piper against PyTorch on the same threads, interleaved in one run; a table and JSON.

    python bench/steps.py [--rounds 3] [--threads 1 2] [--json out/bench/steps.json]

Needs build/release/bin/piper and the packages of models/requirements.txt. Each round runs one Piper and one PyTorch
process for every row, one after the other; the table holds medians of the rounds' medians and the ratio per round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "bench"
PIPER = ROOT / "build" / "release" / "bin" / "piper"

# name, PyTorch model, batch, timed steps, model file (None: exported into out/bench)
ROWS = [
    ("gpt 4x160, batch 16 x 64", "gpt", 16, 30, ROOT / "models" / "gpt" / "gpt.onnx"),
    ("gpt2 12x768, batch 2 x 256", "gpt2", 2, 5, None),
]


def run(command, **kwargs):
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, **kwargs).stdout


def export(name):
    path = OUT / name / f"{name}.onnx"
    if not path.exists():
        run([sys.executable, ROOT / "bench" / "torch" / "export_gpt.py", "--model", name, "--out", path.parent])
    return path


def compile_plan(name, model, batch):
    plan = OUT / f"{name}.plan"
    run([PIPER, "compile", model, ROOT / "strategies" / "single.piper", "--set", f"train.batch={batch}", "-o", plan, "--quiet"])
    return plan


def flops_of_step(plan):
    """Floating-point operations of the kernels of one sample."""
    return sum(c["flops_per_sample"] for c in json.loads(run([PIPER, "show", plan, "--json"]))["chunks"])


def piper_ms(plan, threads, steps):
    metrics = OUT / "metrics.jsonl"
    run([PIPER, "launch", plan, "--data", "synthetic", "--steps", steps + 3, "--threads", threads, "--metrics", metrics, "--quiet"])
    times = [json.loads(line)["step_ms"] for line in metrics.read_text().splitlines()]
    return statistics.median(times[3:])


def torch_ms(model, batch, threads, steps, compiled):
    command = [sys.executable, ROOT / "bench" / "torch" / "step.py", "--model", model, "--batch", batch, "--threads", threads, "--steps", steps]
    return json.loads(run(command + (["--compile"] if compiled else [])))["median_ms"]


def gemm_rate(threads):
    """Best GFLOP/s of the matrix products of bench/kernels.cpp, measured now."""
    bench = ROOT / "build" / "release" / "bin" / "piper_bench_kernels"
    if not bench.exists():
        return None
    best = 0.0
    for line in run([bench, "Linear"], env={**os.environ, "OMP_NUM_THREADS": str(threads)}).splitlines():
        words = line.split()
        for i, word in enumerate(words):
            if word == "GFLOP/s":
                best = max(best, float(words[i - 1]))
    return best or None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--compile", action="store_true", help="PyTorch with torch.compile as well as eager, and the better of the two")
    parser.add_argument("--json", type=Path, default=OUT / "steps.json")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    results = []
    print(f"{'model':<30} {'threads':>7} {'piper ms':>9} {'torch ms':>9} {'ratio':>6} {'GFLOP/s':>8} {'of GEMM':>8}")
    for name, model, batch, steps, file in ROWS:
        plan = compile_plan(model, file or export(model), batch)
        flops = flops_of_step(plan) * batch
        for threads in args.threads:
            ours, theirs, ratios = [], [], []
            for _ in range(args.rounds):
                ours.append(piper_ms(plan, threads, steps))
                times = [torch_ms(model, batch, threads, steps, False)]
                if args.compile:
                    times.append(torch_ms(model, batch, threads, steps, True))
                theirs.append(min(times))
                ratios.append(ours[-1] / theirs[-1])
            rate, best = flops / statistics.median(ours) / 1e6, gemm_rate(threads)
            share = rate / best if best else None
            results.append({"model": name, "threads": threads, "piper_ms": ours, "torch_ms": theirs, "ratio": statistics.median(ratios),
                            "gflops": rate, "gemm_gflops": best})
            print(f"{name:<30} {threads:>7} {statistics.median(ours):>9.1f} {statistics.median(theirs):>9.1f} {statistics.median(ratios):>6.2f} "
                  f"{rate:>8.1f} {f'{share:.0%}' if share else '-':>8}", flush=True)
    args.json.write_text(json.dumps(results, indent=1))
    print(f"written to {args.json}")


if __name__ == "__main__":
    main()
