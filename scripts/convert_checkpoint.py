#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tensors of a PyTorch checkpoint (.pt, .pth, .bin) as safetensors, which halfstep reads. Needs torch and safetensors.

    scripts/convert_checkpoint.py model.pt model.safetensors
    scripts/convert_checkpoint.py run.ckpt model.safetensors --key state_dict --strip module.

The checkpoint is a state_dict, or has one under a key, which is found without --key if it is the only one. Nothing but tensors
and plain containers is unpickled (weights_only), so a file from anywhere can do no harm. Of tensors that share memory, as tied
weights do, one is written and the names of the others go into the metadata; halfstep and safetensors.torch.load_model tie them
again.
"""
import argparse
import sys


def fail(text):
    sys.exit(f"convert_checkpoint: {text}")


def state_of(loaded, key):
    if key:
        for part in key.split("/"):
            if not isinstance(loaded, dict) or part not in loaded:
                has = ", ".join(map(str, loaded)) if isinstance(loaded, dict) else type(loaded).__name__
                fail(f'there is no "{part}"; at that place the file has {has}')
            loaded = loaded[part]
        return loaded
    found = list(state_dicts(loaded, "", 0))
    if len(found) > 1:
        fail(f'there are several state_dicts; --key chooses one: {", ".join(found)}')
    return state_of(loaded, found[0]) if found and found[0] else loaded


def state_dicts(value, path, depth):
    """Returns the keys of dictionaries with tensors that are not scalars; none of optimizers' states."""
    if not isinstance(value, dict) or depth > 8 or {"state", "param_groups"} <= set(value):
        return
    if any(getattr(v, "ndim", 0) > 0 for v in value.values()):
        yield path
        return
    for name, inner in value.items():
        if isinstance(name, str):
            yield from state_dicts(inner, f"{path}/{name}".lstrip("/"), depth + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    parser.add_argument("--key", help='where the state_dict is: "model", "ema/state_dict"')
    parser.add_argument("--strip", default="", help='what to take off the names, where they begin with it: "module."')
    options = parser.parse_args()
    try:
        import torch
        from safetensors.torch import save_file
    except ImportError as e:
        fail(f"{e}; pip install torch safetensors")
    try:
        loaded = torch.load(options.checkpoint, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        fail(f"{options.checkpoint}: there is no such file")
    except Exception:  # torch's messages fill a page, and advise users to load files that they do not trust
        fail(f"{options.checkpoint}: is damaged, or holds Python objects besides tensors, which halfstep passes over: give it the "
             "file as it is")
    state = state_of(loaded, options.key)
    if not isinstance(state, dict):
        fail(f"{options.checkpoint} holds a {type(state).__name__}, not a state_dict")
    kept, shared, first, left = {}, {"format": "pt"}, {}, []
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_complex() or value.is_quantized:
            left.append(str(name))
            continue
        name = name.removeprefix(options.strip)
        if name in kept or name in shared:
            fail(f'two tensors would be called "{name}"')
        place = (value.untyped_storage().data_ptr(), value.storage_offset(), tuple(value.shape), tuple(value.stride()), value.dtype)
        if value.numel() and place in first:
            shared[name] = first[place]
            continue
        first[place] = name
        kept[name] = value.detach().clone().contiguous()
    if not kept:
        fail(f"{options.checkpoint} holds no tensors there; it has {', '.join(map(str, list(state)[:10])) or 'nothing'}")
    save_file(kept, options.out, metadata=shared)
    count = sum(t.numel() for t in kept.values())
    print(f"{options.out}: {len(kept)} tensors, {count} numbers" + (f", {len(shared) - 1} names shared" if len(shared) > 1 else ""))
    if left:
        print(f"left out, as they are no tensors that safetensors knows: {', '.join(left[:10])}{'...' if len(left) > 10 else ''}")


if __name__ == "__main__":
    main()
