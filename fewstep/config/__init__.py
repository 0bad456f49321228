"""Configs of networks and searches: the types that all families share, labels, and rules on combinations of options."""
