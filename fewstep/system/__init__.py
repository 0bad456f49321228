"""The format of system directories: descriptions, checksums, and the parts that need no network."""
