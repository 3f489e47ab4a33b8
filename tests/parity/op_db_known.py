"""Where halfstep differs from PyTorch's own samples on purpose: (op, what the difference says, reason), patterns of re."""
KNOWN = [
]
