"""Kernels on arrays for training and counting: objectives and alignment of graphs, word alignment, n-gram estimation, candidates.

Searches over given scores come from `fewstep`. Importing this package loads neither torch nor numpy nor the extension: a name of
`__init__.pyi` is imported from its module on first use.
"""

from fewstep.lazy import attach

# Two functions have the names of their packages, which would take their place once anything imports these.
from kernels.fast_align import fast_align as fast_align
from kernels.symmetrize import symmetrize as symmetrize

__getattr__, __all__ = attach(__file__)
