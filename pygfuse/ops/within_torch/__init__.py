"""What PyTorch does around operators: it traces, batches, casts, and differentiates their gradients."""
