# SPDX-License-Identifier: Apache-2.0
"""The benchmark MLPs of compare_torch_cuda.py: their cases, floors and predicted times by GPU, and the tables of a result."""
import re

CASES = {  # batch, width, Linear layers; the most telling first, as time may run out
    "mlp_4096": (4096, 4096, 3),
    "mlp_512": (512, 4096, 3),
    "mlp_3x256": (128, 256, 3),
    "mlp_128": (128, 4096, 3),
    "mlp_513": (513, 4096, 3),
    "mlp_w4095": (512, 4095, 3),
}
# Milliseconds a step, from and to, as predicted for an H200 before anything was measured there. Keys: side and variant.
PREDICTED = {
    "mlp_4096": {"halfstep fp16": (1.78, 1.95), "torch fp16": (2.3, 2.6), "torch fp16_compile": (2.1, 2.3),
                 "torch fp16_graph": (2.3, 2.5), "halfstep fp32": (24.2, 25), "torch fp32": (24.5, 25.5),
                 "halfstep tf32": (2.9, 3.1), "torch tf32": (3.1, 3.4)},
    "mlp_512": {"halfstep fp16": (0.47, 0.55), "torch fp16": (0.9, 1.2), "torch fp16_compile": (0.7, 0.9),
                "torch fp16_graph": (0.75, 0.85)},
    "mlp_513": {"halfstep fp16": (0.50, 0.62), "torch fp16": (1.0, 1.3), "torch fp16_compile": (0.8, 1.0),
                "torch fp16_graph": (0.85, 0.95)},
    "mlp_128": {"halfstep fp16": (0.27, 0.33), "torch fp16": (0.8, 1.1), "torch fp16_compile": (0.6, 0.8),
                "torch fp16_graph": (0.6, 0.7)},
    "mlp_3x256": {"halfstep fp16": (0.045, 0.06), "torch fp16": (0.8, 1.1), "torch fp16_compile": (0.5, 0.7),
                  "torch fp16_graph": (0.15, 0.25)},
}
PREDICTED_RATIO = {"mlp_4096 fp16": 0.78, "mlp_512 fp16": 0.50, "mlp_513 fp16": 0.55, "mlp_128 fp16": 0.38, "mlp_3x256 fp16": 0.06,
                   "mlp_4096 fp32": 1.0, "mlp_4096 tf32": 0.93}
