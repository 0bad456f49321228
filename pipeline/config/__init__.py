"""The config: its schema, its YAML form, its checks."""
