#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts steps on an H100 after changes that no GPU has run yet, from what that GPU measured before them.

    benchmarks/predict_h100.py                     writes results/DATE-h100-predictions.json, in place of an older one
    benchmarks/predict_h100.py --plans halfstep    writes results/DATE-plans-gpu-nets.json, from `halfstep plan` of the nets

Each change is an item: the operations of a recorded step that it touches, before and after, and the bytes that they read and write,
counted from the shapes. Its gain is the time of the kernels that it replaces, measured by ncu where the record has them, else their
bytes at the rate of a copy, less what replaces them: bytes at that rate, and products at the rate of others in the record. Caches,
gaps between launches and what a kernel lacks to the rate of a copy are not counted. A prediction is the measured time less the
gains; floors are those of the plans at the same rate of a copy. Nothing here was measured after the changes.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import records
from mlp_tables import RATES
from torch_nets import GPU_NETS

KERNELS, NETS, MLPS = (records.newest(kind) for kind in ("h100-kernels", "h100-nets", "h100-mlp"))
COPY = MLPS["ceilings"]["copy_tb_s"] * 1e12  # bytes a second
PRODUCTS = MLPS["ceilings"]["fp16_4096_tflop_s"] * 1e12
BUILD = "70db877e"  # the build that was measured
GPT2, RESNET = "GPT-2 small, seq 1024, batch 8, float16", "ResNet-18 224, batch {}, channels_last, float16"


def kernels(net, pattern, commit=BUILD):
    """Returns the microseconds of a step in kernels whose names have the pattern; None if the record has no such kernel."""
    step = next(s for s in KERNELS["steps"] if s["net"] == net and s.get("commit") == commit and s["by"] == "ncu")
    found = [k["us"] for k in step["kernels"] if pattern in k["kernel"]]
    return sum(found) if found else None


def of_resnet(batch):
    """Returns the function kernels() for ResNet-18: of batch 256, and from it for batch 64 by what an older build took of both."""
    def microseconds(pattern):
        us = kernels(RESNET.format(256), pattern)
        if batch == 256:
            return us
        old = [kernels(RESNET.format(b), pattern, "48b6bdbf") for b in (batch, 256)]
        return us * (old[0] / old[1] if all(old) else batch / 256)
    return microseconds


def item(what, operations, before=0, after=0, measured=None, flop=0, rate=PRODUCTS, us=0):
    """A change. `before`, `after`: bytes; `measured`: microseconds of what it replaces; flop, us: of what replaces that."""
    replaced = measured if measured is not None else 1e6 * before / COPY
    gain = replaced - 1e6 * (after / COPY + flop / rate) - us
    return {"item": what, "operations": operations, "gb": [round(before / 1e9, 3), round(after / 1e9, 3)],
            "by": "bytes" if measured is None else "measured kernels", "gain_ms": round(gain / 1e3, 3)}


