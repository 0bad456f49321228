"""A process that translates with transformers and times itself: batches of token ids as JSON lines in, times as JSON lines out.

    PYTHON transformers_worker.py SETTINGS < requests

SETTINGS is a JSON object with the arguments of `MarianConfig` (`config`), the `precision` (float32, bfloat16, or int8: the dynamic
quantization of torch), the number of `threads`, and the number of `tokens` of each output. A request has `batch` (rows of token ids
of one length) and `seconds`, the time for which the batch is repeated. PYTHON needs torch and transformers, and nothing else.
"""

import json
import sys
import time
from typing import Any

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel
from transformers.utils import logging

PAD, EOS = 0, 2


def network(config: dict[str, Any], precision: str) -> Any:
    """Return a network of random weights in a precision."""
    torch.manual_seed(1)
    ids: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD}
    found: Any = MarianMTModel._from_config(MarianConfig(**config, **ids), attn_implementation="sdpa")  # type: ignore[no-untyped-call]
    found.eval()
    if precision == "int8":
        return torch.ao.quantization.quantize_dynamic(found, {torch.nn.Linear}, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    return found.to(getattr(torch, precision))


@torch.inference_mode()
def main() -> None:
    settings = json.loads(sys.argv[1])
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.set_num_threads(settings["threads"])
    model = network(settings["config"], settings["precision"])
    tokens = settings["tokens"]
    options = GenerationConfig(num_beams=1, do_sample=False, use_cache=True, min_new_tokens=tokens, max_new_tokens=tokens)  # type: ignore[no-untyped-call]
    options.pad_token_id = options.decoder_start_token_id = PAD
    options.eos_token_id = EOS
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        count = 0
        while (passed := time.perf_counter() - began) < request["seconds"] or not count:
            rows = torch.tensor(request["batch"])
            found = model.generate(rows, attention_mask=torch.ones_like(rows), generation_config=options)
            count += 1
        lengths = [len(row) - 1 for row in found.tolist()]
        print(json.dumps({"milliseconds": 1000 * passed / count / len(lengths), "tokens": lengths}), flush=True)


if __name__ == "__main__":
    main()
