#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what PyTorch draws on a CPU for a seed: numbers, initial weights, and the losses of a small run.

    python scripts/record_draws.py          # writes tests/layers/torch_draws.json

tests/layers/torch_draws_test.cpp compares halfstep's generator of kind mt19937 with the file. Run it on a CPU with AVX2 that is not
Intel's: there PyTorch takes the masks of bernoulli_(p), and so of dropout, from MKL, whose numbers differ.
"""
import json
import pathlib

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEED = 2026


def numbers(x):
    return x.detach().double().flatten().tolist()


def draws():
    """Each draw with the word that the generator gives next."""
    f = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
         "i32": torch.int32, "u8": torch.uint8, "boolean": torch.bool}
    cases = []

    def add(op, make, **args):
        torch.manual_seed(SEED)
        values = make()
        again = make()  # a waiting normal number is taken by the second draw
        cases.append({"op": op, **args, "values": numbers(values), "again": numbers(again),
                      "next": int(torch.randint(0, 1 << 27, (1,)))})

    for dtype in ("f32", "f64", "f16", "bf16"):
        for n in (3, 16, 37):
            add("uniform", lambda: torch.empty(n, dtype=f[dtype]).uniform_(-0.37, 0.911), dtype=dtype, shape=[n], a=-0.37,
                b=0.911)
            add("normal", lambda: torch.empty(n, dtype=f[dtype]).normal_(1.5, 0.3), dtype=dtype, shape=[n], a=1.5, b=0.3)
        add("bernoulli", lambda: torch.empty(20, dtype=f[dtype]).bernoulli_(0.3), dtype=dtype, shape=[20], a=0.3)
        add("exponential", lambda: torch.empty(9, dtype=f[dtype]).exponential_(1.5), dtype=dtype, shape=[9], a=1.5)
        add("dropout", lambda: nn.functional.dropout(torch.ones(20, dtype=f[dtype]), 0.3), dtype=dtype, shape=[20], a=0.3)
    for dtype in ("i64", "i32", "u8", "boolean", "f16", "bf16", "f32", "f64"):
        add("random", lambda: torch.empty(5, dtype=f[dtype]).random_(), dtype=dtype, shape=[5])
    for low, high in ((3, 17), (0, (1 << 28) - 1), (0, 1 << 28), (-5, 1 << 40)):
        add("randint", lambda: torch.randint(low, high, (6,)), dtype="i64", shape=[6], a=low, b=high)
    add("uniform_t", lambda: torch.empty(4, 5).t().uniform_(0, 1), dtype="f32", shape=[4, 5])
    add("normal_t", lambda: torch.empty(4, 5).t().normal_(0, 1), dtype="f32", shape=[4, 5])
    last = torch.channels_last
    add("normal_nhwc", lambda: torch.empty(2, 3, 2, 2).contiguous(memory_format=last).normal_(0, 1), dtype="f32",
        shape=[2, 3, 2, 2])
    add("dropout_nhwc", lambda: nn.functional.dropout(torch.ones(2, 3, 2, 2).contiguous(memory_format=last), 0.5), dtype="f32",
        shape=[2, 3, 2, 2], a=0.5)
    for n in (0, 1, 12):
        add("randperm", lambda: torch.randperm(n), dtype="i64", shape=[n])
    p = torch.tensor([0.1, 0.5, 0.9, 0.3, 0.7, 0.2])
    add("bernoulli_of", lambda: torch.bernoulli(p), dtype="f32", shape=[6])
    add("bernoulli_of", lambda: torch.bernoulli(p.double()), dtype="f64", shape=[6])
    for count, again in ((1, True), (4, False), (9, True)):
        add("multinomial", lambda: torch.multinomial(p, count, again), dtype="f32", shape=[6], a=count, b=float(again))
    add("multinomial_rows", lambda: torch.multinomial(torch.stack([p, p.flip(0)]), 7, True), dtype="f32", shape=[6], a=7)
    add("gumbel", lambda: nn.functional.gumbel_softmax(torch.log(p)), dtype="f32", shape=[6])
    for kind in (1, 2, 3):
        drop = (nn.functional.dropout1d, nn.functional.dropout2d, nn.functional.dropout3d)[kind - 1]
        add(f"dropout{kind}d", lambda: drop(torch.ones([2, 4] + [1] * kind), 0.4), dtype="f32", shape=[2, 4] + [1] * kind, a=0.4)
    add("alpha_dropout", lambda: nn.functional.alpha_dropout(torch.ones(8), 0.4, True), dtype="f32", shape=[8], a=0.4)
    q = torch.eye(4).reshape(1, 1, 4, 4)
    attention = nn.functional.scaled_dot_product_attention
    add("attention", lambda: attention(q, q, q, dropout_p=0.5), dtype="f32", shape=[1, 1, 4, 4], a=0.5)
    add("random_split", lambda: torch.tensor([i for s in torch.utils.data.random_split(range(10), [6, 4]) for i in s.indices]),
        dtype="i64", shape=[10])
    return cases


def weights():
    layers = {
        "Linear": lambda: nn.Linear(5, 3), "Bilinear": lambda: nn.Bilinear(3, 4, 2), "Conv2d": lambda: nn.Conv2d(4, 6, 3, groups=2),
        "ConvTranspose1d": lambda: nn.ConvTranspose1d(4, 3, 2), "Embedding": lambda: nn.Embedding(5, 4),
        "EmbeddingBag": lambda: nn.EmbeddingBag(5, 3), "LSTM": lambda: nn.LSTM(3, 4, 2, bidirectional=True),
        "GRUCell": lambda: nn.GRUCell(3, 4), "MultiheadAttention": lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True),
        "MultiheadAttention of kdim": lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=5),
        "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(8, 2, 16),
        "TransformerDecoderLayer": lambda: nn.TransformerDecoderLayer(8, 2, 16),
        "Transformer": lambda: nn.Transformer(8, 2, 2, 1, 16),
    }
    out = {}
    for name, make in layers.items():
        torch.manual_seed(SEED)
        made = make()
        out[name] = {n: {"first": numbers(p)[:3], "last": numbers(p)[-3:], "sum": p.double().abs().sum().item()}
                     for n, p in made.named_parameters()}
    inits = {
        "uniform_": lambda w: nn.init.uniform_(w, -1, 2), "normal_": lambda w: nn.init.normal_(w, 1, 2),
        "xavier_uniform_": nn.init.xavier_uniform_, "xavier_normal_": nn.init.xavier_normal_,
        "kaiming_uniform_": nn.init.kaiming_uniform_, "kaiming_normal_": nn.init.kaiming_normal_,
        "sparse_": lambda w: nn.init.sparse_(w, 0.4), "orthogonal_": nn.init.orthogonal_,
        "trunc_normal_": lambda w: nn.init.trunc_normal_(w, 0.5, 0.7, -1, 1),
    }
    made = {}
    for name, init in inits.items():
        for shape in ((6, 4), (4, 6)):
            torch.manual_seed(SEED)
            w = torch.empty(shape)
            init(w)
            made[f"{name} {shape[0]}"] = numbers(w)
    return {"layers": out, "init": made}


def run():
    """A classifier with dropout: data, weights, masks and order of each epoch come from seeds."""
    torch.manual_seed(SEED)
    x, y = torch.randn(40, 8), torch.randint(0, 3, (40,))
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 8, shuffle=True,
                                         generator=torch.Generator().manual_seed(7))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        for a, b in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(a), b)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return {"losses": losses, "last_weight": numbers(net[3].weight)}


def passes():
    """The samples of passes of three loaders without a generator, which take turns; then two random numbers."""
    def loader(size, shuffle):
        return torch.utils.data.DataLoader(range(size), 4, shuffle=shuffle)

    torch.manual_seed(SEED)
    first, second, in_order = loader(10, True), loader(9, True), loader(5, False)
    torch.rand(1)
    out = [[i for batch in one for i in batch.tolist()] for one in (first, second, first, in_order)]
    for batch in second:  # a pass that is left early
        out.append(batch.tolist())
        break
    out.append([i for batch in second for i in batch.tolist()])
    return {"passes": out, "then": numbers(torch.rand(2))}


out = {"torch": torch.__version__, "seed": SEED, "draws": draws(), **weights(), "run": run(), "loaders": passes()}
path = ROOT / "tests/layers/torch_draws.json"
text = json.dumps(out, separators=(",", ":")) + "\n"
for at_line_start in ('{"op"', '"layers"', '"loaders"'):
    text = text.replace(at_line_start, "\n" + at_line_start)
path.write_text(text)
print(f"{path}: PyTorch {torch.__version__}, {len(out['draws'])} draws, {path.stat().st_size} bytes")
