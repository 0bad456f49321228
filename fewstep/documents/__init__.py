"""Documents whose text is translated in place: translation memories, files of localisation, mark-up and plain text.

A reader of a format finds the segments of a document with their bytes. Only the targets of segments differ between the bytes that
are read and those that are written.
"""
