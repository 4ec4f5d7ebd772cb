"""What benchmarks share: how they are declared, timed, stored as JSON and shown as tables."""
