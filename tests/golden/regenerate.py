"""Write the golden files again: `python tests/golden/regenerate.py`. Review the difference before committing it."""

import importlib.util
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("test_step", HERE.parent / "pipeline" / "plan" / "test_step.py")
assert SPEC is not None
assert SPEC.loader is not None
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
MODULE.GOLDEN.write_text(json.dumps(MODULE.fingerprinted(), indent=1, sort_keys=True) + "\n")
