# SPDX-License-Identifier: Apache-2.0
"""The cases of make_layer_goldens.py: every layer and loss of the catalogues with its arguments and the shape of its input."""


def layers():
    """Returns (type, args, shape of the input[, how it is drawn])"""
    plain = ("ReLU ReLU6 Sigmoid LogSigmoid Tanh Tanhshrink SiLU Mish SELU Hardsigmoid Hardswish Softsign Identity ELU CELU "
             "LeakyReLU Hardtanh Hardshrink Softshrink Softplus GELU PReLU RReLU GLU Dropout AlphaDropout FeatureAlphaDropout "
             "Flatten").split()
    for name in plain:
        yield name, {}, [3, 4, 2]
    for name in "ELU CELU".split():
        yield name, {"alpha": 1.5}, [2, 5]
    yield "LeakyReLU", {"negative_slope": 0.2}, [2, 5]
    yield "Hardtanh", {"min_val": -0.5, "max_val": 0.25}, [2, 6]
    yield "Hardshrink", {"lambd": 0.25}, [2, 6]
    yield "Softshrink", {"lambd": 0.25}, [2, 6]
    yield "Softplus", {"beta": 2.0, "threshold": 1.5}, [2, 6]
    yield "Threshold", {"threshold": 0.1, "value": 20.0}, [2, 6]
    yield "GELU", {"approximate": "tanh"}, [2, 6]
    yield "PReLU", {"num_parameters": 3, "init": 0.125}, [2, 3, 4]
    yield "RReLU", {"lower": 0.25, "upper": 0.5}, [2, 6]
    yield "GLU", {"dim": 1}, [2, 4, 3]
    for name in "Softmax Softmin LogSoftmax".split():
        yield name, {"dim": -1}, [2, 5]
        yield name, {"dim": 1}, [2, 3, 4]
    yield "Softmax2d", {}, [2, 3, 2, 2]
    yield "Linear", {"in_features": 4, "out_features": 3}, [2, 4]
    yield "Linear", {"in_features": 4, "out_features": 3, "bias": False}, [2, 3, 4]

    spatial = {1: [7], 2: [5, 6], 3: [4, 5, 3]}
    for d in (1, 2, 3):
        size, two = spatial[d], [2, 1, 2][:d]
        yield f"Conv{d}d", {"in_channels": 2, "out_channels": 3, "kernel_size": 3}, [2, 2, *size]
        yield f"Conv{d}d", {"in_channels": 4, "out_channels": 2, "kernel_size": [3, 2, 2][:d], "stride": two,
                            "padding": [1, 0, 1][:d], "dilation": [1, 2, 1][:d], "groups": 2, "bias": False}, [1, 4, *size]
        yield f"Conv{d}d", {"in_channels": 2, "out_channels": 1, "kernel_size": 2, "padding": "same", "dilation": 2}, [1, 2, *size]
        yield f"Conv{d}d", {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": "valid"}, [1, *size]
        for mode in ("reflect", "replicate", "circular"):
            yield f"Conv{d}d", {"in_channels": 1, "out_channels": 1, "kernel_size": 3, "padding": [2, 1, 1][:d] if d < 3 else 1,
                                "stride": 2, "padding_mode": mode}, [1, 1, *size]
        yield f"Conv{d}d", {"in_channels": 1, "out_channels": 1, "kernel_size": 2, "padding": "same",
                            "padding_mode": "circular"}, [1, 1, *size]
        yield f"ConvTranspose{d}d", {"in_channels": 2, "out_channels": 1, "kernel_size": 2}, [1, 2, *size]
        yield f"ConvTranspose{d}d", {"in_channels": 4, "out_channels": 2, "kernel_size": 3, "stride": 2, "padding": 1,
                                     "output_padding": 1, "groups": 2, "bias": False}, [1, 4, *[2] * d]
        yield f"ConvTranspose{d}d", {"in_channels": 1, "out_channels": 2, "kernel_size": 2, "dilation": 2,
                                     "stride": two}, [1, *[3] * d]

        x = [2, 2, *size] if d < 3 else [1, 2, *size]
        yield f"MaxPool{d}d", {"kernel_size": 2}, x
        yield f"MaxPool{d}d", {"kernel_size": [3, 2, 2][:d], "stride": two, "padding": [1, 0, 1][:d], "ceil_mode": True}, x
        yield f"MaxPool{d}d", {"kernel_size": 2, "stride": 1, "dilation": 2}, x[1:]
        yield f"AvgPool{d}d", {"kernel_size": 2}, x
        yield f"AvgPool{d}d", {"kernel_size": [3, 2, 2][:d], "stride": 2, "padding": 1, "ceil_mode": True,
                               "count_include_pad": False}, x
        yield f"AvgPool{d}d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, x
        if d > 1:
            yield f"AvgPool{d}d", {"kernel_size": 2, "divisor_override": 3}, x[1:]
        yield f"LPPool{d}d", {"norm_type": 2.0, "kernel_size": 2}, x
        yield f"LPPool{d}d", {"norm_type": 3.0, "kernel_size": 3 if d == 1 else [3, 2, 2][:d],
                              "stride": 1 if d == 1 else [1, 2, 2][:d], "ceil_mode": True}, x, "positive"
        for kind in ("Avg", "Max"):
            yield f"Adaptive{kind}Pool{d}d", {"output_size": 3}, x
            if d > 1:
                yield f"Adaptive{kind}Pool{d}d", {"output_size": [None, 2, 1][:d]}, x[1:]

        b = [3, 2, *size] if d < 3 else [2, 2, *size]
        yield f"BatchNorm{d}d", {"num_features": 2}, b
        yield f"BatchNorm{d}d", {"num_features": 2, "eps": 0.01, "momentum": 0.25, "affine": False}, b
        yield f"BatchNorm{d}d", {"num_features": 2, "momentum": "cumulative", "bias": False}, b
        yield f"BatchNorm{d}d", {"num_features": 2, "track_running_stats": False}, b
        yield f"InstanceNorm{d}d", {"num_features": 2}, b
        yield f"InstanceNorm{d}d", {"num_features": 2, "affine": True, "track_running_stats": True, "momentum": 0.3}, b
        yield f"InstanceNorm{d}d", {"num_features": 2, "affine": True, "eps": 0.1}, b[1:]

        yield f"Dropout{d}d", {"p": 0.25}, x
        around = [1, 2, 2, 1, 1, 1][:2 * d]
        for kind in ("Zero", "Reflection", "Replication", "Circular"):
            yield f"{kind}Pad{d}d", {"padding": 1}, x
            yield f"{kind}Pad{d}d", {"padding": around}, x[1:]
        yield f"ConstantPad{d}d", {"padding": 1, "value": 0.5}, x
        yield f"ConstantPad{d}d", {"padding": [1, -1, 0, 2, 1, 0][:2 * d], "value": -2.0}, x[1:]
    yield "BatchNorm1d", {"num_features": 3}, [4, 3]
    yield "Dropout1d", {}, [3, 4]
    yield "Dropout", {"p": 0.1}, [3, 4]

    yield "LayerNorm", {"normalized_shape": 4}, [3, 4]
    yield "LayerNorm", {"normalized_shape": [2, 4], "eps": 0.1, "bias": False}, [3, 2, 4]
    yield "LayerNorm", {"normalized_shape": [4], "elementwise_affine": False}, [3, 2, 4]
    yield "RMSNorm", {"normalized_shape": 4}, [3, 4]
    yield "RMSNorm", {"normalized_shape": [2, 4], "eps": 0.1, "elementwise_affine": False}, [3, 2, 4]
    yield "GroupNorm", {"num_groups": 2, "num_channels": 4}, [2, 4, 3]
    yield "GroupNorm", {"num_groups": 4, "num_channels": 4, "eps": 0.1, "bias": False}, [2, 4, 3, 2]
    yield "GroupNorm", {"num_groups": 1, "num_channels": 4, "affine": False}, [2, 4]
    yield "LocalResponseNorm", {"size": 2}, [2, 5, 3]
    yield "LocalResponseNorm", {"size": 3, "alpha": 0.1, "beta": 0.5, "k": 2.0}, [2, 5, 3, 2]

    yield "UnitNorm", {}, [3, 4]
    yield "UnitNorm", {"p": 1.5, "dim": -1}, [2, 3, 4]
    yield "UnitNorm", {"p": 1.0, "dim": 2, "eps": 3.0}, [2, 3, 4]

    yield "Flatten", {"start_dim": 0, "end_dim": 1}, [2, 3, 4]
    yield "Unflatten", {"dim": 1, "unflattened_size": [2, 3]}, [2, 6]
    yield "Permute", {"dims": [0, 3, 1, 2]}, [2, 3, 4, 5]
    yield "Unflatten", {"dim": -1, "unflattened_size": [2, -1]}, [2, 2, 6]
    yield "PixelShuffle", {"upscale_factor": 2}, [2, 8, 2, 3]
    yield "PixelUnshuffle", {"downscale_factor": 2}, [2, 2, 4, 6]
    yield "ChannelShuffle", {"groups": 2}, [1, 6, 2, 2]
    yield "Upsample", {"scale_factor": 2.0}, [1, 2, 3]
    yield "Upsample", {"size": [3, 5]}, [1, 2, 2, 3]
    yield "Upsample", {"size": 5, "mode": "linear"}, [1, 2, 3]
    yield "Upsample", {"scale_factor": [1.5, 2.0], "mode": "bilinear", "align_corners": True}, [1, 1, 4, 3]
    yield "Upsample", {"scale_factor": 1.6, "mode": "bicubic", "recompute_scale_factor": True}, [1, 1, 4, 5]
    yield "Upsample", {"size": [3, 2, 4], "mode": "trilinear"}, [1, 1, 2, 3, 2]
    yield "Upsample", {"size": 4, "mode": "nearest-exact"}, [1, 1, 3, 2]
    for name in ("UpsamplingNearest2d", "UpsamplingBilinear2d"):
        yield name, {"scale_factor": 2.0}, [1, 2, 2, 3]
        yield name, {"size": [3, 5]}, [1, 2, 2, 3]
    yield "Unfold", {"kernel_size": 2}, [2, 2, 3, 4]
    yield "Unfold", {"kernel_size": [2, 3], "dilation": [1, 2], "padding": 1, "stride": 2}, [1, 2, 5, 6]
    yield "Fold", {"output_size": [3, 4], "kernel_size": 2}, [2, 8, 6]
    yield "Fold", {"output_size": 5, "kernel_size": [2, 3], "padding": [1, 0], "stride": [2, 1]}, [1, 12, 9]
    for name in ("RNN", "LSTM", "GRU"):
        sizes = {"input_size": 2, "hidden_size": 3}
        yield name, {**sizes, "batch_first": True}, [2, 4, 2]
        yield name, {**sizes, "num_layers": 2, "bias": False, "batch_first": False, "bidirectional": True}, [3, 2, 2]
        yield name, {**sizes, "num_layers": 2, "batch_first": True, "dropout": 1.0, "bidirectional": True}, [2, 2, 2]
        yield name, {**sizes, "batch_first": False}, [3, 2]
    yield "RNN", {**sizes, "nonlinearity": "relu", "num_layers": 2, "batch_first": True}, [2, 3, 2]
    yield "LSTM", {**sizes, "num_layers": 2, "batch_first": True, "bidirectional": True, "proj_size": 2}, [2, 3, 2]
    yield "LSTM", {**sizes, "bias": False, "batch_first": False, "proj_size": 1}, [3, 2, 2]
    for name in ("RNNCell", "LSTMCell", "GRUCell"):
        yield name, sizes, [2, 2]
        yield name, {**sizes, "bias": False}, [2]
    yield "RNNCell", {**sizes, "nonlinearity": "relu"}, [2, 2]
    yield "Embedding", {"num_embeddings": 5, "embedding_dim": 3}, [2, 4], 5
    yield "Embedding", {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": -1, "scale_grad_by_freq": True}, [2, 4], 5
    yield "Embedding", {"num_embeddings": 5, "embedding_dim": 3, "max_norm": 1.5, "norm_type": 1.0}, [6], 5

    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3}, [2, 4], 5
    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3, "mode": "sum", "padding_idx": -1}, [3, 4], 5
    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3, "mode": "max", "padding_idx": 1}, [3, 2], 5
    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3, "max_norm": 1.5, "norm_type": 1.0}, [2, 2], 5
    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3, "scale_grad_by_freq": True}, [2, 4], 5

    yield "MultiheadAttention", {"embed_dim": 4, "num_heads": 2}, [2, 3, 4]
    yield "MultiheadAttention", {"embed_dim": 6, "num_heads": 3, "bias": False, "batch_first": False, "is_causal": True}, [3, 2, 6]
    yield "MultiheadAttention", {"embed_dim": 4, "num_heads": 1, "add_bias_kv": True, "add_zero_attn": True}, [2, 3, 4]
    yield "MultiheadAttention", {"embed_dim": 4, "num_heads": 2, "add_bias_kv": True, "is_causal": True, "dropout": 0.5}, [2, 3, 4]
    yield "MultiheadAttention", {"embed_dim": 8, "num_heads": 1, "is_causal": True}, [2, 4, 8]  # heads that cuDNN takes
    small = {"d_model": 4, "nhead": 2, "dim_feedforward": 5}
    for kind, more in (("TransformerEncoderLayer", {}), ("TransformerEncoder", {"num_layers": 2})):
        yield kind, {**small, **more, "dropout": 0.0}, [2, 3, 4]
        yield kind, {**small, **more, "activation": "gelu", "layer_norm_eps": 0.01, "norm_first": True,
                     "is_causal": True}, [2, 3, 4]
        yield kind, {**small, **more, "dropout": 0.0, "batch_first": False, "bias": False}, [3, 2, 4]
    yield "TransformerEncoder", {**small, "dropout": 0.0, "num_layers": 1, "norm": True, "norm_first": True}, [2, 3, 4]
    yield "PositionalEncoding", {"d_model": 4, "dropout": 0.0, "max_len": 7}, [2, 5, 4]
    yield "PositionalEncoding", {"d_model": 5, "max_len": 6, "batch_first": False}, [3, 2, 5]
    yield "PositionEmbedding", {"max_len": 7, "d_model": 4}, [2, 5, 4]
    yield "PositionEmbedding", {"max_len": 3, "d_model": 4, "batch_first": False}, [3, 2, 4]
    yield "RotaryEmbedding", {"dim": 4}, [2, 5, 4]
    yield "RotaryEmbedding", {"dim": 4, "base": 50.0, "interleaved": True}, [2, 5, 6]