# The rates of a GPU: bytes/s copied (read and written) and FLOP/s of dense products that are summed up in float32. Of the first
# whose pattern the name that nvidia-smi gives contains. Assumed for H200 and H100: copies at about 0.9 of the data sheet, and
# 16-bit and TF32 products at about 0.8. All else is from the makers' data sheets.
RATES = [
    ("H200", {"copy": 4.3e12, "fp32": 67e12, "tf32": 404e12, "fp16": 790e12, "bf16": 790e12}),
    ("H100(?! PCIe| NVL)", {"copy": 3.0e12, "fp32": 67e12, "tf32": 404e12, "fp16": 790e12, "bf16": 790e12}),
    ("A100.*80GB", {"copy": 2.0e12, "fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12}),
    ("A100", {"copy": 1.555e12, "fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12}),
    (r"\bL4\b", {"copy": 0.3e12, "fp32": 30.3e12, "tf32": 60e12, "fp16": 121e12, "bf16": 121e12}),
    (r"RTX 4090(?! D| Laptop)", {"copy": 1.008e12, "fp32": 82.6e12, "tf32": 82.6e12, "fp16": 165.2e12, "bf16": 165.2e12}),
]


def rates_of(gpu, ceilings=None):
    """The rates of a GPU by its name; of one that is not known those measured on it, or none."""
    for pattern, rates in RATES:
        if re.search(pattern, gpu or ""):
            return {"of": re.search(pattern, gpu).group()} | rates
    measured = {key: max((1e12 * v for k, v in (ceilings or {}).items() if k.startswith(key + "_")), default=None)
                for key in ("copy", "fp32", "tf32", "fp16")}
    if not measured["copy"] or not measured["fp16"]:
        return None
    return {"of": "measured here"} | measured | {"bf16": measured["fp16"]}


def floor_ms(case, variant, rates):
    """The least time of a step with these rates: each product's arithmetic or bytes, and the bytes of everything else."""
    batch, width, layers = case
    precision = variant.split("_")[0]
    if not rates or not rates.get(precision):
        return None
    low = precision in ("fp16", "bf16")
    bytes_each = (2 if low else 4) * (width * width + 2 * batch * width)
    product = max(2 * batch * width * width / rates[precision], bytes_each / rates["copy"])
    n, p = batch * width, layers * width * width
    rest = (14.5 * n + 14 * p if low else 12 * n + 12 * p) / rates["copy"]
    return 1e3 * ((3 * layers - 1) * product + rest)


def predicted_ms(case, side, variant, rates):
    """From and to: those of an H200, and on another GPU longer or shorter as the floor is; unscaled where launches are all there
    is."""
    predicted = PREDICTED.get(case["case"], {}).get(f"{side} {variant}")
    shape = (case["batch"], case["width"], case["layers"])
    theirs = floor_ms(shape, variant, rates)
    if not predicted or not theirs:
        return None
    scale = 1 if case["width"] < 1024 else theirs / floor_ms(shape, variant, RATES[0][1])
    return predicted[0] * scale, predicted[1] * scale


def inner_steps(case):
    """Steps between two waits of the host, in the measurements that do not wait after each: some 20 ms of them."""
    batch, width, _ = case
    return 50 if width <= 1024 else 10 if batch >= 4096 else 20


def medians(row, kind):
    return [r[kind]["median_ms"] for r in row["rounds"] if r.get(kind) and r[kind]["median_ms"] > 0]


def middle(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def spread(values):
    return max(values) / min(values) - 1


def cell(value, width, digits=3):
    return f"{'-' if value is None else format(value, f'.{digits}f'):>{width}}"


def print_rows(case):
    print(f"\n{case['case']}: {case['layers']} x Linear({case['width']}, {case['width']}), batch {case['batch']}\n")
    columns = {"stream": 9, "sync": 9, "min": 9, "p90": 9, "floor": 9, "of floor": 10, "spread": 8, "peak MB": 10}
    print(f"{'side':<10}{'variant':<14}" + "".join(f"{name:>{width}}" for name, width in columns.items()))
    for row in case["rows"]:
        head = f"{row['side']:<10}{row['variant']:<14}"
        if "error" in row:
            print(f"{head}  failed: {' '.join(row['error'].split())[-110:]}")
        stream, sync = medians(row, "stream"), medians(row, "sync")
        best = stream or sync
        if not best:
            if "error" not in row:
                print(f"{head}  not measured")
            continue
        rounds = [r["stream" if stream else "sync"] for r in row["rounds"]]
        least = min(r["min_ms"] for r in rounds)
        p90 = [r["p90_ms"] for r in rounds if r.get("p90_ms") is not None]
        peak = row["rounds"][0].get("peak_bytes")
        print(head + cell(middle(stream) if stream else None, 9) + cell(middle(sync) if sync else None, 9) + cell(least, 9) +
              cell(max(p90) if p90 else None, 9) + cell(row["floor_ms"], 9) +
              (f"{row['floor_ms'] / middle(best):>10.0%}" if row["floor_ms"] else f"{'-':>10}") +
              f"{spread(best):>8.1%}" + cell(peak / 1e6 if peak else None, 10, 0) +
              ("  recorded" if row["rounds"][0].get("recorded") else ""))


def comparisons(case):
    """For each variant of halfstep: against PyTorch's eager one and against the fastest of that precision, by equal method."""
    rows = [r for r in case["rows"] if "error" not in r]
    for mine in (r for r in rows if r["side"] == "halfstep"):
        precision = mine["variant"].split("_")[0]
        theirs = [r for r in rows if r["side"] == "torch" and r["variant"].split("_")[0] == precision]
        for kind in ("stream", "sync"):
            ours = medians(mine, kind)
            have = {r["variant"]: medians(r, kind) for r in theirs if medians(r, kind)}
            if not ours or not have:
                continue
            fastest = min(have, key=lambda v: middle(have[v]))
            for other in dict.fromkeys([precision, fastest]):
                if other not in have:
                    continue
                ratio = middle(ours) / middle(have[other])
                noise = max(spread(ours), spread(have[other]))
                yield {"case": case["case"], "variant": mine["variant"], "against": other, "fastest": other == fastest,
                       "kind": kind, "ratio": ratio, "noise": noise,
                       "claim": abs(ratio - 1) > noise and len(ours) > 1 and len(have[other]) > 1}


def print_comparisons(cases):
    found = [c for case in cases for c in comparisons(case)]
    if not found:
        return
    print("\nhalfstep / PyTorch, below 1 halfstep is faster; no claim where the rounds differ among themselves by more than that\n")
    print(f"{'case':<12}{'halfstep':<12}{'PyTorch':<14}{'method':<8}{'ratio':>7}{'noise':>8}{'predicted':>11}")
    for c in found:
        predicted = PREDICTED_RATIO.get(f"{c['case']} {c['variant']}") if c["against"] == c["variant"] else None
        note = "  fastest of PyTorch" if c["fastest"] else ""
        print(f"{c['case']:<12}{c['variant']:<12}{c['against']:<14}{c['kind']:<8}{c['ratio']:>7.2f}{c['noise']:>8.1%}"
              f"{cell(predicted, 11, 2)}{note}{'' if c['claim'] else '  no claim'}")


def print_products(case):
    """How each product of the last measured steps ran: the rung of the ladder first."""
    seen = set()
    for row in case["rows"]:
        lines = []
        for p in row.get("products") or []:
            shape = f"{p['m']} x {p['n']} x {p['k']}" + (f" * {p['batch']}" if p["batch"] != 1 else "")
            ways = "".join("t" if p[f"{side}_transposed"] else "n" for side in "ab")
            ms = f"{p['ms']:9.4f} ms" if p.get("ms") else " " * 12
            lines.append(f"  {p['rung']:<13}{shape:<22}{ways:<4}{p['in'] + ' -> ' + p['out']:<22}{p['epilogue'] or '-':<16}"
                         f"{p['candidates']:>3} ways, status {p['status']}, algorithm {p['algorithm']}{ms}{p['calls']:>6} calls")
        text = "\n".join(lines)
        if lines and text not in seen:
            seen.add(text)
            print(f"\nproducts of {case['case']}, {row['variant']}: rung, m x n x k, transposed or not, dtypes, epilogue")
            print(text)
        if row.get("plain_products"):
            print(f"  {row['plain_products']} PLAIN products: on a kernel of halfstep's own, for want of any code of the library")


def print_predictions(cases, rates):
    lines = []
    for case in cases:
        for row in case["rows"]:
            predicted = predicted_ms(case, row["side"], row["variant"], rates)
            stream, sync = medians(row, "stream"), medians(row, "sync")
            if not predicted or not (stream or sync):
                continue
            measured = middle(stream or sync)
            low, high = predicted
            verdict = "as predicted" if low <= measured <= high else f"{measured / high:.2f} x the upper" if measured > high else \
                f"{measured / low:.2f} x the lower"
            lines.append(f"{case['case']:<12}{row['side']:<10}{row['variant']:<14}{low:>8.2f} ..{high:>6.2f}{measured:>10.3f}  "
                         f"{verdict}{'' if stream else ' (with a synchronisation each step)'}")
    if lines:
        print(f"\nPredicted{'' if rates['of'] == 'H200' else ' for an H200, scaled by the floors'} and measured, ms\n")
        print("\n".join(lines))


def print_tables(result):
    before, after = result.get("gpu_before") or {}, result.get("gpu_after") or {}
    v = result.get("versions", {})
    print(f"\n{result['date']}, halfstep {result['commit']}, {before.get('name', result.get('device', ''))}")
    print("; ".join(f"{k} {v[k]}" for k in v if v[k]))
    if before:
        def state(g):
            return f"SM {g.get('clocks.sm')} MHz, {g.get('power.draw')} W, {g.get('temperature.gpu')} C"
        print(f"driver {before.get('driver_version')}; before: {state(before)}; after: {state(after)}")
    for name, value in (result.get("ceilings") or {}).items():
        print(f"ceiling {name} {value:.2f}")
    print("Times in ms a step. stream: many steps between two waits of the host; sync: it waits after each step; min, p90 and")
    rates = result.get("rates", {"of": "H200"} | RATES[0][1])  # results of format 1 had the floors of an H200
    of = rates["of"] if rates else "none, for nothing is known of this GPU"
    print(f"spread (between rounds) of stream, or of sync without it; floor: {of}, and its share of the time.")
    for case in result["cases"]:
        print_rows(case)
        print_products(case)
    print_comparisons(result["cases"])
    print_predictions(result["cases"], rates)
    for row in result.get("loss_curves") or []:
        print(f"\nlosses of {row['variant']}: " + (f"failed: {row['error'][-200:]}" if "error" in row else
              f"largest relative difference from PyTorch {row['max_relative_difference']:.1e} in {row['steps']} steps, "
              f"{'within' if row['ok'] else 'NOT WITHIN'} 1e-3"), end="")
    print()
    for note in result.get("notes") or []:
        print(f"note: {note}")
