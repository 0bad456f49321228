"""The compiled extension as Python sees it. Its users are the modules of `fewstep` and `kernels`, which document and check.

The build writes the signatures of the bindings into `_signatures.pyi`.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fewstep_native._signatures import *  # noqa: F403

I32: TypeAlias = npt.NDArray[np.int32]
I64: TypeAlias = npt.NDArray[np.int64]
Bool: TypeAlias = npt.NDArray[np.bool_]
U8: TypeAlias = npt.NDArray[np.uint8]
U16: TypeAlias = npt.NDArray[np.uint16]
U32: TypeAlias = npt.NDArray[np.uint32]
U64: TypeAlias = npt.NDArray[np.uint64]
F32: TypeAlias = npt.NDArray[np.float32]
F64: TypeAlias = npt.NDArray[np.float64]
Halves: TypeAlias = tuple[int, int]

LEVELS: tuple[str, ...]
MISSING: tuple[str, ...]
