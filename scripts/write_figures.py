#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the figures of README.md and of some pages in docs from the records in benchmarks/results.

    scripts/write_figures.py            rewrites the text between each pair of marks <!-- figure: NAME --> and <!-- end -->
    scripts/write_figures.py --check    prints the figures that differ from the records, and then ends with 1

Of several records of a kind the newest counts. A mark with an unknown NAME and a figure without a mark are errors.
"""
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks/recipes"), str(ROOT / "benchmarks")]
sys.dont_write_bytecode = True
import predict_h100
from records import newest
from run import RECIPES, summary

PAGES = ("README.md", "docs/performance.md", "docs/parity.md", "docs/build.md", "docs/after_training.md")
MARK = re.compile(r"(<!-- figure: (\w+) -->)(.*?)(<!-- end -->)", re.S)
ARMS = ("float32", "bfloat16", "float16")
PASSES = [(d, p) for d in ("float32", "bfloat16") for p in ("forward", "fwd+bwd")]

# The ops of compare_torch_ops.py by family.
OPS = {
    "products": "mm bmm linear addmm baddbmm mv", "attention": "scaled_dot_product_attention",
    "convolution": "conv1d conv2d conv_transpose2d", "softmax": "softmax log_softmax",
    "normalisation": "layer_norm rms_norm group_norm batch_norm instance_norm",
    "losses": "cross_entropy mse_loss binary_cross_entropy_with_logits smooth_l1_loss",
    "pooling, resampling": "max_pool2d avg_pool2d adaptive_avg_pool2d interpolate grid_sample",
    "elementwise": "relu gelu silu sigmoid tanh exp leaky_relu elu softplus add mul div pow addcmul clamp",
    "reductions": "sum mean amax var norm logsumexp argmax prod", "scans": "cumsum", "sorting": "sort topk",
    "indexing, copies": "embedding index_select gather scatter_add cat pad", "recurrent cells": "lstm_cell gru_cell",
}
OPS_RECORDS = ("ops-cpu-epyc-zen4", "ops-cpu-epyc-zen4-avx2", "ops-cpu-xeon-emerald-rapids")  # the second in float32 alone


def at_most_one(kind):
    """Returns how many rows of a comparison took at most PyTorch's time: "288 of 304"."""
    ratios = [row["ratio"] for row in newest(kind)["rows"]]
    return f"{sum(r <= 1 for r in ratios)} of {len(ratios)}"


def mlp_runs():
    """Returns the arms of each run of the benchmark MLP, by (batch, width)."""
    return {(run["batch"], run["width"]): (run, {arm["arm"]: arm for arm in run["arms"]})
            for run in newest("mlp-cpu-epyc-zen5")["bench_mlp"]}


def mlp_4096():
    arms = mlp_runs()[512, 4096][1]
    if max(arm["peak_bytes"] for arm in arms.values()) > arms["float32"]["peak_bytes"]:
        raise SystemExit("README.md says that no precision needs more memory than float32; the record of 512 x 4096 differs")
    return ", ".join(f"{arms[a]['median_ms']:.0f} ms" + (" a step" if a == "float32" else "") + f" in {a}" for a in ARMS)


def mlp_table():
    lines = ["", "| batch x width, batches kept in memory | float32 | bfloat16 | float16 |", "| --- | --- | --- | --- |"]
    for (batch, width), (run, arms) in mlp_runs().items():
        cells = [f"{arms[a]['median_ms']:.3g} ms, {arms[a]['peak_bytes']:,}" for a in ARMS]
        lines.append(f"| {batch} x {width}, {run['batches']} | " + " | ".join(cells) + " |")
    return "\n".join(lines + [""])


def torch_runs():
    return {(run["batch"], run["width"]): run["arms"] for run in newest("mlp-cpu-epyc-zen5")["compare_torch"]}


def torch_1024():
    arms = torch_runs()[512, 1024]
    return f"{arms['float32']['ratio']:.2f} of PyTorch's time in float32 and {arms['bfloat16']['ratio']:.2f} in bfloat16"


def torch_spread():
    def cell(arm):
        return f"{arm['ratio']:.2f} ({min(arm['ratios']):.2f} to {max(arm['ratios']):.2f})"

    return "; ".join(f"batch {batch}, width {width}: {cell(arms['float32'])} in float32, {cell(arms['bfloat16'])} in bfloat16"
                     for (batch, width), arms in torch_runs().items())


