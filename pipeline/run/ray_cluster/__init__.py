"""A Ray cluster as the machines of a run: the connection to it, its head and its nodes."""
