"""The compiled extension, checked for its version. Use `from fewstep.native import fewstep_native` in functions that need it."""

__all__ = ["ABI", "NativeError", "fewstep_native"]

ABI = 31
"""Version of the native signatures that this code calls; `fewstep_native.ABI` must equal it."""

BUILD = "build it with `make` in the checkout, or reinstall the package with `pip install .`"


class NativeError(ImportError):
    """The extension is missing, cannot be loaded, or was built from other code."""


try:
    import fewstep_native
except ModuleNotFoundError as error:
    raise NativeError(f"fewstep: expected the compiled extension fewstep_native, got: {error}; {BUILD}") from error
except ImportError as error:  # it does not run here, and says why
    raise NativeError(f"fewstep: expected a compiled extension that runs here, got: {error}") from error

if (_found := getattr(fewstep_native, "ABI", None)) != ABI:
    raise NativeError(
        f"fewstep: expected the compiled extension fewstep_native of ABI {ABI}, got ABI {_found} "
        f"in {getattr(fewstep_native, '__file__', '?')}; {BUILD}"
    )