def recipes_table():
    """Returns a line for each recipe: the mean and standard deviation of its result in each precision, and PyTorch's."""
    rows = newest("recipes-cpu-epyc-zen5")["rows"]
    lines = ["", "| recipe | data | float32 | bfloat16 | float16 | PyTorch, float32 |", "| --- | --- | --- | --- | --- | --- |"]
    for recipe, about in RECIPES.items():
        cells = []
        for side, precision in [("halfstep", p) for p in ARMS] + [("torch", "float32")]:
            arm = (recipe, side, precision)
            cells.append(summary(recipe, [r["result"] for r in rows if (r["recipe"], r["side"], r["precision"]) == arm]))
        lines.append(f"| [`{recipe}`](configs/recipes/{recipe}.json) | {about['data']} | " + " | ".join(cells) + " |")
    return "\n".join(lines + [""])


def latency_table():
    names = {"mlp": "MLP", "lenet": "LeNet", "char_lstm": "LSTM", "transformer": "transformer"}
    arms = ("halfstep", "torch", "onnxruntime")
    lines = ["", "| | dtype | samples | halfstep | PyTorch | onnxruntime |", "| --- | --- | --- | --- | --- | --- |"]
    for row in newest("latency-cpu-epyc-zen4")["rows"]:
        times = [row["us"].get(a) for a in arms]
        cells = ["" if t is None else f"{t:,.0f}" if t >= 100 else f"{t:.1f}" for t in times]
        lines.append(f"| {names[row['model']]} | {row['dtype']} | {row['batch']} | " + " | ".join(cells) + " |")
    return "\n".join(lines + [""])


