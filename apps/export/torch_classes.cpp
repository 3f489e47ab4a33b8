// SPDX-License-Identifier: Apache-2.0
#include "apps/export/layer_code.h"

namespace halfstep::app {

const std::map<std::string, std::string>& torch_classes() {
  static const auto& all = *new std::map<std::string, std::string>{{"combine", R"(
def combine(how, xs, dim=1):
    if how in ("dot", "cosine"):
        a, b = xs
        return (a * b).sum(dim, keepdim=True) if how == "dot" else F.cosine_similarity(a, b, dim).unsqueeze(dim)
    if how in ("concat", "stack"):
        return torch.cat(xs, dim) if how == "concat" else torch.stack(xs, dim)
    y = xs[0]
    for x in xs[1:]:
        y = y * x if how == "mul" else torch.maximum(y, x) if how == "max" else y + x
    return y / len(xs) if how == "mean" else y
)"},
                                                                   {"causal_mask", R"(
def causal_mask(x, batch_first):
    length = x.size(1 if batch_first else 0)
    return nn.Transformer.generate_square_subsequent_mask(length, device=x.device, dtype=x.dtype)
)"},
                                                                   {"gelu_tanh", R"(
def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")
)"},
                                                                   {"MLP", R"(
class MLP(nn.Sequential):
    def forward(self, x):
        return super().forward(x.flatten(1) if x.dim() > 2 else x)
)"},
                                                                   {"Residual", R"(
class Residual(nn.Module):
    def __init__(self, body, shortcut=None):
        super().__init__()
        self.body = body
        if shortcut is not None:
            self.shortcut = shortcut

    def forward(self, x):
        return self.body(x) + (self.shortcut(x) if hasattr(self, "shortcut") else x)
)"},
                                                                   {"Parallel", R"(
class Parallel(nn.Module):
    def __init__(self, branches, combine, dim=1, names=None):
        super().__init__()
        for i, branch in enumerate(branches):
            self.add_module(names[i] if names else str(i), branch)
        self.how, self.dim = combine, dim

    def forward(self, x):
        return combine(self.how, [branch(x) for branch in self.children()], self.dim)
)"},
                                                                   {"Graph", R"(
class Graph(nn.Module):
    """nodes: (name, inputs, combine, dim, layer, layer_of); inputs: (name, start, end, dim) of the batch."""
    def __init__(self, nodes, inputs):
        super().__init__()
        self.nodes, self.parts = [node[:4] + node[5:] for node in nodes], inputs
        for name, _, _, _, layer, _ in nodes:
            if layer is not None:
                self.add_module(name, layer)

    def forward(self, x):
        values, last = {}, "input"
        for name, start, end, dim in self.parts:
            index = [slice(None)] * x.dim()
            index[dim] = slice(start, end)
            values[name], last = x[tuple(index)], name
        if not self.parts:
            values["input"] = x
        for name, inputs, how, dim, layer_of in self.nodes:
            xs = [values[i] for i in inputs or [last]]
            y = combine(how, xs, dim) if how else xs[0]
            layer = getattr(self, layer_of or name, None)
            values[name] = layer(y) if isinstance(layer, nn.Module) else y
            last = name
        return values[last]
)"},
                                                                   {"Permute", R"(
class Permute(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(self.dims)
)"},
                                                                   {"UnitNorm", R"(
class UnitNorm(nn.Module):
    def __init__(self, p=2.0, dim=1, eps=1e-12):
        super().__init__()
        self.p, self.dim, self.eps = p, dim, eps

    def forward(self, x):
        return F.normalize(x, self.p, self.dim, self.eps)
)"},
                                                                   {"Recurrent", R"(
class Recurrent:
    """The outputs of all steps, or (output="last") the state after the last one."""
    def __init__(self, *args, output="sequence", **kwargs):
        super().__init__(*args, **kwargs)
        self.output = output

    def forward(self, x):
        y, state = super().forward(x)
        if self.output == "sequence":
            return y
        h = state[0] if isinstance(state, tuple) else state
        return torch.cat([h[-2], h[-1]], -1) if self.bidirectional else h[-1]


class RNN(Recurrent, nn.RNN): pass
class LSTM(Recurrent, nn.LSTM): pass
class GRU(Recurrent, nn.GRU): pass
)"},
                                                                   {"LSTMCell", R"(
class LSTMCell(nn.LSTMCell):
    def forward(self, x):
        return super().forward(x)[0]
)"},
                                                                   {"MultiheadAttention", R"(
class MultiheadAttention(nn.MultiheadAttention):
    def __init__(self, *args, is_causal=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_causal = is_causal

    def forward(self, x):
        mask = causal_mask(x, self.batch_first) if self.is_causal else None
        return super().forward(x, x, x, attn_mask=mask, need_weights=False)[0]
)"},
                                                                   {"TransformerEncoder", R"(
class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    def __init__(self, *args, is_causal=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_causal, self.batch_first = is_causal, kwargs.get("batch_first", False)

    def forward(self, x, src_mask=None, **kwargs):
        return super().forward(x, causal_mask(x, self.batch_first) if self.is_causal else src_mask)


class TransformerEncoder(nn.TransformerEncoder):
    def __init__(self, layer, num_layers, norm=None):
        super().__init__(layer, num_layers, norm, enable_nested_tensor=False)
)"},
                                                                   {"PositionalEncoding", R"(
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=5000, batch_first=False):
        super().__init__()
        self.dropout, self.batch_first = nn.Dropout(dropout), batch_first
        self.register_buffer("pe", torch.zeros(max_len, 1, d_model))

    def forward(self, x):
        length = x.size(-2) if self.batch_first else x.size(0)
        rows = self.pe[:length, 0] if self.batch_first else self.pe[:length]
        return self.dropout(x + rows)
)"},
                                                                   {"PositionEmbedding", R"(
class PositionEmbedding(nn.Module):
    def __init__(self, max_len, d_model, batch_first=False):
        super().__init__()
        self.weight, self.batch_first = nn.Parameter(torch.empty(max_len, d_model)), batch_first

    def forward(self, x):
        length = x.size(-2) if self.batch_first else x.size(0)
        return x + (self.weight[:length] if self.batch_first else self.weight[:length].unsqueeze(1))
)"},
                                                                   {"RotaryEmbedding", R"(
class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000.0, interleaved=False):
        super().__init__()
        self.dim, self.base, self.interleaved = dim, base, interleaved

    def forward(self, x):
        speeds = self.base ** (-torch.arange(0, self.dim, 2, dtype=torch.float64, device=x.device) / self.dim)
        angles = torch.arange(x.size(-2), dtype=torch.float64, device=x.device).unsqueeze(-1) * speeds
        c, s = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        turning, rest = x[..., :self.dim], x[..., self.dim:]
        a, b = (turning[..., 0::2], turning[..., 1::2]) if self.interleaved else turning.chunk(2, -1)
        a, b = a * c - b * s, b * c + a * s
        turned = torch.stack([a, b], -1).flatten(-2) if self.interleaved else torch.cat([a, b], -1)
        return torch.cat([turned, rest], -1)
)"}};
  return all;
}

}  // namespace halfstep::app
