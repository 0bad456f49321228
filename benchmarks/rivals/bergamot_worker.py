"""A process that translates with bergamot and times itself: lists of texts as JSON lines in, times and numbers of words out.

    PYTHON bergamot_worker.py THREADS < requests

The first line is the configuration of a model as a JSON string. A further one has `texts` and `seconds`, the time for which they
are translated again and again. PYTHON needs the package `bergamot` and nothing else; its extension is loaded without the package,
which fetches lists of models from the network when it is imported.
"""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def extension() -> Any:
    """Return the module of the package's extension. Raises SystemExit where the package is not installed."""
    package = importlib.util.find_spec("bergamot")
    if package is None or package.origin is None:
        raise SystemExit("expected the package bergamot, found none; pip install bergamot (Python 3.6 to 3.10)")
    (path,) = Path(package.origin).parent.glob("_bergamot*.so")
    spec = importlib.util.spec_from_file_location("_bergamot", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # messages of the library do not mix with answers
    bergamot = extension()
    service = bergamot.Service(bergamot.ServiceConfig(numWorkers=int(sys.argv[1]), cacheSize=0, logLevel="off"))
    model = service.modelFromConfig(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        request = json.loads(line)
        options = bergamot.ResponseOptions()
        began = time.perf_counter()
        count = 0
        while (passed := time.perf_counter() - began) < request["seconds"] or not count:
            found = service.translate(model, bergamot.VectorString(request["texts"]), options)  # a call empties its texts
            count += 1
        words = [len(one.target.text.split()) for one in found]
        print(json.dumps({"milliseconds": 1000 * passed / count / len(words), "words": words}), file=answers)


if __name__ == "__main__":
    main()
