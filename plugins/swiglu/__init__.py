"""The gated activation of Llama-like feed-forward layers: silu(gate) * up."""
