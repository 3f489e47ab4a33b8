# SPDX-License-Identifier: Apache-2.0
"""The networks of compare_torch_nets.py, NETS for the CPU and GPU_NETS for a GPU, each as the JSON of a config and as PyTorch's
modules."""


def net(name, pair, shape, below=None, channels_last=False, training=None):
    """A row: its name, (halfstep's JSON, PyTorch's maker), the input's shape; `below`: integers up to there. `training`: what a
    whole step is, as nets.cpp takes it; without it the mean of the squared outputs and SGD."""
    config, model = pair
    return {"name": name, "config": config, "model": model, "input": {"shape": shape, "below": below} if below else shape,
            "channels_last": channels_last} | ({"training": training} if training else {})


def next_word(batch, length, words=50257):
    """A step of a language model, as it is trained: cross entropy, AdamW, clipping."""
    return {"loss": "CrossEntropyLoss", "target": {"shape": [batch, length], "below": words}, "clip_grad_norm": 1.0,
            "optimizer": {"type": "AdamW", "lr": 6e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}


def lenet():
    def model():
        from torch import nn
        return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                             nn.MaxPool2d(2),
                             nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def conv(into, out, **options):
        return {"type": "Conv2d", "in_channels": into, "out_channels": out, "kernel_size": 5, **options}

    def linear(into, out):
        return {"type": "Linear", "in_features": into, "out_features": out}
    pool = {"type": "MaxPool2d", "kernel_size": 2}
    return {"type": "Sequential", "layers": [conv(1, 6, padding=2), "ReLU", pool, conv(6, 16), "ReLU", pool, "Flatten",
                                             linear(400, 120), "ReLU",
                                             linear(120, 84), "ReLU", linear(84, 10)]}, model


def mlp(width):
    def model():
        from torch import nn
        return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    sizes = [(784, width), (width, width), (width, 10)]
    layers = [layer for into, out in sizes for layer in ({"type": "Linear", "in_features": into, "out_features": out}, "ReLU")]
    return {"type": "Sequential", "layers": layers[:-1]}, model


def resnet_block(channels):
    """The basic block of ResNet-18, with a ReLU behind the sum."""
    def model():
        from torch import nn

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
                                          nn.ReLU(),
                                          nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

            def forward(self, x):
                return nn.functional.relu(x + self.body(x))
        return Block()
    conv = {"type": "Conv2d", "in_channels": channels, "out_channels": channels, "kernel_size": 3, "padding": 1, "bias": False}
    norm = {"type": "BatchNorm2d", "num_features": channels}
    return {"type": "Sequential", "layers": [{"type": "Residual", "body": [conv, norm, "ReLU", conv, norm]}, "ReLU"]}, model


def recurrent(kind, layers, width):
    def model():
        import torch

        class Output(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = getattr(torch.nn, kind)(width, width, layers)

            def forward(self, x):
                return self.layer(x)[0]
        return Output()
    return {"type": kind, "input_size": width, "hidden_size": width, "num_layers": layers, "batch_first": False}, model


def attention_block(width, heads, causal=False, **options):
    """A block of a transformer's encoder, without dropout."""
    common = {"d_model": width, "nhead": heads, "dim_feedforward": 4 * width, "dropout": 0.0, **options}

    def model():
        import torch

        class Block(torch.nn.TransformerEncoderLayer):
            def forward(self, x):
                mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if causal else None
                return super().forward(x, src_mask=mask, is_causal=causal)
        return Block(batch_first=True, **common)
    return {"type": "TransformerEncoderLayer", "is_causal": causal, **common}, model


def resnet18():
    """For images of 224 x 224 and 1000 classes."""
    def conv(into, out, size, stride=1):
        return {"type": "Conv2d", "in_channels": into, "out_channels": out, "kernel_size": size, "stride": stride,
                "padding": size // 2,
                "bias": False}

    def norm(channels):
        return {"type": "BatchNorm2d", "num_features": channels}
    layers = [conv(3, 64, 7, 2), norm(64), "ReLU", {"type": "MaxPool2d", "kernel_size": 3, "stride": 2, "padding": 1}]
    into = 64
    for out in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if out != into else 1
            residual = {"type": "Residual", "body": [conv(into, out, 3, stride), norm(out), "ReLU", conv(out, out, 3), norm(out)]}
            if out != into:
                residual["shortcut"] = [{**conv(into, out, 1, stride), "padding": 0}, norm(out)]
            layers += [residual, "ReLU"]
            into = out
    layers += [{"type": "AdaptiveAvgPool2d", "output_size": 1}, "Flatten",
               {"type": "Linear", "in_features": 512, "out_features": 1000}]

    def model():
        from torch import nn

        class Block(nn.Module):
            def __init__(self, into, out, stride):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out),
                                          nn.ReLU(inplace=True),
                                          nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
                self.shortcut = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False),
                                              nn.BatchNorm2d(out)) if out != into else nn.Identity()

            def forward(self, x):
                return nn.functional.relu(self.body(x) + self.shortcut(x), inplace=True)
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                             nn.MaxPool2d(3, 2, 1),
                             *[Block(i, o, 1 if i == o else 2) for i, o in zip(widths, widths[1:])],
                             nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return {"type": "Sequential", "layers": layers}, model


