"""PyG's own tests, run on the fused classes: README.md."""
