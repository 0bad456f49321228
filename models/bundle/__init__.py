"""Networks and systems as directories."""
