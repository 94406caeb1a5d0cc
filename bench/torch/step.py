"""Times one PyTorch training step (forward, backward, fused AdamW) and prints one JSON object.

    python bench/torch/step.py --model gpt2 --batch 4 --threads 2 --steps 10 [--compile]
"""

import argparse
import json
import resource
import statistics
import time

import torch
import torch.nn.functional as F

import configs


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    configs.add_arguments(parser, ["gpt", "gpt2", "llama"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=3, help="steps before them")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--sdpa", action="store_true",
                        help="gpt only: fused attention instead of the written-out one")
    args = parser.parse_args()
    if args.sdpa and args.model == "llama":
        parser.error("--sdpa is for gpt; llama always uses it")
    return args


def peak_rss_mb():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    imported = peak_rss_mb()  # what the libraries alone take
    model, config = configs.build(args)
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if args.compile else model

    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab, (args.batch, config.context + 1), generator=random)
    tokens, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()  # [B, T] each

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = run(tokens)  # [B, T, V]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    times = []
    for index in range(args.warmup + args.steps):
        start = time.perf_counter()
        loss = step()
        if index >= args.warmup:
            times.append(1e3 * (time.perf_counter() - start))

    median = statistics.median(times)
    print(json.dumps({
        "model": args.model,
        "mode": "compile" if args.compile else "eager",
        "attention": "fused" if args.sdpa or args.model == "llama" else "written out",
        "parameters": sum(p.numel() for p in model.parameters()),
        "batch": args.batch,
        "seq": config.context,
        "threads": args.threads,
        "steps": args.steps,
        "median_ms": round(median, 3),
        "min_ms": round(min(times), 3),
        "max_ms": round(max(times), 3),
        "tokens_per_s": round(args.batch * config.context / median * 1e3, 1),
        "loss": loss,
        "import_rss_mb": imported,
        "peak_rss_mb": peak_rss_mb(),
        "torch": torch.__version__,
    }))


if __name__ == "__main__":
    main()