def nets_table():
    """Returns a line for each net, pass and dtype: the times of both programs, and the share of the floor."""
    lines = ["", "| net | pass | dtype | halfstep | of the floor | / PyTorch eager | / torch.compile | / onnxruntime |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in newest("nets-cpu-xeon-amx")["rows"]:
        cells = []
        for side in ("", "compile_", "onnxruntime_"):
            low, high = r.get(f"{side}spread", (0, 0))
            cells.append(f"{r[f'{side}ratio']:.2f} ({low:.2f} to {high:.2f})" if high else "")
        lines.append(f"| {r['row']} | {'step' if r['pass'] == 'train' else 'forward'} | {r['dtype']} | {r['halfstep_ms']:.3g} ms | "
                     f"{100 * r['floor_ms'] / r['halfstep_ms']:.0f} % | " + " | ".join(cells) + " |")
    return "\n".join(lines + [""])


def short_nets_table(kind):
    """Returns a line for each net: in each dtype and pass the median ratios to PyTorch, torch.compile and onnxruntime, if measured.
    "fails" where that program cannot compute it."""
    cells = {}
    for r in newest(kind)["rows"]:
        ratios = []
        for side in ("eager", "compile", "onnxruntime"):
            ratio = r.get("ratio" if side == "eager" else f"{side}_ratio")
            if ratio is not None:
                ratios.append(f"{ratio:.2f}")
            elif side in r.get("failed", {}):
                ratios.append("fails")
        cells.setdefault(r["row"], {})[r["dtype"], r["pass"]] = " / ".join(ratios)
    arms = [(d, p) for d in ("float32", "bfloat16") for p in ("forward", "train") if any((d, p) in of for of in cells.values())]
    heads = [f"{dtype} {'step' if way == 'train' else way}" for dtype, way in arms]
    lines = ["", "| net | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(arms)]
    lines += [f"| {net} | " + " | ".join(of.get(arm, "") for arm in arms) + " |" for net, of in cells.items()]
    return "\n".join(lines + [""])


def ranks_sums():
    """Returns a line for each size and transport of an all_reduce: times of both programs and their ratio."""
    lines = ["", "| all_reduce, 2 ranks | halfstep | PyTorch over Gloo | ratio |", "| --- | --- | --- | --- |"]
    for over, name in (("gloo", "Gloo"), ("mpi", "MPI")):
        for r in newest(f"all-reduce-{over}-cpu-epyc-zen4")["rows"]:
            low, high = r["spread"]
            lines.append(f"| {r['batch_of_a_rank'] >> 20} MiB, halfstep over {name} | {r['halfstep_ms']:.1f} ms | "
                         f"{r['torch_ms']:.1f} ms | {r['ratio']:.2f} ({low:.2f} to {high:.2f}) |")
    return "\n".join(lines + [""])


def recurrent_gain(dtype, batch):
    """Returns the time of the recurrent model's call as a share of that before its weights were packed on one thread."""
    def us(kind):
        return next(r["us"]["halfstep"] for r in newest(kind)["rows"]
                    if (r["model"], r["dtype"], r["batch"]) == ("char_lstm", dtype, batch))
    return f"{us('latency-cpu-epyc-zen4') / us('latency-cpu-epyc-zen4-before'):.2f}"


def callers(arm):
    """Returns the smallest and largest ratio, over the models, of several threads' calls to one thread's."""
    gains = [r["gain"][arm] for r in newest("callers-cpu-epyc-zen4")["rows"] if arm in r["gain"]]
    return f"{min(gains):.2f} to {max(gains):.2f}"


def opening(kind):
    """Returns the shortest and the longest time to open one of the models."""
    times = [r["open_ms"] for r in newest(kind)["rows"]]
    return f"{min(times):.0f} to {max(times):.0f} ms"


def ops_table():
    """Returns a line for each family of ops: the medians of its rows' ratios in each dtype and pass, a number for each record."""
    lines = ["", "| family | float32 forward | with backward | bfloat16 forward | with backward |", "| --- |" + " --- |" * 4]
    records = [newest(kind)["rows"] for kind in OPS_RECORDS]
    named = {op for ops in OPS.values() for op in ops.split()}
    if missing := {r["row"].split()[0] for rows in records for r in rows} - named:
        raise SystemExit(f"OPS in write_figures.py has no family for {', '.join(sorted(missing))}")
    for family, ops in OPS.items():
        cells = []
        for arm in PASSES:
            ratios = [[r["ratio"] for r in rows if r["row"].split()[0] in ops.split() and (r["dtype"], r["pass"]) == arm]
                      for rows in records]
            cells.append(" / ".join(f"{statistics.median(r):.2f}" for r in ratios if r))
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return "\n".join(lines + [""])


def float16_table():
    """Returns a line for each row of attention and convolution that was measured in float16, with the times beside float32's."""
    now, before = ({(r["row"], r["pass"], r["dtype"]): r for r in newest(f"ops-float16-cpu-epyc-zen4{end}")["rows"]}
                   for end in ("", "-before"))
    lines = ["", "| op and shapes | pass | float32 | float16, before | float16 | PyTorch, float16 |", "| --- |" + " --- |" * 5]
    for (row, which, dtype), r in now.items():
        if dtype != "float16" or row.startswith("max_pool"):
            continue
        times = [now[row, which, "float32"]["halfstep_ms"], before[row, which, dtype]["halfstep_ms"], r["halfstep_ms"],
                 r["torch_ms"]]
        lines.append(f"| `{row.replace(' -', '')}` | {'with backward' if which == 'fwd+bwd' else 'forward'} | "
                     + " | ".join(f"{ms:.3g}" if ms < 1000 else f"{ms:,.0f}" for ms in times) + " |")
    return "\n".join(lines + [""])


def first_weight(when):
    """Returns the memory of the gradient of ResNet-18's first weight: "109 MB in float32, 59 MB in bfloat16"."""
    rows = [r for r in newest("conv-workspace-cpu-epyc-zen4")["rows"] if "64x3x7x7" in r["row"]]
    return ", ".join(f"{r['weight'][when] / 1e6:.2g} MB in {r['dtype']}" if r["weight"][when] < 1e8
                     else f"{r['weight'][when] / 1e6:.0f} MB in {r['dtype']}" for r in rows)


def busy_training(cores):
    """Returns the ratio of whole trainings to the build before, in float32 and float16: "0.95 and 0.90"."""
    return " and ".join(f"{r['ratio']:.2f}" for r in newest("busy-training-cpu-epyc-zen4")["rows"] if r["cores"].startswith(cores))


def pooled_gain(which):
    """Returns the least and the greatest ratio to the build before of maxima of 3 by 3, in three dtypes."""
    now, before = ([r["halfstep_ms"] for r in newest(f"ops-float16-cpu-epyc-zen4{end}")["rows"]
                    if r["row"].startswith("max_pool2d") and "kernel_size=3" in r["row"] and r["pass"] == which]
                   for end in ("", "-before"))
    ratios = [n / b for n, b in zip(now, before)]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def lanes_gain(op):
    """Returns an op's forward time without AVX-512, with lanes of 64 bytes and of the instruction set: "4.2 to 0.14 ms"."""
    before, after = (next(r for r in newest(f"ops-cpu-epyc-zen4-avx2{end}")["rows"]
                          if r["row"].startswith(f"{op} ") and r["pass"] == "forward" and r["dtype"] == "float32")
                     for end in ("-before", ""))
    return f"{before['halfstep_ms']:.2g} to {after['halfstep_ms']:.2g} ms"


def ops_slower():
    """Returns a line for each row slower than PyTorch in every round, and by more than 5 % in the median, with its ratios."""
    columns = {}
    for k, kind in enumerate(OPS_RECORDS):
        for r in newest(kind)["rows"]:
            if r["spread"][0] > 1 and r["ratio"] > 1.05:
                key = (r["row"].replace(" -", ""), f"{r['dtype']}, {'with backward' if r['pass'] == 'fwd+bwd' else 'forward'}")
                cell = f"{r['ratio']:.2f} ({r['spread'][0]:.2f} to {r['spread'][1]:.2f})"
                columns.setdefault(key, [""] * len(OPS_RECORDS))[k] = cell
    lines = ["", "| op and shapes | dtype and pass | AMD, AVX-512 | AMD, AVX2 | Intel |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| `{row}` | {arm} | " + " | ".join(cells) + " |" for (row, arm), cells in sorted(columns.items())]
    return "\n".join(lines + [""])


def layer_ratios():
    """Returns the least and the greatest ratio of a convolution alone to the build before."""
    ratios = [r["ratio"] for r in newest("conv-layers-cpu-xeon-amx")["rows"]]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def before_ratios(record, which="", name="", dtype=""):
    """Returns the least and the greatest ratio of a pass, "forward" or "train" or both, to the build before: "0.95 to 1.02"."""
    ratios = [r["before_ratio"] for r in newest(record)["rows"]
              if which in r["pass"] and name in r["row"] and dtype in r["dtype"]]
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return low if low == high else f"{low} to {high}"


def all_before_ratios(record):
    """Returns the median and the quartiles of all rows' ratios to the build before: "1.00 (0.98 to 1.04)"."""
    low, middle, high = statistics.quantiles((r["before_ratio"] for r in newest(record)["rows"]), n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def some_ops_range():
    """Returns the least and the greatest ratio to PyTorch, at most 1, of the few rows that were measured again: "0.31 to 0.95"."""
    ratios = [r["ratio"] for r in newest("ops-some-cpu-xeon-amx")["rows"] if r["ratio"] <= 1]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def some_ops_above():
    """Returns those above 1: "`mv` 1.11 (float32, with backward)"."""
    return " and ".join(f"`{r['row'].split()[0]}` {r['ratio']:.2f} ({r['dtype']}, "
                        f"{'with backward' if r['pass'] == 'fwd+bwd' else 'forward'})"
                        for r in newest("ops-some-cpu-xeon-amx")["rows"] if r["ratio"] > 1)


def crowded(isa, which):
    """Returns the same for layers whose sizes are multiples of 512, with oneDNN limited to `isa`."""
    rows = [r for r in newest("crowded-products-cpu-epyc-zen4")["rows"]
            if r["onednn_max_cpu_isa"] == isa and r["pass"] == which and "1000" not in r["row"]]
    ratios = [r["before_ratio"] for r in rows]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def relu_plan(field):
    """Returns how many percent less a step of ResNet-18 needs: "11 % in float32, 10 % in bfloat16"."""
    plans = next(iter(newest("fused-relu-cpu-xeon-amx")["plans"].values()))
    less = {dtype: 100 - 100 * plan["after"][field] / plan["before"][field] for dtype, plan in plans.items()}
    return ", ".join(f"{percent:.0f} % in {dtype}" for dtype, percent in less.items())


def recomputation():
    return newest("recomputation-cpu-epyc-zen4")


def recomputation_plans():
    lines = ["", "| | peak of a step | activations at the peak | modules | more operations |", "| --- | --- | --- | --- | --- |"]
    for r in recomputation()["plans"]:
        cells = [" to ".join(f"{b / 1e9:.2f} GB" for b in r[key]) for key in ("peak_bytes", "activation_bytes")]
        lines.append(f"| {r['dtype']} | {cells[0]} | {cells[1]} | {len(r['modules'])} | {100 * r['repeated_operations']:.1f} % |")
    return "\n".join(lines + [""])


def recomputation_times():
    """Returns the ratio of each dtype with its spread: "1.20 (1.18 to 1.25) in float32"."""
    rows = recomputation()["times"]
    if not all(r["same_bits"] and r["planned_peak_bytes"] == r["peak_bytes"] for r in rows):
        raise SystemExit("docs/performance.md says that bits and peaks are the same; the record of recomputation differs")
    return ", ".join(f"{r['ratio']:.2f} ({r['spread'][0]:.2f} to {r['spread'][1]:.2f}) in {r['dtype']}" for r in rows)


def readers_table():
    """Returns a line for each kind of data: processor seconds and memory of both programs, and ratios with those of the rounds."""
    lines = ["", "| data | halfstep | rival | seconds, ratio | memory, ratio |", "| --- |" + " --- |" * 4]
    for r in newest("readers-cpu-epyc-zen5")["rows"]:
        sides = [f"{r[f'{side}_cpu_s']:.1f} s, {r[f'{side}_peak_mb']:.0f} MB" for side in ("halfstep", "rival")]
        ratios = []
        for i, unit in enumerate(("cpu_s", "peak_mb")):
            rounds = [ours[i] / theirs[i] for ours, theirs in zip(r["halfstep_rounds"], r["rival_rounds"])]
            ratios.append(f"{r[f'{unit}_ratio']:.2f} ({min(rounds):.2f} to {max(rounds):.2f})")
        lines.append(f"| {r['data']} | {sides[0]} | {r['rival']}: {sides[1]} | {' | '.join(ratios)} |")
    return "\n".join(lines + [""])


def gpu_row(case, side, variant):
    """Returns a row of the benchmark MLPs on a GPU, or nothing."""
    rows = [r for c in newest("h100-mlp")["cases"] if c["case"] == case for r in c["rows"]]
    return next((r for r in rows if (r["side"], r["variant"]) == (side, variant)), None)


def gpu_stream(case, side, variant):
    row = gpu_row(case, side, variant)
    return statistics.median(r["stream"]["median_ms"] for r in row["rounds"]) if row else None


def gpu_4096():
    """Returns a step at batch 4096 and width 4096: "1.96 ms in float16 (0.70 of PyTorch's time)"."""
    def cell(variant, name):
        ours, theirs = gpu_stream("mlp_4096", "halfstep", variant), gpu_stream("mlp_4096", "torch", variant)
        return f"{ours:.3g} ms in {name} ({ours / theirs:.2f} of PyTorch's time)"

    return ", ".join(cell(v, n) for v, n in (("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")))


def gpu_mlp_table():
    """Returns a line for each network and precision: the times of both programs, and the share of the floor."""
    names = {"mlp_4096": "width 4096, batch 4096", "mlp_512": "width 4096, batch 512", "mlp_3x256": "width 256, batch 128"}
    lines = ["", "| network | precision | halfstep | of the floor | PyTorch, eager | ratio | peak, halfstep and PyTorch |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for case, name in names.items():
        for variant in ("fp32", "fp16", "bf16"):
            ours, theirs = gpu_row(case, "halfstep", variant), gpu_row(case, "torch", variant)
            if not ours or not theirs:
                continue
            ms, other = gpu_stream(case, "halfstep", variant), gpu_stream(case, "torch", variant)
            peak = " and ".join(f"{max(r['peak_bytes'] for r in row['rounds']) / 1e6:,.0f} MB" for row in (ours, theirs))
            lines.append(f"| {name} | {variant} | {ms:.3f} ms | {100 * ours['floor_ms'] / ms:.0f} % | {other:.3f} ms | "
                         f"{ms / other:.2f} | {peak} |")
    return "\n".join(lines + [""])


def gpu_nets_table():
    """Returns a line for each net: our fastest step, and each variant of PyTorch with the ratio to it."""
    sides = {"torch_eager": "PyTorch, eager", "torch_channels_last": "PyTorch, channels_last"}
    lines = ["", f"| net | precision | halfstep | {' | '.join(sides.values())} |", "| --- | --- | --- |" + " --- |" * len(sides)]
    for row in newest("h100-nets")["nets"]:
        if row["row"].startswith("GPT-2"):  # measured before its products were padded
            continue
        ours = min(ms for side, ms in row["ms"].items() if side.startswith("halfstep"))
        cells = [f"{row['ms'][s]:.2f} ms ({ours / row['ms'][s]:.2f})" if s in row["ms"] else "" for s in sides]
        lines.append(f"| {row['row']} | {row['dtype']} | {ours:.2f} ms | " + " | ".join(cells) + " |")
    return "\n".join(lines + [""])


def predictions():
    rows = newest("h100-predictions")["rows"]
    if rows != predict_h100.predictions()["rows"]:
        raise SystemExit("the record of predictions is not what benchmarks/predict_h100.py computes: run it")
    return rows


def gpu_predictions():
    """Returns a line for each net: what an H100 measured before the latest changes, and the predicted step after them."""
    lines = ["", "| net | precision | measured before | predicted now | floor | goal |", "| --- |" + " --- |" * 5]
    for r in predictions():
        digits = 1 if r["predicted_ms"] >= 10 else 2 if r["predicted_ms"] >= 1 else 3
        cells = [f"{r[key]:.{digits}f} ms" if r[key] else "" for key in ("measured_ms", "predicted_ms", "floor_ms", "goal_ms")]
        lines.append(f"| {r['net']} | {r['dtype']} | " + " | ".join(cells) + " |")
    return "\n".join(lines + [""])


def gpu_missed():
    """Returns the nets that are predicted to miss their goals: "the LSTM (float16)"."""
    return ", ".join(f"{r['net']} ({r['dtype']})" for r in predictions() if r["goal_ms"] and r["predicted_ms"] > r["goal_ms"])


def gpu_gains():
    """Returns a line for each change of each net: operations and bytes, before and after, and the predicted gain."""
    lines = ["", "| net | change | operations | GB | predicted gain | from |", "| --- |" + " --- |" * 5]
    last = []
    for r in predictions():
        for i in (i for i in r["items"] if i not in last):  # a net's next precision or optimizer has the same changes
            operations, gb = (" to ".join(f"{v:.3g}" for v in i[key]) if any(i[key]) else "" for key in ("operations", "gb"))
            lines.append(f"| {r['net']} | {i['item']} | {operations} | {gb} | {i['gain_ms']:.3f} ms | {i['by']} |")
        last = r["items"]
    return "\n".join(lines + [""])


def gpu_plans():
    """Returns a line for each net: operations and bytes that a plan counts, and its floors."""
    record = newest("plans-gpu-nets")
    heads = " | ".join(f"floor on an {gpu}" for gpu in record["rates"])
    lines = ["", f"| net | TFLOP | GB | {heads} |", "| --- |" + " --- |" * (2 + len(record["rates"]))]
    for r in record["rows"]:
        floors = " | ".join(f"{ms:.1f} ms" for ms in r["floor_ms"].values())
        lines.append(f"| {r['net']} | {r['tflop']:.2f} | {r['gb']:.1f} | {floors} |")
    return "\n".join(lines + [""])


def gpu_chunks():
    """Returns what the plan of GPT-2 would count without the library's attention: "72.3 GB and, on an H200, a floor of 22.0 ms"."""
    chunks = newest("plans-gpu-nets")["chunks"]
    return f"{chunks['gb']:.1f} GB and, on an H200, a floor of {chunks['floor_ms']['H200']:.1f} ms"


def recorded_operations(net):
    """Returns the operations of a net's recorded step, which a test checks."""
    text = (ROOT / "tests/emulators/source/census_test.cpp").read_text(encoding="utf-8")
    return re.search(rf'\{{"{re.escape(net)}", .*, (\d+)\}},', text)[1]


def gpu_benchmark_table():
    """Returns the benchmark's seconds and bytes of 150 steps on a GPU."""
    lines = ["", "| | seconds | bytes | a step |", "| --- | --- | --- | --- |"]
    for arm in newest("h100-benchmark")["arms"]:
        lines.append(f"| {arm['arm']} | {arm['seconds']:.3f} | {arm['peak_bytes']:,} | {arm['median_ms']:.2f} ms |")
    return "\n".join(lines + [""])


def published_table():
    """A line for each published model: its largest difference from PyTorch in each precision, and PyTorch's own in 16 bits."""
    lines = ["", "| model | kind | package | by | float32 | bfloat16 | float16 |", "| --- |" + " --- |" * 6]
    for r in newest("published-models")["rows"]:
        cells = [f"{r[d]['max']:.1e}" + (f" ({r[f'torch_{d}']['max']:.1e})" if d != "float32" else "") for d in ARMS]
        lines.append(f"| {r['model']} | {r['kind']} | {r['package'].replace('==', ' ')} | {r['by']} | " + " | ".join(cells) + " |")
    return "\n".join(lines + [""])


def size(what, key="bytes", products=None):
    """Returns a size of what halfstep is shipped as."""
    row = next(r for r in newest("sizes-x86-64")["rows"] if r["what"] == what and r.get("products") == products)
    return f"{row[key] / 1e6:.1f} MB"


def start(what, key="start_ms"):
    row = next(r for r in newest("sizes-x86-64")["rows"] if r["what"] == what and key in r)
    return f"Linux {row[key]}" if key == "linux" else f"{row[key]:.1f} ms"


def onednn_bytes():
    """Returns the size of oneDNN's shared library."""
    rows = [r for r in newest("sizes-x86-64")["rows"] if r.get("products") == "oneDNN"]
    return f"{next(size for r in rows for name, size in r['needs'].items() if name.startswith('libdnnl')) / 1e6:.1f} MB"


def embedded(arm, when="", record="latency-embedded-cpu-epyc-zen5"):
    """Returns the time of a call with one sample as a share of onnxruntime's: "1.09 (MLP) and 1.20 (LeNet)"."""
    names = {"mlp": "MLP", "lenet": "LeNet", "char_lstm": "LSTM"}
    rows = [r for r in newest(record + when)["rows"] if r["batch"] == 1 and r["model"] in names]
    *others, last = [f"{r['ratios'][f'{arm} / onnxruntime'][1]:.2f} ({names[r['model']]})" for r in rows]
    return ", ".join(others) + " and " + last


FIGURES = {
    "wheel_bytes": lambda: size("wheel"), "wheel_unpacked": lambda: size("wheel", "unpacked_bytes"),
    "static_archive": lambda: size("static archive"), "static_program": lambda: size("static program"),
    "static_linux": lambda: start("static program", "linux"), "static_start": lambda: start("static program"),
    "program_start": lambda: start("program"), "onednn_bytes": onednn_bytes,
    "library_own": lambda: size("libhalfstep_predict.so", products="own loops"),
    "library_onednn": lambda: size("libhalfstep_predict.so", products="oneDNN"),
    "linked_own": lambda: size("linked program", products="own loops"),
    "linked_onednn": lambda: size("linked program", products="oneDNN"),
    "embedded_onednn": lambda: embedded("halfstep"), "embedded_own": lambda: embedded("own loops"),
    "latency_amx": lambda: embedded("halfstep", record="latency-cpu-xeon-amx"),
    "nets_since": lambda: all_before_ratios("nets-before-cpu-xeon-amx"),
    "some_ops_range": some_ops_range, "some_ops_above": some_ops_above,
    "embedded_before": lambda: embedded("halfstep", "-before"),
    "published_table": published_table,
    "gpu_4096": gpu_4096, "gpu_benchmark_table": gpu_benchmark_table,
    "gpu_mlp_table": gpu_mlp_table, "gpu_nets_table": gpu_nets_table,
    "gpu_predictions": gpu_predictions, "gpu_gains": gpu_gains, "gpu_missed": gpu_missed, "gpu_plans": gpu_plans,
    "gpu_chunks": gpu_chunks,
    "operations_mlp": lambda: recorded_operations("MLP 4096, batch 4096"),
    "operations_resnet": lambda: recorded_operations("ResNet-18, batch 64, channels_last"),
    "operations_lstm": lambda: recorded_operations("LSTM 2 x 1024"),
    "operations_gpt2": lambda: recorded_operations("GPT-2 small, batch 8"),
    "readers_table": readers_table,
    "recomputation_plans": recomputation_plans, "recomputation_times": recomputation_times,
    "laid_one": lambda: before_ratios("resnet18-before-cpu-xeon-amx", "forward", "batch 1"),
    "laid_four": lambda: before_ratios("resnet18-before-cpu-xeon-amx", "forward", "batch 4"),
    "direct_one": lambda: before_ratios("resnet18-before-cpu-xeon-amx", "train", "batch 1", "float32"),
    "direct_four": lambda: before_ratios("resnet18-before-cpu-xeon-amx", "train", "batch 4", "float32"),
    "crowded_step": lambda: crowded("AVX2", "fwd+bwd"), "crowded_forward": lambda: crowded("ALL", "forward"),
    "relu_forward": lambda: before_ratios("fused-relu-cpu-xeon-amx", "forward"),
    "relu_step": lambda: before_ratios("fused-relu-cpu-xeon-amx", "train"),
    "conv_layers": layer_ratios,
    "team_conv_forward": lambda: before_ratios("team-convolutions-cpu-xeon-amx", "forward"),
    "team_conv_step": lambda: before_ratios("team-convolutions-cpu-xeon-amx", "train"),
    "team_conv_busy_forward": lambda: before_ratios("team-convolutions-busy-cpu-xeon-amx", "forward"),
    "team_conv_busy_step": lambda: before_ratios("team-convolutions-busy-cpu-xeon-amx", "train"),
    "relu_peak": lambda: relu_plan("peak_bytes"), "relu_read": lambda: relu_plan("bytes_read"),
    "ops_epyc": lambda: at_most_one("ops-cpu-epyc-zen4"), "ops_avx2": lambda: at_most_one("ops-cpu-epyc-zen4-avx2"),
    "ops_table": ops_table, "ops_slower": ops_slower, "float16_table": float16_table,
    "first_weight_bytes": lambda: first_weight("bytes"), "first_weight_before": lambda: first_weight("before"),
    "busy_training": lambda: busy_training("one"), "free_training": lambda: busy_training("both"),
    "pooled_forward": lambda: pooled_gain("forward"), "pooled_step": lambda: pooled_gain("fwd+bwd"),
    **{f"lanes_{op}": lambda op=op: lanes_gain(op) for op in ("sum", "amax", "softmax", "layer_norm", "group_norm")},
    "ops_xeon": lambda: at_most_one("ops-cpu-xeon-emerald-rapids"),
    "mlp_4096": mlp_4096, "mlp_table": mlp_table, "torch_1024": torch_1024, "torch_spread": torch_spread,
    "recipes_table": recipes_table, "latency_table": latency_table, "nets_table": nets_table,
    "nets_epyc": lambda: short_nets_table("nets-cpu-epyc-zen4"),
    "nets_zen3": lambda: short_nets_table("nets-cpu-epyc-zen3"),
    "own_layout": lambda: before_ratios("channels-last-before-cpu-epyc-zen3"),
    "callers": lambda: callers("halfstep"), "callers_torch": lambda: callers("torch"),
    "callers_onnxruntime": lambda: callers("onnxruntime"),
    "ranks_sums": ranks_sums, "opening": lambda: opening("latency-cpu-epyc-zen4"),
    "opening_before": lambda: opening("latency-cpu-epyc-zen4-before"),
    "lstm_one_low": lambda: recurrent_gain("bfloat16", 1), "lstm_many_low": lambda: recurrent_gain("bfloat16", 64),
    "lstm_one": lambda: recurrent_gain("float32", 1), "lstm_many": lambda: recurrent_gain("float32", 64),
}


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    wrong, used = [], set()
    for name in PAGES:
        page = ROOT / name
        text = page.read_text(encoding="utf-8")

        def figure(mark):
            used.add(mark[2])
            value = FIGURES[mark[2]]() if mark[2] in FIGURES else "(no such figure)"
            if value.split() != mark[3].split():
                wrong.append(f"{name}: {mark[2]} is {value.strip()!r} by the records, not {mark[3].strip()!r}")
            return mark[1] + (value if value.split() != mark[3].split() else mark[3]) + mark[4]

        now = MARK.sub(figure, text)
        if now != text and not arguments:
            page.write_text(now, encoding="utf-8")
    wrong += [f"{name} is in no page: remove it from FIGURES" for name in FIGURES.keys() - used]
    unknown = used - FIGURES.keys()
    if arguments or unknown:
        print("\n".join(wrong) if wrong else "write_figures: all figures agree with the records")
    return 1 if unknown or (arguments and wrong) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
