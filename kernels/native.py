"""The compiled extension, checked: `from kernels.native import fewstep_native` inside the functions that need it."""

__all__ = ["ABI", "NativeError", "fewstep_native"]

ABI = 23
"""Of `fewstep_native`: the signatures that this code calls."""

BUILD = "build it with `make` in the checkout, or reinstall the package with `pip install .`"


class NativeError(ImportError):
    """The extension is missing, cannot be loaded, or was built from other code."""


try:
    import fewstep_native
except ImportError as error:
    raise NativeError(f"kernels: expected the compiled extension fewstep_native, got: {error}; {BUILD}") from error

if (_found := getattr(fewstep_native, "ABI", None)) != ABI:
    raise NativeError(
        f"kernels: expected the compiled extension fewstep_native of ABI {ABI}, got ABI {_found} "
        f"in {getattr(fewstep_native, '__file__', '?')}; {BUILD}"
    )
