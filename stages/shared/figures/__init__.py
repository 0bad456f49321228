"""Style and parts of figures. The same numbers give the same bytes."""
