"""Networks that write their target step by step (Zhang et al. 2020; Imamura and Sumita 2020)."""
