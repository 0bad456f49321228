"""The compiled extension as Python sees it. Its users are the modules of `kernels`, which document and check."""

ABI: int
