"""Which form values of edges take: a program, a network, operators on chunks of edges, or memory."""
