"""How group sizes are measured, and choosers fitted to them and judged."""
