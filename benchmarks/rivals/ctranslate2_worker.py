"""A process that decodes with CTranslate2 and times itself: batches as JSON lines in, times and outputs as JSON lines out.

    PYTHON ctranslate2_worker.py MODEL TRANSLATOR < requests

MODEL is the directory of a converted model, TRANSLATOR a JSON object with arguments of `ctranslate2.Translator`. PYTHON needs the
package `ctranslate2` and nothing else. A request has `batch` (a list of lists of pieces), `options` (arguments of
`translate_batch`) and `seconds`, the time for which the batch is repeated.
"""

import json
import sys
import time
from pathlib import Path

import ctranslate2


def mebibytes(field: str) -> float:
    """Return `VmRSS`, the present memory of this process, or `VmHWM`, its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) / 1024


def main() -> None:
    before = mebibytes("VmRSS")
    translator = ctranslate2.Translator(sys.argv[1], device="cpu", **json.loads(sys.argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        batch, options = request["batch"], request["options"]
        began, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < request["seconds"] or not count:
            results = translator.translate_batch(batch, **options)
            count += 1
        answer = {
            "milliseconds": 1000 * passed / count / len(batch),
            "output": [result.hypotheses[0] for result in results],
            "mebibytes": mebibytes("VmHWM") - before,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