def mlp_items(batch, width=4096):
    half = 2 * batch * width  # bytes of activations
    return [item("two derivatives of ReLU read the layer's output, no mask, and add up the gradient of the bias", [8, 4],
                 2 * (4 * half + half // 8), 2 * 3 * half)]


def resnet_items(batch):
    us = of_resnet(batch)
    planes = [2 * batch * channels * side ** 2 for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7))]
    ends = sum(2 * plane for plane in planes)  # bytes of the results of the 8 blocks
    read_twice = ends - planes[-1]             # all but the last have two readers
    images, blocks = 2 * batch * 3 * 224 ** 2, 2 * batch * 16 * 112 ** 2
    tiles = "fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize256x64x32"  # of the four convolutions of 64 channels
    later = 4 * 2 * 256 * 56 ** 2 * 64 * 64 * 9 / (1e-6 * kernels(RESNET.format(256), tiles))
    first = [us(pattern) for pattern in ("fprop_implicit_gemm_indexed_wo_smem", "conv::ImplicitGemmConvolution", "widen_kernel",
                                         "narrow_kernel")]
    return [
        item("first layer on blocks of 2 x 2 pixels, forward and its weight's gradient", [6, 6], 2 * (images + images * 4 // 3),
             2 * (images + blocks), sum(first), 2 * 2 * batch * 112 ** 2 * 64 * 16 * 16, later),
        item("joins of a batch's statistics in one pass: 5 us each, by the lengths of loops", [20, 20],
             measured=us("join_moments"), us=20 * 5),
        item("average pooling's gradient eight channels at a time", [1, 1], planes[-1] * 50 // 49, planes[-1] * 50 // 49,
             us("avg_backward_kernel")),
        item("gradients of two readers are added where ReLU's gradient is computed", [14, 7], 6 * read_twice, 4 * read_twice),
        item("batch normalisation adds the residual and applies ReLU", [16, 8], 5 * ends, 3 * ends),
    ]


def gpt2_items(rows=8 * 1024, width=768, blocks=12, words=50257):
    def us(pattern):
        return kernels(GPT2, pattern)
    stream, inner, logits, weight = rows * width, rows * 4 * width, rows * words, words * width
    parameters = 2 * weight + 1024 * width + blocks * (12 * width ** 2 + 13 * width) + 2 * width
    replaced = sum(us(p) for p in ("move_kernel", "cutlass_75_tensorop", "rows_kernel"))
    padded = 3 * 4 * logits + 3 * 4 * weight  # three copies of logits or their gradient, three of the weight or its gradient
    loss = sum(us(p) for p in ("cast_kernel<__half, float>", "functor::square,", "functor::square_backward", "reduce_rows"))
    cast_back = 6 * logits  # bytes
    # Bytes an element of the stream: forward 24 sums, 25 norms and 24 casts, of which 24 norms remain that add, and one; backward
    # 24 norms, 23 sums and 24 casts, of which the norms remain, all but the last block's with a sum.
    norms_before, norms_after = 24 * 10 + 25 * 8 + 24 * 6, 23 * (6 + 6) + (6 + 8) + 6
    sums_before, sums_after = 24 * 10 + 23 * 12 + 24 * 6, 23 * (10 + 6) + (6 + 6)
    # Sums for biases: of a block's 9 columns for each of the stream, 6 are summed where the gradient is written, by segments: 64 in
    # doubles of the 4 of GELU, 256 in floats of the 2 of the norms. The 3 of attention's gradient keep their kernel.
    biases, segments = 6 * 2 * stream, (4 * 64 * 8 + 2 * 256 * 4) * 2 * width
    return [
        item("products with 50257 columns by padded copies", [6, 13], 3 * 4 * logits, padded, replaced, 2 * 2 * logits * width),
        item("cross entropy in place of a mean of squares in float32", [8, 3], 32 * logits, 6 * logits,
             loss + 1e6 * cast_back / COPY),
        item("cross entropy and its gradient in one pass", [3, 2], 6 * logits, 4 * logits),
        item("logits with aligned rows, and products cut in two", [13, 6], padded, 8 * stream, us=3 * 10),
        item("GELU and its gradient by one exponential", [2 * blocks] * 2, 10 * blocks * inner, 10 * blocks * inner,
             us("functor::gelu,") + us("functor::gelu_backward")),
        item("norms add the residual, forward and backward, and write the 16 bits that are read", [2 * 72, 2 * 24 + 1],
             (norms_before + sums_before) * stream, (norms_after + sums_after) * stream),
        item("GELU's derivative and the norms' gradients add up gradients of biases", [4 * blocks, 2 * blocks], blocks * biases,
             blocks * segments, us("globalKernelBgradAB") * 6 / 9),
    ], item("AdamW and clipping in place of SGD: a norm and the update, with float32 gradients", [0, 0],
            14 * parameters, (4 + 30) * parameters, us("step_list"))


def prediction(net, dtype, measured, source, goal, floor, items):
    predicted = measured - sum(i["gain_ms"] for i in items)
    return {"net": net, "dtype": dtype, "measured_ms": round(measured, 3), "measured": source, "predicted_ms": round(predicted, 3),
            "floor_ms": round(floor, 2), "goal_ms": goal, "items": items}


def predictions():
    plans = {r["net"]: r["floor_ms"]["H100"] for r in records.newest("plans-gpu-nets")["rows"]}
    rows = []
    for case, name, batch, goal in (("mlp_4096", "batch 4096", 4096, 1.9), ("mlp_512", "batch 512", 512, 0.49)):
        for variant, dtype in (("fp16", "float16"), ("bf16", "bfloat16")):
            row = next(r for c in MLPS["cases"] if c["case"] == case for r in c["rows"]
                       if (r["side"], r["variant"]) == ("halfstep", variant))
            ms = sum(r["stream"]["median_ms"] for r in row["rounds"]) / len(row["rounds"])
            rows.append(prediction(f"MLP of width 4096, {name}", dtype, ms, "recorded steps", goal, row["floor_ms"],
                                   mlp_items(batch)))
    nets = {(r["row"], r["dtype"]): min(ms for side, ms in r["ms"].items() if side.startswith("halfstep")) for r in NETS["nets"]}
    for net, goal, items in ((GPU_NETS[0]["name"], 3.6, resnet_items(64)), (GPU_NETS[1]["name"], 11.5, resnet_items(256)),
                             (GPU_NETS[2]["name"], 3.5, [])):
        rows.append(prediction(net, "float16", nets[net, "float16"], "recorded steps", goal, plans[net], items))
    items, adam = gpt2_items()
    total = next(s["sum_us"] for s in KERNELS["steps"] if s["net"] == GPT2 and s.get("commit") == BUILD) / 1e3
    net = GPU_NETS[3]["name"]
    rows.append(prediction(net + ", SGD", "float16", total, "sum of the kernels of an eager step, by ncu", 17.0, plans[net], items))
    rows.append(prediction(net + ", AdamW, as the benchmark trains it", "float16", total,
                           "sum of the kernels of an eager step with SGD, by ncu", None, plans[net + ", AdamW"], [*items, adam]))
    return {"what": "PREDICTIONS, none of them measured: " + " ".join(__doc__.split("\n\n")[2].split()),
            "command": "benchmarks/predict_h100.py", "measured_build": BUILD, "copy_tb_s": COPY / 1e12,
            "product_tflop_s": PRODUCTS / 1e12, "rows": rows}


def config(net, optimizer, folder):
    """Returns a config whose step is that of a net of GPU_NETS, in float16."""
    batch, *sample = net["input"]["shape"] if isinstance(net["input"], dict) else net["input"]
    data, loss, model = {"type": "Random", "num_batches": 1, "input_shape": sample}, "CrossEntropyLoss", net["config"]
    if model["type"] == "LSTM":  # whose batch is the second dimension
        batch, data["input_shape"] = sample[0], [batch, sample[1]]
        model, loss = model | {"batch_first": True}, "MSELoss"
        data["target_shape"] = data["input_shape"]
    elif "training" in net:
        (folder / "text").write_text("halfstep " * (batch * sample[0]))
        data = {"type": "Text", "path": str(folder / "text"), "seq_len": sample[0]}
    else:
        data["classes"] = 1000
    clips = optimizer["type"] != "SGD" and "training" in net
    return {"version": 1, "name": "plan", "model": model, "loss": loss, "optimizer": optimizer, "amp": {"dtype": "float16"},
            "data": {"train": data, "loader": {"batch_size": batch}},
            "train": {"max_steps": 1} | ({"clip_grad_norm": net["training"]["clip_grad_norm"]} if clips else {})}


def plan(program, net, optimizer, gpus, **env):
    """Returns operations and bytes of a step, and its floor for each GPU in ms."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "config.json"
        file.write_text(json.dumps(config(net, optimizer, file.parent)))
        said = subprocess.run([program, "plan", file, "--device", "cuda", "--json"], check=True, text=True, stdout=subprocess.PIPE,
                              env=os.environ | env)
    calls = [(sum(c["flops"].values()), c["bytes_read"] + c["bytes_written"]) for c in json.loads(said.stdout)["calls"]]
    floors = {gpu: 1e3 * sum(max(flop / r["fp16"], moved / r["copy"]) for flop, moved in calls) for gpu, r in gpus.items()}
    return {"tflop": round(sum(flop for flop, _ in calls) / 1e12, 3), "gb": round(sum(moved for _, moved in calls) / 1e9, 1),
            "floor_ms": {gpu: round(ms, 2) for gpu, ms in floors.items()}, "calls": len(calls)}


def plans(program):
    gpus = {"H200": RATES[0][1], "H100": RATES[1][1]}
    version = subprocess.run([program, "--version"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    rows = [{"net": net["name"]} | plan(program, net, {"type": "SGD"}, gpus) for net in GPU_NETS[:4]]
    rows.append({"net": GPU_NETS[3]["name"] + ", AdamW"} | plan(program, GPU_NETS[3], GPU_NETS[3]["training"]["optimizer"], gpus))
    gpt2 = GPU_NETS[3]
    chunks = {"net": gpt2["name"]} | plan(program, gpt2, {"type": "SGD"}, gpus, HALFSTEP_CUDA_DNN="plain")
    return {"what": "A training step of the nets GPU_NETS of torch_nets.py in float16, SGD but for the last: nothing was run. "
                    "chunks: attention without cuDNN. "
                    "floor_ms: the sum over the calls of the longer of operations and bytes at the rates.",
            "command": "benchmarks/predict_h100.py --plans halfstep", "version": version,
            "rates": {gpu: {"tflops": r["fp16"] / 1e12, "tb_per_s": r["copy"] / 1e12} for gpu, r in gpus.items()}, "rows": rows,
            "chunks": chunks}


def check(program):
    """Ends with 1 unless the record of plans is what the program plans. Another version of halfstep may plan in other words."""
    old, new = records.newest("plans-gpu-nets"), plans(program)
    differ = [key for key in ("rates", "rows", "chunks") if old.get(key) != new[key]]
    if differ:
        sys.exit(f"the record of plans has other {' and '.join(differ)} than {program} plans: benchmarks/predict_h100.py --plans "
                 f"{program}, then without --plans, then scripts/write_figures.py")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--plans", metavar="PROGRAM")
    p.add_argument("--check", metavar="PROGRAM", help="write nothing: compare the record of plans with what the program plans")
    a = p.parse_args()
    if a.check:
        return check(a.check)
    kind, record = ("plans-gpu-nets", plans(a.plans)) if a.plans else ("h100-predictions", predictions())
    for old in records.RESULTS.glob(f"*-{kind}.json"):
        old.unlink()
    today = {"date": datetime.date.today().isoformat()}
    records.save(records.RESULTS / f"{today['date']}-{kind}.json", today | record)


if __name__ == "__main__":
    main()
