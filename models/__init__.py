"""Networks, objectives and decoding. `models.family.FAMILIES` is the table of families."""
