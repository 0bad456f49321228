"""Reading of vocabularies and dictionaries."""
