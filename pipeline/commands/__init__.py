"""The commands of the CLI: thin functions over the rooms below."""
