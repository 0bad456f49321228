"""Requests of a plan to language models, which cost tokens and money before anything can be seen of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipeline.plan.step import Step
from pipeline.store.files import read_json
from stages.external import STAGE, OpenAIOptions
from stages.external.prompts import estimate, options_of
from stages.shared.shards import read_shard, shard_paths

SAMPLE = 1000
"""Sentences from which the length of all is estimated."""


def spending(steps: Iterable[Step]) -> Iterator[str]:
    """Yield for each missing step that asks a language model a line with its sentences and the estimate of its tokens and their
    price.

    Answers that are kept from earlier attempts are counted as well. A text that is not in the store yet is named.
    """
    for step in steps:
        if step.stage is not STAGE or (step.config.openai is None and step.config.ray_llm is None):
            continue
        options = options_of(step.config)
        rows, sources = _sources(step)
        if not rows:
            yield f"{step.name} asks {options.model}: the amount is known when its text is in the store; plan again then"
            continue
        prompts, answers = (rows / len(sources) * tokens for tokens in estimate(step.config, sources))
        cost = _cost(step.config.openai, prompts, answers)
        tokens = f"about {prompts:,.0f} tokens of prompts and {answers:,.0f} of answers"
        yield f"{step.name} asks {options.model} for {rows:,} sentences: {tokens}{cost}"


def _cost(options: OpenAIOptions | None, prompts: float, answers: float) -> str:
    """Return the price of tokens in words; empty for a server without prices, and for GPUs of one's own."""
    if options is None or not (options.input_price or options.output_price):
        return ""
    return f", about {options.cost(prompts, answers):,.2f} by its prices"


def _sources(step: Step) -> tuple[int, list[str]]:
    """Return the number of sentences of a step, and some of them; 0 if the text is not in the store."""
    text = step.inputs.text.path
    if not (text / "text.json").is_file():
        return 0, []
    rows = int(read_json(text / "text.json")["rows"])
    shards = shard_paths(text)
    return rows, read_shard(shards[0]).slice(0, SAMPLE)["source"].to_pylist() if shards else []
