"""Networks and systems as directories, and loaded systems that decode sentences."""
