#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a training step of N ranks takes: a model, its table for GPUs that are not here, and its check on ranks that are.

    python3 benchmarks/scaling_model.py                                      the table behind docs/distributed.md
    python3 benchmarks/scaling_model.py --check build/default/benchmarks/ranks [--link MBIT] [--json FILE]

The model. Backward is two thirds of a step and makes gradients at an even pace, so bucket i is ready when its share of the bytes is
done. Buckets are sent one after the other, each as soon as it is ready and the one before it has arrived:

    time of a bucket = alpha(N) + 2 (N - 1) / N * bytes / bandwidth

A step ends when the last one has arrived, and every step waits for the slowest of N ranks, whose times vary by 1 %: the largest of
N normal numbers lies sqrt(2 ln N) standard deviations above the mean. Between nodes the slowest link counts. Where the library
takes the sums, GPUs of a node first sum among themselves, so that each byte leaves a node once. In the order of the ranks, each of
a node's GPUs sends its own numbers to those who sum them; only the sums come back as in the library's.

The check fits alpha and bandwidth to sums that are timed here, takes the step of one rank as measured, and compares what follows
for 2 and 4 ranks with what they take. Ranks that share a core take turns: with more ranks than cores all computing is that much
longer. With --link, two ranks run in network namespaces of their own, joined by a link of so many Mbit/s; that needs root, ip and
tc.
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile

import records

GB = 1e9
# A node: GPUs, bytes a second among them, bytes a second out of the node, seconds of a hop inside and outside.
FABRICS = {
    "8 GPUs, NVLink, 8 x 400 Gbit/s": (8, 370 * GB, 8 * 50 * GB * 0.9, 3e-6, 6e-6),
    "8 GPUs, NVLink, 1 x 100 Gbit/s": (8, 370 * GB, 12.5 * GB * 0.9, 3e-6, 12e-6),
    "1 GPU, 1 x 100 Gbit/s": (1, 370 * GB, 12.5 * GB * 0.9, 3e-6, 12e-6),
}
# Assumed steps of one GPU: seconds, parameters, bytes of a gradient on the wire.
JOBS = {
    "ResNet-50, batch 256, float32 wire": (0.100, 25.6e6, 4),
    "GPT-2 124M, 16 x 1024 tokens, float32 wire": (0.120, 124e6, 4),
    "GPT-2 124M, 16 x 1024 tokens, bfloat16 wire": (0.120, 124e6, 2),
    "3 x Linear(1024), batch 4096, float32 wire": (0.0005, 3.15e6, 4),
}
JITTER, BACKWARD = 0.01, 2 / 3


def buckets(parameters, width, first=1 << 20, rest=25 << 20):
    """Bytes on the wire of each bucket; their sizes in the config are those of float32."""
    left, out = parameters * 4, []
    while left > 0:
        out.append(min(left, rest if out else first) * width / 4)
        left -= out[-1] * 4 / width
    return out


def fabric_cost(fabric, ranks, ordered):
    """The function that gives a bucket's seconds from its bytes."""
    gpus, inside, outside, hop_in, hop_out = fabric
    local, nodes = min(ranks, gpus), max(1, math.ceil(ranks / gpus))
    alpha = 2 * math.log2(max(local, 1)) * hop_in + 2 * math.log2(nodes) * hop_out if ranks > 1 else 0
    gather = (local - 1) / local / inside + (nodes - 1) / nodes / outside  # seconds a byte
    scatter = (local - 1) / (local * nodes) / inside + local * (nodes - 1) / nodes / outside if ordered else gather
    return lambda size: alpha + (scatter + gather) * size


def step_seconds(compute, sizes, cost, ranks, jitter=JITTER, overlap=True):
    """Seconds of a step with these buckets, which cost(bytes) seconds each."""
    total, done, free = sum(sizes), 0.0, 0.0
    for size in sizes:
        done += size
        ready = compute * (1 - BACKWARD) + compute * BACKWARD * done / total if overlap else compute
        free = max(ready, free) + cost(size)
    return max(compute, free) * (1 + jitter * math.sqrt(2 * math.log(ranks)))


def table():
    print("| efficiency of 8, 64, 1024 GPUs | " + " | ".join(FABRICS) + " |\n| --- |" + " --- |" * len(FABRICS))
    for job, (compute, parameters, width) in JOBS.items():
        for sums in ("ordered", "library"):
            cells = []
            for fabric in FABRICS.values():
                costs = [(n, fabric_cost(fabric, n, sums == "ordered")) for n in (8, 64, 1024)]
                shares = [compute / step_seconds(compute, buckets(parameters, width), cost, n) for n, cost in costs]
                cells.append(" / ".join(f"{100 * s:.0f}" for s in shares) + " %")
            print(f"| {job}, {sums} | " + " | ".join(cells) + " |")


