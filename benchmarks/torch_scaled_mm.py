#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What products of 8 bits bring on a GPU, by PyTorch alone: torch._scaled_mm beside products in bfloat16, in one round.

    python3 benchmarks/torch_scaled_mm.py [--seconds 0.2] [--shrink 1]

For a product of size 4096 and for those of GPT-2's blocks and head: the product in bfloat16; in E4M3 with one scale a tensor, and
with one scale a row; and the same with the casts of both operands, by the largest magnitude, inside the time. One JSON object; ms.
"""
import argparse
import json
import statistics
import time

SHAPES = {"4096": (4096, 4096, 4096), "gpt2 qkv": (8192, 2304, 768), "gpt2 up": (8192, 3072, 768), "gpt2 down": (8192, 768, 3072),
          "gpt2 head": (8192, 50304, 768)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=0.2, help="of each way")
    p.add_argument("--shrink", type=int, default=1, help="divides all extents, to try the script")
    a = p.parse_args()
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    most = torch.finfo(torch.float8_e4m3fn).max
    rows, notes = [], []

    def cast(t, by_row):
        size = t.abs().amax(dim=1, keepdim=True) if by_row else t.abs().max()
        scale = most / size.float().clamp(min=1e-12)
        return (t * scale).to(torch.float8_e4m3fn), scale.reciprocal()

    def median_ms(run):
        run()
        times, end = [], time.perf_counter() + a.seconds
        while len(times) < 5 or time.perf_counter() < end:
            if device == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(times)

    for name, extents in SHAPES.items():
        m, n, k = (max(e // a.shrink // 16 * 16, 16) for e in extents)
        x, w = torch.randn(m, k, dtype=torch.bfloat16, device=device), torch.randn(n, k, dtype=torch.bfloat16, device=device)
        row = {"shape": name, "m": m, "n": n, "k": k, "ms": {"bfloat16": median_ms(lambda: x @ w.t())}}
        for way, by_row in (("tensor", False), ("row", True)):
            def product(left, right):
                (x8, sx), (w8, sw) = left, right
                return torch._scaled_mm(x8, w8.t(), scale_a=sx, scale_b=sw.t() if by_row else sw, out_dtype=torch.bfloat16)
            try:
                ready = cast(x, by_row), cast(w, by_row)
                row["ms"][f"float8_{way}"] = median_ms(lambda: product(*ready))
                row["ms"][f"float8_{way}_with_casts"] = median_ms(lambda: product(cast(x, by_row), cast(w, by_row)))
            except Exception as e:  # of one way: the others are measured all the same
                notes.append(f"{name} {way}: {(str(e) or type(e).__name__).splitlines()[0][:200]}")
        rows.append(row)
    print(json.dumps({"products": rows, "notes": notes, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
