"""Configs of networks and searches: the types that all families share, and rules on their combinations."""
