"""How long lists of words may be that a search chooses among."""

MOST = 4096
"""Words that are listed for being common, whatever the source."""
MOST_LINKS = 32
"""Words that a word of the source brings to a list."""
