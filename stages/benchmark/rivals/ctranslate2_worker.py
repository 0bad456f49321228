"""A process that decodes with CTranslate2 and times itself: batches as JSON lines in, times and outputs as JSON lines out.

    PYTHON ctranslate2_worker.py MODEL TRANSLATOR < requests

MODEL is the directory of a converted model, TRANSLATOR a JSON object with arguments of `ctranslate2.Translator`. PYTHON needs the
package `ctranslate2`, and `sentencepiece` for text, and nothing else. A request has `options` (arguments of `translate_batch`),
`seconds` (the time for which the batch is repeated) and either `batch` (a list of lists of pieces) or `lines` of text, which
`source.spm` and `target.spm` in MODEL turn into pieces and back.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import ctranslate2


def mebibytes(field: str) -> float:
    """Return `VmRSS`, the present memory of this process, or `VmHWM`, its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) / 1024


def processors(model: Path) -> list[Any]:
    """Return the tokenisers of both sides, if the model has them."""
    files = [model / f"{side}.spm" for side in ("source", "target")]
    if not files[0].exists():
        return []
    import sentencepiece

    return [sentencepiece.SentencePieceProcessor(model_file=str(file)) for file in files]


def main() -> None:
    before = mebibytes("VmRSS")
    sides = processors(Path(sys.argv[1]))
    translator = ctranslate2.Translator(sys.argv[1], device="cpu", **json.loads(sys.argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        lines = request.get("lines")
        options = request["options"]
        began = time.perf_counter()
        count = 0
        while (passed := time.perf_counter() - began) < request["seconds"] or not count:
            start = time.perf_counter()
            batch = request["batch"] if lines is None else sides[0].encode(lines, out_type=str)
            encoded = time.perf_counter()
            output = [result.hypotheses[0] for result in translator.translate_batch(batch, **options)]
            decoded = time.perf_counter()
            texts = None if lines is None else sides[1].decode(output)
            end = time.perf_counter()
            count += 1
        answer = {
            "milliseconds": 1000 * passed / count / len(batch),
            "seconds": [encoded - start, decoded - encoded, end - decoded],
            "source_tokens": sum(map(len, batch)),
            "output": output if texts is None else texts,
            "tokens": sum(map(len, output)),
            "mebibytes": mebibytes("VmHWM") - before,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
