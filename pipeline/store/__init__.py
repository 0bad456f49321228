"""Artifacts on disk and on object storage."""
