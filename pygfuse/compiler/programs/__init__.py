"""Values of edges as the text of edge programs."""
