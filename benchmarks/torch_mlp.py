# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of compare_torch_cuda.py: the benchmark MLP in its variants, and the rates that the chip reaches."""
import json
import pathlib
import statistics
import time

from compare_torch import make_mlp
from mlp_tables import inner_steps

# dtype: of autocast, or none. how: eager, compile, graph (CUDA graph of forward and backward, the optimizer after it, as
# PyTorch documents it for a GradScaler) or step_graph (the whole step).
TORCH = {
    "fp32": {},
    "tf32": {"tf32": True},
    "fp16": {"dtype": "float16"},
    "bf16": {"dtype": "bfloat16"},
    "fp16_fused": {"dtype": "float16", "fused": True},
    "bf16_fused": {"dtype": "bfloat16", "fused": True},
    "fp16_compile": {"dtype": "float16", "fused": True, "how": "compile"},
    "fp16_graph": {"dtype": "float16", "fused": True, "how": "graph"},
    "bf16_graph": {"dtype": "bfloat16", "fused": True, "how": "step_graph"},
}
BATCHES = 8  # resident, in rotation


def summary(ms):
    ms = sorted(ms)
    return {"median_ms": statistics.median(ms), "min_ms": ms[0], "p90_ms": ms[int(0.9 * (len(ms) - 1))], "samples": len(ms)}


def ceilings(torch):
    """The rates that the chip reaches: copy in TB/s (bytes read and written), products in TFLOP/s, on random data."""
    def seconds(run, repeats):
        for _ in range(3):
            run()
        times = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        return statistics.median(times)
    source = torch.randn(min(1 << 30, torch.cuda.mem_get_info()[0] // 16), device="cuda")  # a half of the free memory, for both
    target = torch.empty_like(source)
    out = {"copy_tb_s": 8 * source.numel() / seconds(lambda: target.copy_(source), 10) / 1e12}
    del source, target
    for name, n, dtype in (("fp16", 4096, torch.float16), ("fp16", 8192, torch.float16), ("tf32", 4096, torch.float32),
                           ("fp32", 4096, torch.float32)):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        x, y = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
        out[f"{name}_{n}_tflop_s"] = 2 * n**3 / seconds(lambda: x @ y, 10) / 1e12
    return out


class Torch:
    """One variant of a case: built once, kept over the rounds."""

    def __init__(self, a, torch, case, variant, data):
        self.a, self.torch, self.data = a, torch, data  # data: BATCHES inputs, as many targets
        self.inner, self.peak_bytes = inner_steps(case), None
        v = TORCH[variant]
        self.tf32, how = v.get("tf32", False), v.get("how", "eager")
        self.dtype = getattr(torch, v["dtype"]) if "dtype" in v else None
        self.alive_before = self.allocated()
        if a.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(0)
        with torch.device(a.device):
            self.net = make_mlp(torch, case[1], case[2])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, **({"fused": True} if v.get("fused") else {}))
        self.scaler = torch.amp.GradScaler(a.device, enabled=self.dtype == torch.float16)
        self.i = 0
        self.select()
        self.loss_of = lambda x, t: torch.nn.functional.mse_loss(self.net(x), t)
        if how == "compile":
            self.loss_of = torch.compile(self.loss_of, mode=a.compile_mode)
        self.step = self.eager_step
        if how in ("graph", "step_graph"):
            self.capture(whole=how == "step_graph")

    def select(self):
        self.torch.backends.cuda.matmul.allow_tf32 = self.tf32  # process-wide

    def allocated(self):
        return self.torch.cuda.memory_allocated() if self.a.device == "cuda" else 0

    def synchronize(self):
        if self.a.device == "cuda":
            self.torch.cuda.synchronize()

    def forward_backward(self, x, t):
        with self.torch.autocast(self.a.device, dtype=self.dtype or self.torch.bfloat16, enabled=self.dtype is not None):
            loss = self.loss_of(x, t)
        self.scaler.scale(loss).backward()
        return loss.detach()

    def update(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def next_batch(self):
        self.i += 1
        return self.data[0][self.i % BATCHES], self.data[1][self.i % BATCHES]

    def eager_step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward_backward(*self.next_batch())
        self.update()
        return loss

    def capture(self, whole):
        torch = self.torch
        x, t = self.data[0][0].clone(), self.data[1][0].clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.eager_step()
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self.forward_backward(x, t)
            if whole:
                self.optimizer.step()

        def replay():
            batch, target = self.next_batch()
            x.copy_(batch)
            t.copy_(target)
            graph.replay()
            if not whole:
                self.update()
            return loss
        self.step = replay

    def round(self):
        a, torch = self.a, self.torch
        self.select()
        start, steps = time.perf_counter(), 0
        least = 20 if a.device == "cuda" else 2
        while steps < least or time.perf_counter() - start < a.warm_s:
            self.step()
            self.synchronize()
            steps += 1
        sync = []
        for _ in range(a.samples):
            begin = time.perf_counter()
            loss = self.step()
            self.synchronize()
            sync.append(1e3 * (time.perf_counter() - begin))
        pace = statistics.median(sync) / 1e3
        out = {"sync": summary(sync), "final_loss": float(loss)}
        if a.device == "cuda":
            if self.peak_bytes is None:  # since it was built: a graph's activations show only while it is captured
                data = sum(x.numel() * x.element_size() for side in self.data for x in side)
                self.peak_bytes = torch.cuda.max_memory_allocated() - self.alive_before + data
            out["peak_bytes"] = self.peak_bytes
            stream = []
            for _ in range(max(5, min(a.samples, int(a.stream_s / (self.inner * pace))))):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(self.inner):
                    self.step()
                end.record()
                end.synchronize()
                stream.append(begin.elapsed_time(end) / self.inner)
            out["stream"] = summary(stream) | {"inner": self.inner}
        return out


def read_safetensors(torch, path):
    raw = pathlib.Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    out = {}
    for name, t in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            if t["dtype"] != "F32":
                raise ValueError(f"{path}: {name} is {t['dtype']}, not F32")
            begin, end = (8 + size + o for o in t["data_offsets"])
            out[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=torch.float32).reshape(t["shape"])
    return out
