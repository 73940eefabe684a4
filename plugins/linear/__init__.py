"""Linear layers on packed weights: `y = x W + b` in float32, bf16 or int8."""
