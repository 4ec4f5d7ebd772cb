"""From a body to a C function that a team of threads calls."""
