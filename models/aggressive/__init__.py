"""Drafts by a block decoder, verified by an autoregressive network (Xia et al. 2022)."""