@contextlib.contextmanager
def limited_link(mbit):
    """The commands that start mpirun so that its two ranks are on either end of a link of `mbit` Mbit/s."""
    a, b = f"hs{os.getpid()}a", f"hs{os.getpid()}b"  # the namespaces, and the ends of the link in them
    ip = lambda *words: subprocess.run(["ip", *words], check=True, capture_output=True)
    with tempfile.TemporaryDirectory() as folder:
        agent = pathlib.Path(folder, "agent")
        agent.write_text(f'#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nshift\nexec ip netns exec {b} bash -c "$*"\n')
        agent.chmod(0o755)
        try:
            for name in (a, b):
                ip("netns", "add", name)
            ip("link", "add", a, "type", "veth", "peer", "name", b)
            for name, address in ((a, "10.213.78.1/24"), (b, "10.213.78.2/24")):
                ip("link", "set", name, "netns", name)
                ip("-n", name, "addr", "add", address, "dev", name)
                ip("-n", name, "link", "set", name, "up")
                ip("-n", name, "link", "set", "lo", "up")
                subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate",
                                f"{mbit}mbit",
                                "burst", "512kb", "latency", "100ms"], check=True)
            mca = {"plm_rsh_agent": str(agent), "btl": "tcp,self", "btl_tcp_if_include": "10.213.78.0/24",
                   "oob_tcp_if_include": "10.213.78.0/24"}
            yield ["ip", "netns", "exec", a], ["--host", "10.213.78.1:1,10.213.78.2:1"] + [w for k, v in mca.items()
                                                                                           for w in ("--mca", k, v)]
        finally:
            for name in (a, b):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)


def run(binary, ranks, *arguments, link=([], [])):
    command = [binary, *map(str, arguments)]
    if ranks > 1:
        command = ["timeout", "-s", "KILL", "60", *link[0], "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                   *link[1],
                   "-np", str(ranks)] + command
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True,
                                     env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout)


def check(binary, seconds, counts=(2, 4), link=([], [])):
    cores, rows = len(os.sched_getaffinity(0)), []
    sizes = [4, 1 << 16, 1 << 20, 1 << 22, 12 << 20]
    for ranks in counts:
        sums = {int(k): v / 1e3 for k, v in run(binary, ranks, "none", *sizes, link=link).items()}
        alpha = sums[4]
        bandwidth = statistics.median(2 * (ranks - 1) / ranks * s / max(1e-9, sums[s] - alpha) for s in sizes[2:])
        for net, batch in (("mlp", 512), ("lenet", 64)):
            one = run(binary, 1, net, batch, 1, seconds)["ms"] / 1e3
            many = run(binary, ranks, net, batch, 1, seconds, link=link)
            compute = one * max(1, ranks / cores)
            cost = lambda size: alpha + 2 * (ranks - 1) / ranks * size / bandwidth
            # The threads that send have no core of their own here: their work is added to the computing.
            predicted = step_seconds(compute, many["bucket_bytes"], cost, ranks, overlap=ranks < cores)
            rows.append({"net": net, "batch_of_a_rank": batch, "ranks": ranks, "alpha_us": 1e6 * alpha, "gb_s": bandwidth / GB,
                         "one_rank_ms": 1e3 * one, "measured_ms": many["ms"], "model_ms": 1e3 * predicted,
                         "model_over_measured": 1e3 * predicted / many["ms"]})
            print(f"{net:6} {ranks} ranks: alpha {1e6 * alpha:.0f} us, {bandwidth / GB:.2f} GB/s, one rank {1e3 * one:.2f} ms, "
                  f"measured {many['ms']:.2f} ms, model {1e3 * predicted:.2f} ms ({1e3 * predicted / many['ms']:.2f})", flush=True)
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", metavar="BINARY", help="the program benchmarks/ranks")
    p.add_argument("--link", type=int, metavar="MBIT", help="two ranks, over a link of this rate")
    p.add_argument("--seconds", type=float, default=1.5)
    p.add_argument("--json", help="a file for the check's numbers")
    a = p.parse_args()
    if not a.check:
        return table()
    if a.link:
        with limited_link(a.link) as link:
            rows = check(os.path.abspath(a.check), a.seconds, (2,), link)
    else:
        rows = check(a.check, a.seconds)
    if a.json:
        records.save(a.json, {"link_mbit": a.link, "cores": len(os.sched_getaffinity(0)), "rows": rows})


if __name__ == "__main__":
    main()
