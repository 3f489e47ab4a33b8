"""The networks of compare_torch_nets.py, each as the JSON of a config and as PyTorch's modules."""


def net(name, pair, shape, below=None, channels_last=False):
    """A row: its name, (halfstep's JSON, PyTorch's maker), the input's shape; `below`: integers up to there."""
    config, model = pair
    return {"name": name, "config": config, "model": model, "input": {"shape": shape, "below": below} if below else shape,
            "channels_last": channels_last}


def lenet():
    def model():
        from torch import nn
        return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def conv(into, out, **options):
        return {"type": "Conv2d", "in_channels": into, "out_channels": out, "kernel_size": 5, **options}

    def linear(into, out):
        return {"type": "Linear", "in_features": into, "out_features": out}
    pool = {"type": "MaxPool2d", "kernel_size": 2}
    return {"type": "Sequential", "layers": [conv(1, 6, padding=2), "ReLU", pool, conv(6, 16), "ReLU", pool, "Flatten", linear(400, 120), "ReLU",
                                             linear(120, 84), "ReLU", linear(84, 10)]}, model


def resnet_block(channels):
    """The basic block of ResNet-18, with a ReLU behind the sum."""
    def model():
        from torch import nn

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
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


NETS = [
    net("LeNet, batch 64", lenet(), [64, 1, 28, 28]),
    net("ResNet block 64x56x56, batch 8", resnet_block(64), [8, 64, 56, 56]),
    net("ResNet block 64x56x56, batch 8, channels-last", resnet_block(64), [8, 64, 56, 56], channels_last=True),
    net("lstm 2x256, seq 64, batch 32", recurrent("LSTM", 2, 256), [64, 32, 256]),
    net("gru 2x256, seq 64, batch 32", recurrent("GRU", 2, 256), [64, 32, 256]),
    net("encoder block d 256, 8 heads, seq 128, batch 16", attention_block(256, 8), [16, 128, 256]),
    net("GPT block d 256, 8 heads, seq 128, batch 16", attention_block(256, 8, causal=True, norm_first=True, activation="gelu"),
        [16, 128, 256]),
]
