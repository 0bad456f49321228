"""A process that translates with bergamot: lists of texts as JSON lines in, the words of their translations out.

    PYTHON bergamot_worker.py THREADS < requests

The first line is the configuration of a model as a JSON string. PYTHON needs the package `bergamot` and nothing else.
"""

import json
import os
import sys

import bergamot  # type: ignore[import-not-found]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # messages of the library do not mix with answers
    service = bergamot.Service(bergamot.ServiceConfig(numWorkers=int(sys.argv[1]), cacheSize=0, logLevel="off"))
    model = service.modelFromConfig(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        found = service.translate(model, bergamot.VectorString(json.loads(line)), bergamot.ResponseOptions())
        print(json.dumps([len(one.target.text.split()) for one in found]), file=answers)


if __name__ == "__main__":
    main()
