"""Publish runs to MLflow."""
