"""Arrays and words in, arrays and words out: what is native, and the slow twins that the tests trust.

Importing this package loads neither torch nor numpy, nor the extension: a function loads what it needs.
"""

from kernels.ngram import NgramModel

__all__ = ["NgramModel"]
