"""Ways to break the package, each with the tests that must notice: what shows that the tests can fail."""