def gpt2(width=768, heads=12, blocks=12, words=50257, length=1024):
    """GPT-2 small, without dropout, its head not tied."""
    common = {"d_model": width, "nhead": heads, "dim_feedforward": 4 * width, "dropout": 0.0, "norm_first": True,
              "activation": "gelu"}
    layers = [{"type": "Embedding", "num_embeddings": words, "embedding_dim": width},
              {"type": "PositionEmbedding", "max_len": length, "d_model": width},
              {"type": "TransformerEncoder", "num_layers": blocks, "is_causal": True, "norm": True, **common},
              {"type": "Linear", "in_features": width, "out_features": words, "bias": False}]

    def model():
        import torch
        from torch import nn

        class Gpt(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width).mul(0.02))
                block = nn.TransformerEncoderLayer(batch_first=True, **common)
                self.blocks = nn.TransformerEncoder(block, blocks, norm=nn.LayerNorm(width), enable_nested_tensor=False)
                self.head = nn.Linear(width, words, bias=False)

            def forward(self, x):
                mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
                return self.head(self.blocks(self.words(x) + self.places[:x.shape[1]], mask=mask, is_causal=True))
        return Gpt()
    return {"type": "Sequential", "layers": layers}, model


GPU_NETS = [
    net("ResNet-18 224, batch 64", resnet18(), [64, 3, 224, 224]),
    net("ResNet-18 224, batch 256", resnet18(), [256, 3, 224, 224]),
    net("lstm 2x1024, seq 128, batch 64", recurrent("LSTM", 2, 1024), [128, 64, 1024]),
    net("GPT-2 small, seq 1024, batch 8", gpt2(), [8, 1024], below=50257, training=next_word(8, 1024)),
    # llm.c and nanoGPT make 50304 words of the 50257, so that rows are aligned.
    net("GPT-2 small, 50304 words, seq 1024, batch 8", gpt2(words=50304), [8, 1024], below=50257, training=next_word(8, 1024)),
]

# The same, so small that a CPU needs seconds for all: they try the benchmark itself.
SMALL_NETS = [
    net("ResNet-18 64, batch 2", resnet18(), [2, 3, 64, 64]),
    net("lstm 2x64, seq 16, batch 4", recurrent("LSTM", 2, 64), [16, 4, 64]),
    net("GPT-2 of 2 blocks, seq 64, batch 2", gpt2(128, 4, 2, 1001, 64), [2, 64], below=1001, training=next_word(2, 64, 1001)),
    net("GPT-2 of 2 blocks, 1024 words, seq 64, batch 2", gpt2(128, 4, 2, 1024, 64), [2, 64], below=1001,
        training=next_word(2, 64, 1001)),
]

NETS = [
    net("LeNet, batch 64", lenet(), [64, 1, 28, 28]),
    net("ResNet block 64x56x56, batch 8", resnet_block(64), [8, 64, 56, 56]),
    net("ResNet block 64x56x56, batch 8, channels-last", resnet_block(64), [8, 64, 56, 56], channels_last=True),
    net("lstm 2x256, seq 64, batch 32", recurrent("LSTM", 2, 256), [64, 32, 256]),
    net("gru 2x256, seq 64, batch 32", recurrent("GRU", 2, 256), [64, 32, 256]),
    net("encoder block d 256, 8 heads, seq 128, batch 16", attention_block(256, 8), [16, 128, 256]),
    net("GPT block d 256, 8 heads, seq 128, batch 16", attention_block(256, 8, causal=True, norm_first=True, activation="gelu"),
        [16, 128, 256]),
    net("ResNet-18 224, batch 1", resnet18(), [1, 3, 224, 224]),
    net("ResNet-18 224, batch 4", resnet18(), [4, 3, 224, 224]),
    net("ResNet-18 224, batch 4, channels-last", resnet18(), [4, 3, 224, 224], channels_last=True),
    net("GPT-2 small, seq 128, batch 1", gpt2(), [1, 128], below=50257),
    net("lstm 2x1024, seq 64, batch 32", recurrent("LSTM", 2, 1024), [64, 32, 1024]),
    *(net(f"MLP 784-{w}-{w}-10, batch {b}", mlp(w), [b, 784]) for b, w in ((32, 256), (128, 256), (128, 1024), (512, 512))),
]
