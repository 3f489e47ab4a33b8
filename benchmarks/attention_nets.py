"""Rows of compare_torch_nets.py with attention: a transformer's encoder block and a block of GPT, without dropout."""
WIDTH, HEADS, LENGTH, BATCH = 256, 8, 128, 16


def block(**options):
    """(the JSON of a config, PyTorch's maker) of a TransformerEncoderLayer."""
    common = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 4 * WIDTH, "dropout": 0.0, **options}
    causal = common.pop("is_causal", False)

    def model():
        import torch

        class Block(torch.nn.TransformerEncoderLayer):
            def forward(self, x):
                length = x.shape[1]
                mask = torch.nn.Transformer.generate_square_subsequent_mask(length) if causal else None
                return super().forward(x, src_mask=mask, is_causal=causal)
        return Block(batch_first=True, **common)
    return {"type": "TransformerEncoderLayer", "is_causal": causal, **common}, model


def nets(net):
    """Rows as `net` makes them of a name, such a pair and the input's shape."""
    at = f"d {WIDTH}, {HEADS} heads, seq {LENGTH}, batch {BATCH}"
    shape = [BATCH, LENGTH, WIDTH]
    return [net(f"encoder block {at}", block(), shape),
            net(f"GPT block {at}", block(norm_first=True, activation="gelu", is_causal=True), shape)]
