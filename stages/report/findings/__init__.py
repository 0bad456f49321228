"""The data of the report: results, comparisons, analyses and training curves."""
