"""Importers of networks that other programs trained. They read files and run no code from them."""
