"""The files of a config: reading them within limits, and merging those that extend each other."""
