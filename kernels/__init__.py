"""Arrays and words in, arrays and words out: what is native, and the slow twins that the tests trust.

Importing this package loads neither torch nor numpy, nor the extension: a function loads what it needs.
"""

from kernels.fast_align import Alignment, AlignmentModel, AlignOptions, fast_align
from kernels.symmetrize import symmetrize

__all__ = ["AlignOptions", "Alignment", "AlignmentModel", "fast_align", "symmetrize"]
