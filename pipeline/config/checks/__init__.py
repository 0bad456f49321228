"""Rules between the sections of a config."""
