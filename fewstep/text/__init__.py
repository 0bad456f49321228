"""Text before a vocabulary splits it into pieces: its format, its language, its sentences."""
