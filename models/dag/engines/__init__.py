"""Engines that decode a DAG network."""
