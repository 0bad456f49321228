"""Matrix products and DAG searches of the level in use, compared with NumPy; printed as JSON. Needs neither torch nor pytest."""

import hashlib
import json

import fewstep_native
import numpy as np

SHAPES = [(1, 1, 1), (3, 17, 5), (7, 64, 33), (20, 130, 260)]
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.6, "int8": 1.0}


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def main() -> None:
    """Print the level, and a digest of the products for each precision. Raises AssertionError for a wrong product."""
    digests = {}
    for precision, tolerance in TOLERANCES.items():
        found = []
        for rows, outputs, inputs in SHAPES:
            weights, bias, x = numbers(1, outputs, inputs), numbers(2, outputs), numbers(3, rows, inputs)
            product = fewstep_native.PackedMatrix(weights, bias).multiply(x, precision=precision)
            expected = x.astype(np.float64) @ weights.astype(np.float64).T + bias
            assert np.abs(product - expected).max() < tolerance, (fewstep_native.LEVEL, precision, rows, outputs, inputs)
            found.append(product.tobytes())
        digests[precision] = hashlib.sha256(b"".join(found)).hexdigest()
    print(json.dumps({"level": fewstep_native.LEVEL, "levels": fewstep_native.LEVELS, "products": digests}))


if __name__ == "__main__":
    main()