def losses():
    """Returns (type, args, shape of the output, how it is drawn, target: how it is drawn)"""
    yield "MSELoss", {}, [3, 4], "normal", "normal"
    yield "L1Loss", {}, [3, 4], "normal", "normal"
    yield "SmoothL1Loss", {}, [3, 4], "normal", "normal"
    yield "SmoothL1Loss", {"beta": 0.25}, [3, 4], "normal", "normal"
    yield "HuberLoss", {}, [3, 4], "normal", "normal"
    yield "HuberLoss", {"delta": 0.5}, [3, 4], "normal", "normal"
    yield "PoissonNLLLoss", {}, [3, 4], "normal", "counts"
    yield "PoissonNLLLoss", {"log_input": False, "full": True, "eps": 1e-6}, [3, 4], "positive", "counts"
    yield "KLDivLoss", {}, [3, 4], "log", "positive"
    yield "KLDivLoss", {"log_target": True}, [3, 4], "log", "log"
    yield "KLDivLoss", {"reduction": "batchmean"}, [3, 4], "log", "positive"
    yield "BCELoss", {}, [3, 4], "positive", "positive"
    yield "BCELoss", {"weight": [0.5, 1.0, 2.0, 0.25]}, [3, 4], "positive", "bits"
    yield "BCEWithLogitsLoss", {}, [3, 4], "normal", "bits"
    yield "BCEWithLogitsLoss", {"weight": [0.5, 1.0, 2.0, 0.25], "pos_weight": [3.0, 1.0, 0.5, 2.0]}, [3, 4], "normal", "bits"
    yield "SoftMarginLoss", {}, [3, 4], "normal", "signs"
    yield "HingeEmbeddingLoss", {}, [3, 4], "normal", "signs"
    yield "HingeEmbeddingLoss", {"margin": 0.5}, [3, 4], "normal", "signs"
    yield "MultiLabelMarginLoss", {}, [3, 4], "normal", "labels"
    yield "MultiLabelSoftMarginLoss", {}, [3, 4], "normal", "bits"
    yield "MultiLabelSoftMarginLoss", {"weight": [0.5, 1.0, 2.0, 0.25]}, [3, 4], "normal", "bits"
    yield "CrossEntropyLoss", {}, [5, 4], "normal", "classes"
    weights = {"weight": [0.5, 1.0, 2.0, 0.25]}
    yield "CrossEntropyLoss", {**weights, "ignore_index": 1, "label_smoothing": 0.1}, [5, 4], "normal", "classes"
    yield "CrossEntropyLoss", {"label_smoothing": 0.2}, [2, 4, 3], "normal", "classes"
    yield "NLLLoss", {}, [5, 4], "log", "classes"
    yield "NLLLoss", {"weight": [0.5, 1.0, 2.0, 0.25], "ignore_index": 2}, [5, 4], "log", "classes"
    yield "CTCLoss", {}, [3, 5, 3], "log", "padded labels"
    yield "CTCLoss", {"blank": 0, "zero_infinity": True}, [3, 6, 4], "log", "padded labels"
    yield "MultiMarginLoss", {}, [5, 4], "normal", "classes"
    yield "MultiMarginLoss", {"p": 2, "margin": 0.5, "weight": [0.5, 1.0, 2.0, 0.25]}, [5, 4], "normal", "classes"
