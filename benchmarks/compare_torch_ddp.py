#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of 1 and 2 ranks beside PyTorch's DistributedDataParallel with gloo, one thread a rank.

    scripts/build.sh default bench_ranks
    python3 benchmarks/compare_torch_ddp.py [--over mpi] [--binary build/default/benchmarks/ranks] [--rounds 3]
                                             [--seconds 2] [--json FILE]

Weak scaling keeps the samples of a rank, strong scaling those of all. Both sides run one after the other in each round; a ratio is
halfstep / PyTorch, and the median over the rounds is printed with the least and the greatest: below 1 halfstep is faster. The mean
of the squared outputs is the loss, SGD the optimizer, float32 the numbers. A step's time is rank 0's median. The rows "sum" time an
all_reduce of so many bytes alone. halfstep's ranks are started by mpirun, or with --over gloo by this script.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = [  # net, samples of a rank, ranks, what it shows
    ("mlp", 512, 1, "one rank"), ("mlp", 512, 2, "weak"), ("mlp", 256, 2, "strong"),
    ("lenet", 64, 1, "one rank"), ("lenet", 64, 2, "weak"), ("lenet", 32, 2, "strong"),
    ("sum", 4 << 20, 2, "all_reduce"), ("sum", 24 << 20, 2, "all_reduce"),
]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def torch_rank(net, batch, ranks, rank, meeting, seconds, out):
    """A rank of PyTorch's side; rank 0 writes the median of its steps to `out`."""
    import torch
    from torch import nn
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if ranks > 1:
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    if net == "sum":
        model, numbers = None, torch.zeros(batch // 4)
    elif net == "mlp":
        model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
        x, y = torch.randn(batch, 1024), torch.zeros(batch, 1024)
    else:
        model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                              nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                              nn.Linear(84, 10))
        x, y = torch.randn(batch, 1, 28, 28), torch.zeros(batch, 10)
    if ranks > 1 and model:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if model:
        optimizer, loss = torch.optim.SGD(model.parameters(), lr=1e-3), nn.MSELoss()

    def step():
        if not model:
            return dist.all_reduce(numbers)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    for _ in range(5):
        step()
    times, begin, on = [], time.perf_counter(), True
    while on:
        if len(times) % 16 == 0:
            on = time.perf_counter() - begin < seconds
            if ranks > 1:
                flag = torch.tensor([float(on)])
                dist.broadcast(flag, 0)
                on = bool(flag.item())
        start = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - start))
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps({"ms": statistics.median(times), "steps": len(times)}))
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def torch_ms(net, batch, ranks, seconds):
    with tempfile.TemporaryDirectory() as folder:
        processes = [subprocess.Popen([sys.executable, __file__, "--torch-rank", net, str(batch), str(ranks), str(r),
                                       folder + "/meeting", str(seconds), folder + "/out.json"], stderr=subprocess.DEVNULL,
                                      env={**os.environ, "OMP_NUM_THREADS": "1"}) for r in range(ranks)]
        if any(p.wait() for p in processes):
            raise SystemExit("PyTorch's side failed")
        return json.loads(pathlib.Path(folder, "out.json").read_text())["ms"]


def halfstep_ms(binary, over, net, batch, ranks, seconds):
    command = [binary, "none", str(batch)] if net == "sum" else [binary, net, str(batch), "1", str(seconds)]
    commands = [command]
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        if ranks > 1 and over == "mpi":
            commands = [MPIRUN + ["-np", str(ranks)] + command]
        elif ranks > 1:
            env |= {"WORLD_SIZE": str(ranks), "HALFSTEP_RENDEZVOUS_FILE": folder + "/meet"}
            commands = [["env", f"RANK={r}"] + command for r in range(ranks)]
        processes = [subprocess.Popen(["timeout", "-s", "KILL", "60"] + c, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, env=env)
                     for c in commands]
        said = [p.communicate() for p in processes]
    if any(p.returncode for p in processes):
        raise SystemExit(f"{' '.join(command)} failed:\n{''.join(err for _, err in said)}")
    out = json.loads(said[0][0])
    return {"ms": out[str(batch)], "wait_ms": out[str(batch)]} if net == "sum" else out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/benchmarks/ranks"))
    p.add_argument("--over", choices=["mpi", "gloo"], default="mpi", help="what halfstep's ranks exchange over")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--match", default="", help="only nets whose name contains this")
    p.add_argument("--json", help="a file for the result")
    p.add_argument("--torch-rank", nargs=7, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch_rank:
        net, batch, ranks, rank, meeting, seconds, out = a.torch_rank
        return torch_rank(net, int(batch), int(ranks), int(rank), meeting, float(seconds), out)
    import torch
    rows = []
    for net, batch, ranks, what in ROWS:
        if a.match not in net:
            continue
        ours, theirs = [], []
        for _ in range(a.rounds):
            ours.append(halfstep_ms(a.binary, a.over, net, batch, ranks, a.seconds))
            theirs.append(torch_ms(net, batch, ranks, a.seconds))
        ratios = sorted(o["ms"] / t for o, t in zip(ours, theirs))
        rows.append({"net": net, "batch_of_a_rank": batch, "ranks": ranks, "scaling": what,
                     "halfstep_ms": statistics.median(o["ms"] for o in ours), "torch_ms": statistics.median(theirs),
                     "wait_ms": statistics.median(o["wait_ms"] for o in ours), "ratio": statistics.median(ratios),
                     "spread": [ratios[0], ratios[-1]]})
        if ranks > 1 and net != "sum":
            rows[-1]["bucket_bytes"] = ours[0]["bucket_bytes"]
        r = rows[-1]
        print(f"{net:6} {batch:8} x {ranks} {what:9} halfstep {r['halfstep_ms']:8.3f} ms (waits {r['wait_ms']:.3f})  "
              f"torch {r['torch_ms']:8.3f} ms  ratio {r['ratio']:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
    if a.json:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True,
                                text=True).stdout.strip()
        old = records.load(a.json)["rows"] if pathlib.Path(a.json).exists() else []
        kept = [r for r in old if not any(r["net"] == n["net"] for n in rows)]
        records.save(a.json, {"date": datetime.date.today().isoformat(), "machine": records.machine(), "commit": commit,
                              "torch": torch.__version__, "over": a.over, "rounds": a.rounds, "seconds": a.seconds,
                              "rows": kept + rows})


if __name__ == "__main__":
    main()
