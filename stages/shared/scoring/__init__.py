"""Metrics of hypotheses, and log-probabilities of given pairs."""
