#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Epochs of augmented CIFAR-10 batches: halfstep's DataLoader against PyTorch's, interleaved, on the CPU.

    python3 benchmarks/compare_torch_loader.py --data data_batch_1.bin --json

Both hold the images as bytes and give float32 batches after RandomCrop(32, padding=4), RandomHorizontalFlip and Normalize.
PyTorch's side is torchvision's recipe, on PIL images (`pil`), and the same on tensors (`tensor`); workers persist from epoch to
epoch. A round is an epoch of each; the ratio is that of the medians, halfstep / PyTorch: below 1 halfstep is faster. Needs torch
and torchvision.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/benchmarks/loader"))
    p.add_argument("--data", default="-", help="a file of CIFAR-10's binary format; left out: random bytes")
    p.add_argument("--samples", type=int, default=10000)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--workers", default="0,2")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def torch_loader(a, variant, workers):
    import numpy as np
    import torch
    from PIL import Image
    from torchvision import transforms as T
    from torchvision.transforms import v2
    torch.set_num_threads(1 if workers else torch.get_num_threads())
    if a.data == "-":
        records = np.random.default_rng(0).integers(0, 256, (a.samples, 3073), dtype=np.uint8)
    else:
        there = np.fromfile(a.data, np.uint8).reshape(-1, 3073)
        records = there[np.arange(a.samples) % len(there)]
    labels, pixels = records[:, 0].astype(np.int64), records[:, 1:].reshape(-1, 3, 32, 32)

    class Pil(torch.utils.data.Dataset):  # as torchvision.datasets.CIFAR10
        data = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))
        transform = T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])

        def __len__(self):
            return len(labels)

        def __getitem__(self, i):
            return self.transform(Image.fromarray(self.data[i])), labels[i]

    class Tensor(Pil):
        data = torch.from_numpy(np.ascontiguousarray(pixels))
        transform = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
                                v2.Normalize(MEAN, STD)])

        def __getitem__(self, i):
            return self.transform(self.data[i]), labels[i]

    return torch.utils.data.DataLoader({"pil": Pil, "tensor": Tensor}[variant](), batch_size=a.batch, shuffle=True,
                                       num_workers=workers, persistent_workers=workers > 0)


def torch_epoch(loader):
    start = time.perf_counter()
    for x, y in loader:
        x[0, 0, 0, 0].item() + y[0].item()
    return time.perf_counter() - start


def halfstep_epochs(a, workers, epochs):
    done = subprocess.run([a.binary, a.data, str(a.samples), str(a.batch), str(workers), str(epochs)], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)["seconds"]


def main():
    a = parse_args()
    import torch
    import torchvision
    rows = []
    for workers in map(int, a.workers.split(",")):
        for variant in ("pil", "tensor"):
            loader = torch_loader(a, variant, workers)
            torch_epoch(loader)  # starts the workers
            theirs, ours = [], []
            for _ in range(a.rounds):
                theirs.append(torch_epoch(loader))
                ours.append(statistics.median(halfstep_epochs(a, workers, 3)))
            del loader
            row = {"workers": workers, "torch": variant, "halfstep_s": statistics.median(ours),
                   "torch_s": statistics.median(theirs),
                   "halfstep_rounds": ours, "torch_rounds": theirs}
            row["ratio"] = row["halfstep_s"] / row["torch_s"]
            rows.append(row)
            if not a.json:
                print(f"{workers} workers, {variant:6s}  halfstep {a.samples / row['halfstep_s']:9.0f}/s   "
                      f"PyTorch {a.samples / row['torch_s']:8.0f}/s   ratio {row['ratio']:.3f}", flush=True)
    result = {"samples": a.samples, "batch": a.batch, "data": "random bytes" if a.data == "-" else pathlib.Path(a.data).name,
              "cpus": os.cpu_count(), "torch": torch.__version__, "torchvision": torchvision.__version__, "rows": rows}
    if a.json:
        print(records.text(result), end="")


if __name__ == "__main__":
    main()
