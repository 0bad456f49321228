"""Data by name: names of data sets become files with URLs, which the store downloads."""
