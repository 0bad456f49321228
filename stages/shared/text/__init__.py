"""Archives of text, and the normalisation of text."""
