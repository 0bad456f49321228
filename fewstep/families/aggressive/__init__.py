"""Drafts that another network verifies (Xia et al. 2022)."""
