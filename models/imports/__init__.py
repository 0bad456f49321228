"""Importers of networks that other toolkits trained. They read files and run no code from them."""
