"""Figures as SVG text. The same numbers give the same bytes."""
