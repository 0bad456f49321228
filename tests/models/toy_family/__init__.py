"""A complete family in two small files: a glossary that translates each token by itself. It shows all that a family consists of."""
