#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples/gpt2_small.txt: the names and shapes of GPT-2 small's parameters in the checkpoints of Hugging Face.

    python3 scripts/make_gpt2_names.py

From the published architecture (Radford et al., 2019: 12 blocks, 12 heads, width 768, 1024 positions, 50257 tokens) and the names
that transformers' GPT2LMHeadModel.state_dict() has, in its order. Linear layers there are Conv1D: weights are [in, out].
"""
import pathlib

BLOCKS, WIDTH, POSITIONS, TOKENS = 12, 768, 1024, 50257


def names():
    yield "transformer.wte.weight", [TOKENS, WIDTH]
    yield "transformer.wpe.weight", [POSITIONS, WIDTH]

    def norm(name):
        yield f"{name}.weight", [WIDTH]
        yield f"{name}.bias", [WIDTH]

    def conv1d(name, into, out):
        yield f"{name}.weight", [into, out]
        yield f"{name}.bias", [out]

    for i in range(BLOCKS):
        block = f"transformer.h.{i}"
        yield from norm(f"{block}.ln_1")
        yield from conv1d(f"{block}.attn.c_attn", WIDTH, 3 * WIDTH)
        yield from conv1d(f"{block}.attn.c_proj", WIDTH, WIDTH)
        yield from norm(f"{block}.ln_2")
        yield from conv1d(f"{block}.mlp.c_fc", WIDTH, 4 * WIDTH)
        yield from conv1d(f"{block}.mlp.c_proj", 4 * WIDTH, WIDTH)
    yield from norm("transformer.ln_f")
    yield "lm_head.weight", [TOKENS, WIDTH]  # the same tensor as wte's


def main():
    path = pathlib.Path(__file__).resolve().parent.parent / "examples/gpt2_small.txt"
    lines = [f"{name} [{', '.join(map(str, shape))}]\n" for name, shape in names()]
    path.write_text("".join(lines))
    print(f"{path}: {len(lines)} tensors")


if __name__ == "__main__":
    main()
