#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples/resnet18.txt: the names and shapes in the state_dict of torchvision's ResNet-18. Needs torchvision.

    python3 scripts/make_resnet18_names.py
"""
import pathlib

import torchvision


def main():
    path = pathlib.Path(__file__).resolve().parent.parent / "examples/resnet18.txt"
    state = torchvision.models.resnet18(weights=None).state_dict()
    path.write_text("".join(f"{name} [{', '.join(map(str, t.shape))}]\n" for name, t in state.items()))
    print(f"{path}: {len(state)} tensors, torchvision {torchvision.__version__}")


if __name__ == "__main__":
    main()
