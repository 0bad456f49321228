"""Documents whose text is translated in place: translation memories, files of localisation, mark-up and plain text.

A reader of a format finds the segments of a document with their bytes; what is written differs from what was read in the targets
of segments alone.
"""
