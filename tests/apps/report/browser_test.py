#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports in a browser: browser_test.py HALFSTEP. Needs chromium; skipped without it.

At 400 and at 1,400 pixels, light and dark: nothing on the console, no overflow, the value under the pointer is the file's, and each
run's color is on the screen. The same of pictures and of a measurement.
"""
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

CONFIG = {"name": "run", "device": "cpu", "model": {"type": "Linear", "out_features": "auto"}, "loss": "CrossEntropyLoss",
          "optimizer": {"type": "SGD", "lr": 0.1}, "metrics": ["confusion_matrix"], "logging": {"every": 1}, "train": {"epochs": 6},
          "data": {"train": {"type": "Random", "num_batches": 5, "input_shape": [4], "classes": 3},
                   "val": {"type": "Random", "num_batches": 1, "input_shape": [4], "classes": 3}, "loader": {"batch_size": 8}}}
# Appended to a copy of the page: what a person would see, as JSON in the page.
PROBE = """<script>
const svg = document.querySelector("svg[data-points]"), box = svg.getBoundingClientRect();
const at = {clientX: box.left + box.width * %s, clientY: box.top + 20, bubbles: true};
svg.dispatchEvent(new PointerEvent("pointermove", at));
const said = document.createElement("pre");
said.id = "said";
said.textContent = JSON.stringify({
  pictures: [...document.images].map((image) => image.naturalWidth),
  overflow: document.documentElement.scrollWidth - innerWidth, tip: document.getElementById("tip").innerText,
  chart: JSON.parse(document.getElementById(svg.dataset.points).textContent)});
document.body.append(said);
</script>"""
PLACE = 0.5


def pixels(path):
    """The colors of a PNG of 8 bits a channel."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, _, color = struct.unpack(">IIBB", data[at + 8:at + 18])
        packed += data[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    depth, raw, before, found = 4 if color == 6 else 3, zlib.decompress(packed), None, set()
    for y in range(height):
        begin = y * (width * depth + 1)
        how, row = raw[begin], bytearray(raw[begin + 1:begin + 1 + width * depth])
        for i in range(len(row)):
            left, up = row[i - depth] if i >= depth else 0, before[i] if before else 0
            corner = before[i - depth] if before and i >= depth else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda v: abs(guess - v))
            row[i] = (row[i] + (0, left, up, (left + up) // 2, paeth)[how]) & 255
        before = row
        found |= {bytes(row[i:i + 3]) for i in range(0, len(row), depth)}
    return found


def browse(browser, page, width, dark, *arguments):
    scheme = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
    return subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
                           f"--window-size={width},1400", *scheme, *arguments, page.as_uri()],
                          capture_output=True, text=True, timeout=120)


def check_pointer(where, said, runs):
    """The values under the pointer are those of the nearest step in the page's data."""
    chart = said["chart"]
    share = (PLACE * chart["width"] - chart["left"]) / (chart["right"] - chart["left"])
    x = chart["x0"] + share * (chart["x1"] - chart["x0"])
    lines = [line for line in said["tip"].splitlines() if line.strip()]
    assert len(lines) == len(chart["curves"]) == runs, (where, lines)
    for line, curve in zip(lines, chart["curves"]):
        near = min(range(len(curve["x"])), key=lambda i: abs(curve["x"][i] - x))
        assert line.endswith(f"at step {curve['x'][near]:g}"), (where, line)
        value = float(line.split(" at step")[0].split()[-1])
        assert abs(value - curve["y"][near]) <= 1e-5 * abs(curve["y"][near]), (where, line)


def check_page(browser, page, curves, what, pictures=0):
    """The page of a file at each width and in each light; the colors of its first curves."""
    probed = page.with_name("probed.html")
    probed.write_text(page.read_text().replace("</body>", PROBE % PLACE + "</body>"))
    for width in (400, 1400):
        for dark in (False, True):
            where = f"{what}, {width} pixels, {'dark' if dark else 'light'}"
            seen = browse(browser, probed, width, dark, "--dump-dom")
            console = [line for line in seen.stderr.splitlines() if "CONSOLE" in line]
            assert not console, (where, console)
            said = seen.stdout.split('<pre id="said">')[1].split("</pre>")[0]
            said = json.loads(said.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
            assert said["overflow"] <= 0, (where, said["overflow"])
            assert len(said["pictures"]) == pictures and all(said["pictures"]), (where, said["pictures"])
            check_pointer(where, said, curves)
    browse(browser, page, 1400, False, f"--screenshot={page.with_suffix('.png')}")
    colors, style = pixels(page.with_suffix(".png")), page.read_text()
    for k in range(curves):
        color = bytes.fromhex(style.split(f"--c{k}: #")[1][:6])
        assert color in colors, f"{what}: the color {k} is not on the screen"


def main():
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        sys.exit("SKIPPED: no chromium")
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for k, lr in enumerate((0.1, 0.3, 1.0)):
            own = {"output_dir": str(folder / f"run{k}"), "optimizer": {"type": "SGD", "lr": lr}}
            (folder / "config.json").write_text(json.dumps(CONFIG | own))
            subprocess.run([program, "train", folder / "config.json", "--quiet"], check=True)
        for runs in (["run0"], ["run0", "run1", "run2"]):
            subprocess.run([program, "report", *(folder / r for r in runs), "--out", folder / "page.html"], check=True,
                           stdout=subprocess.DEVNULL)
            check_page(browser, folder / "page.html", len(runs), f"{len(runs)} runs")
        digits = {"output_dir": str(folder / "digits"), "train": {"epochs": 1}, "diagnostics": {"every": "10 steps"},
                  "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": "auto"}]},
                  "data": {"train": {"type": "Digits", "split": "train"}, "val": {"type": "Digits", "split": "test"}}}
        (folder / "config.json").write_text(json.dumps(CONFIG | digits))
        subprocess.run([program, "train", folder / "config.json", "--quiet"], check=True)
        subprocess.run([program, "report", folder / "digits", "--samples", "20", "--out", folder / "digits.html"], check=True,
                       stdout=subprocess.DEVNULL)
        check_page(browser, folder / "digits.html", 1, "a run of pictures", pictures=20)
        bench = [program, "bench", "mlp", "--json", "--device", "cpu", "--batch", "32", "--width", "64", "--batches", "2"]
        (folder / "bench.json").write_bytes(subprocess.run(bench, check=True, stdout=subprocess.PIPE).stdout)
        subprocess.run([program, "report", folder / "bench.json", "--out", folder / "bench.html"], check=True,
                       stdout=subprocess.DEVNULL)
        check_page(browser, folder / "bench.html", 3, "a measurement")
    print("four reports at two widths, light and dark: all is seen")


main()
