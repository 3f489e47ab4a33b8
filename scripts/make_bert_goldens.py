#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/apps/fine_tune/bert/ and roberta/: small models with random weights as Hugging Face saves them, and their outputs.

Run by hand where torch, transformers and safetensors are installed; tests only read the files:
    python3 scripts/make_bert_goldens.py
    python3 scripts/make_bert_goldens.py --full FOLDER     bert-base with random weights, to try by hand: 440 MB
  bert/       BertForSequenceClassification: config.json and model.safetensors
  roberta/    RobertaForSequenceClassification: config.json, and its weights in several files with an index
  bert_outputs.safetensors    tokens, and the scores of both in eval()
"""
import argparse
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForSequenceClassification, RobertaConfig, RobertaForSequenceClassification

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/apps/fine_tune"
SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
         "num_labels": 3}


def drawn(model):
    """Sets biases to other values than 0 and norms to others than 1, so that a missing one is noticed."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(1.0 if "LayerNorm.weight" in name else 0.0, 0.3)
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", type=pathlib.Path, metavar="FOLDER")
    folder = parser.parse_args().full
    torch.manual_seed(1)
    if folder:
        BertForSequenceClassification(BertConfig()).save_pretrained(folder)
        return
    tokens = torch.randint(2, 50, [4, 10])
    bert = drawn(BertForSequenceClassification(BertConfig(max_position_embeddings=12, **SMALL)))
    roberta = drawn(RobertaForSequenceClassification(
        RobertaConfig(max_position_embeddings=14, type_vocab_size=1, layer_norm_eps=1e-5, **SMALL)))
    outputs = {"tokens": tokens}
    for name, model, size in (("bert", bert, "5GB"), ("roberta", roberta, "12KB")):
        shutil.rmtree(OUT / name, ignore_errors=True)
        model.save_pretrained(OUT / name, max_shard_size=size)
        with torch.no_grad():
            outputs[name] = model(tokens).logits
        print(name, sorted(p.name for p in (OUT / name).iterdir()), outputs[name][0].tolist())
    save_file(outputs, OUT / "bert_outputs.safetensors")


if __name__ == "__main__":
    main()
