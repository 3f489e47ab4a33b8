#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/apps/fine_tune/: small ResNet-18 and GPT-2 with random weights, as torchvision and Hugging Face save them, and what
PyTorch computes with them.

Run by hand where torch, torchvision, safetensors and tokenizers are installed, and transformers to compare with; tests only read
the files:
    python3 scripts/make_fine_tune_goldens.py
    python3 scripts/make_fine_tune_goldens.py --full FOLDER     the published sizes with random weights, to try by hand: 540 MB

The values of the small models are exact in float16, so that resnet18.pt and gpt2.pt, in float16, hold those of the safetensors.
  resnet18.safetensors, resnet18.pt   state_dict of torchvision's class, 2 channels wide, 6 classes
  resnet18_outputs.safetensors        x and what the model in eval() makes of it
  gpt2.safetensors                    the layout of the published model: no prefix, no head, buffers with the masks of attention
  gpt2.pt                             the layout of GPT2LMHeadModel.state_dict(): prefix, and the head, which is the embedding
  gpt2_tokens.json                    prompts, and the tokens that always taking the most probable one adds to them
"""
import argparse
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torchvision.models.resnet import BasicBlock, ResNet

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/apps/fine_tune"


def narrow_resnet18(width, classes):
    model = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=classes)
    if width == 64:
        return model
    model.inplanes = width
    model.conv1 = torch.nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    model.bn1 = torch.nn.BatchNorm2d(width)
    for i in range(4):
        setattr(model, f"layer{i + 1}", model._make_layer(BasicBlock, width << i, 2, stride=2 if i else 1))
    model.fc = torch.nn.Linear(width * 8, classes)
    return model


def make_resnet(out, width, classes, size, exact):
    torch.manual_seed(1)
    model = narrow_resnet18(width, classes)
    with torch.no_grad():
        for name, t in model.state_dict().items():
            if name.endswith("running_mean"):
                t.normal_(0, 0.2)
            elif name.endswith("running_var"):
                t.uniform_(0.5, 2)
            elif "bn" in name and name.endswith("weight"):
                t.uniform_(0.5, 1.5)
            elif name.endswith("num_batches_tracked"):
                t.fill_(7)
            if exact and t.is_floating_point():
                t.copy_(t.half().float())
        x = torch.randn(2, 3, size, size)
        y = model.eval()(x)
    save_file(model.state_dict(), out / "resnet18.safetensors")
    if exact:
        torch.save(model.half().state_dict(), out / "resnet18.pt")
        save_file({"x": x, "y": y}, out / "resnet18_outputs.safetensors")
    else:
        torch.save(model.state_dict(), out / "resnet18.pt")
    print(f"resnet18: {len(model.state_dict())} tensors, outputs {y[0, :3].tolist()}")


def make_gpt2_state(tokens, positions, width, blocks, deviation):
    """Returns weights of Hugging Face's GPT2Model: linear layers are Conv1D, whose weights are [in, out]."""
    state = {"wte.weight": [tokens, width], "wpe.weight": [positions, width]}
    for i in range(blocks):
        for layer, into, to in [("ln_1", None, width), ("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                ("ln_2", None, width), ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)]:
            state[f"h.{i}.{layer}.weight"] = [into, to] if into else [to]
            state[f"h.{i}.{layer}.bias"] = [to]
    state |= {"ln_f.weight": [width], "ln_f.bias": [width]}
    out = {}
    for name, shape in state.items():
        mean = 1.0 if name.split(".")[-2].startswith("ln_") and name.endswith("weight") else 0.0
        out[name] = (mean + deviation * torch.randn(shape)).half().float()
    return out


def gpt2_logits(state, ids, heads):
    """Computes GPT2LMHeadModel's forward in eval(): ids [length] -> [length, tokens]."""
    blocks = 1 + max(int(n.split(".")[1]) for n in state if n.startswith("h."))
    x = state["wte.weight"][ids] + state["wpe.weight"][torch.arange(len(ids))]
    width = x.shape[1]

    def norm(name, t):
        return F.layer_norm(t, [width], state[f"{name}.weight"], state[f"{name}.bias"], 1e-5)

    def conv1d(name, t):
        return t @ state[f"{name}.weight"] + state[f"{name}.bias"]
    for i in range(blocks):
        h = f"h.{i}"
        parts = conv1d(f"{h}.attn.c_attn", norm(f"{h}.ln_1", x)).split(width, 1)
        q, k, v = (t.view(-1, heads, width // heads).transpose(0, 1) for t in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + conv1d(f"{h}.attn.c_proj", seen.transpose(0, 1).reshape(-1, width))
        inner = F.gelu(conv1d(f"{h}.mlp.c_fc", norm(f"{h}.ln_2", x)), approximate="tanh")
        x = x + conv1d(f"{h}.mlp.c_proj", inner)
    return norm("ln_f", x) @ state["wte.weight"].T


def compare_with_transformers(state, positions, heads):
    """Checks that the package computes gpt2_logits and knows these names."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return "transformers is not installed, so that nothing was compared with it"
    tokens, width = state["wte.weight"].shape
    model = GPT2LMHeadModel(GPT2Config(vocab_size=tokens, n_positions=positions, n_embd=width, n_head=heads, n_layer=2,
                                       bos_token_id=0, eos_token_id=0)).eval()
    model.transformer.load_state_dict(state)
    ids = torch.arange(positions) * 7 % tokens
    torch.testing.assert_close(model(ids[None]).logits[0], gpt2_logits(state, ids, heads), rtol=1e-4, atol=1e-4)
    return "the logits are those of transformers"


def with_masks(state, positions):
    """Returns the buffers of older versions of transformers."""
    blocks = 1 + max(int(n.split(".")[1]) for n in state if n.startswith("h."))
    out = dict(state)
    for i in range(blocks):
        out[f"h.{i}.attn.bias"] = torch.ones(positions, positions).tril().view(1, 1, positions, positions)
        out[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    return out


def make_gpt2(out):
    torch.manual_seed(2)
    tokenizer = Tokenizer.from_file(str(ROOT / "tests/data/tokenizers/gpt2.json"))
    positions, heads = 32, 2
    state = make_gpt2_state(tokenizer.get_vocab_size(), positions, 16, 2, 0.3)
    save_file(with_masks(state, positions), out / "gpt2.safetensors", {"format": "pt"})
    head = {f"transformer.{name}": t.half() for name, t in state.items()}
    head["lm_head.weight"] = head["transformer.wte.weight"]
    torch.save(head, out / "gpt2.pt")
    cases, narrowest = [], float("inf")
    for prompt in ["First Citizen:", "for (int i = 0;", "Größe"]:
        ids = tokenizer.encode(prompt).ids
        count = positions - len(ids)
        given = len(ids)
        for _ in range(count):
            best = gpt2_logits(state, torch.tensor(ids), heads)[-1].topk(2)
            narrowest = min(narrowest, float(best.values[0] - best.values[1]))
            ids.append(int(best.indices[0]))
        cases.append({"prompt": prompt, "prompt_tokens": ids[:given], "tokens": ids[given:]})
    assert narrowest > 1e-3, f"two tokens are nearly as probable: {narrowest}"
    logits = gpt2_logits(state, torch.tensor(cases[0]["prompt_tokens"]), heads)[-1]
    answers = {"cases": cases, "logits": logits[:8].tolist()}
    (out / "gpt2_tokens.json").write_text(json.dumps(answers, ensure_ascii=False) + "\n")
    print(compare_with_transformers(state, positions, heads))
    print(f"gpt2: {len(state)} tensors, the closest two tokens differ by {narrowest:.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", type=pathlib.Path, metavar="FOLDER")
    folder = parser.parse_args().full
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        make_resnet(folder, 64, 1000, 64, exact=False)
        torch.manual_seed(2)
        save_file(with_masks(make_gpt2_state(50257, 1024, 768, 12, 0.02), 1024), folder / "gpt2.safetensors", {"format": "pt"})
        return
    OUT.mkdir(exist_ok=True)
    make_resnet(OUT, 2, 6, 32, exact=True)
    make_gpt2(OUT)


if __name__ == "__main__":
    main()
