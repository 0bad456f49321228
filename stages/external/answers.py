"""Answers of a language model, kept as they come, and the choice of targets among them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO

from stages.artifacts import ExternalFile
from stages.context import Context
from stages.errors import DataError
from stages.external import ExternalConfig, OpenAIOptions
from stages.external.openai_server import Server
from stages.external.prompts import Answer, estimate, options_of
from stages.shared.scoring.choice import Candidates, selector_of
from stages.shared.target_filters import TargetFilter

REASONS = {"rejected": "not taken by the model", "cut": "cut at the longest length", "not_json": "no JSON", "empty": "empty output"}
"""Reasons for a source without a target, beside those of filters, and their names in reports."""


class Journal:
    """The file of the answers for the sources of a shard. Each answer is appended as soon as it is there.

    The name of the file is a digest of the sources, the model and the options, so that a later attempt or another run finds it,
    and asks only for missing answers.
    """

    def __init__(self, folder: Path, config: ExternalConfig, sources: Sequence[str]) -> None:
        self.path = folder / f"{_digest(config, sources)}.answers"

    def read(self) -> dict[int, Answer]:
        """Return the answers by the index of their source, and cut off what a killed attempt wrote in part."""
        found: dict[int, Answer] = {}
        if not self.path.exists():
            return found
        content = self.path.read_bytes()
        whole = 0
        for line in content.splitlines(keepends=True):
            try:
                index, *values = json.loads(line)
            except ValueError:
                break
            if not line.endswith(b"\n"):
                break
            found[index] = Answer(*values)
            whole += len(line)
        if whole < len(content):
            with self.path.open("r+b") as file:
                file.truncate(whole)
        return found

    def open(self) -> IO[str]:
        """Return the file, to which `write` appends."""
        return self.path.open("a", encoding="utf-8")


def write(file: IO[str], index: int, answer: Answer) -> None:
    """Append an answer, so that it outlives the process."""
    file.write(json.dumps([index, *answer]) + "\n")
    file.flush()


def _digest(config: ExternalConfig, sources: Sequence[str]) -> str:
    options = options_of(config)
    asked = [
        options.model,
        options.prompt,
        options.protocol,
        options.output,
        options.temperature,
        options.top_p,
        options.max_tokens,
    ]
    if config.ray_llm is not None:
        asked.append(dict(config.ray_llm.engine))
    languages = [config.source_language, config.target_language]
    return hashlib.sha256(json.dumps([asked, languages, config.n_best, list(sources)]).encode()).hexdigest()


class Budget:
    """The tokens and the money that remain; None for any amount."""

    def __init__(self, options: OpenAIOptions, spent: tuple[int, int] = (0, 0)) -> None:
        """`spent` are the tokens of prompts and answers so far."""
        self._options = options
        self._tokens = None if options.max_total_tokens is None else float(options.max_total_tokens - sum(spent))
        self._money = None if options.max_cost is None else options.max_cost - options.cost(*spent)

    def part(self, share: float) -> Budget:
        """Return a share of what remains."""
        found = Budget(self._options)
        found._tokens = None if self._tokens is None else share * self._tokens
        found._money = None if self._money is None else share * self._money
        return found

    def check(self, prompt: float, answer: float) -> None:
        """Raise DataError for tokens that the budget does not hold."""
        remedy = "raise it, or use less text; answers so far are kept"
        if self._tokens is not None and prompt + answer > self._tokens:
            remain = f"requests of at most {max(self._tokens, 0):,.0f} further tokens"
            raise DataError(f"teacher.openai.max_total_tokens: expected {remain}, got about {prompt + answer:,.0f}; {remedy}")
        if self._money is not None and (cost := self._options.cost(prompt, answer)) > self._money:
            remain = f"requests of at most {max(self._money, 0):.4f} further"
            raise DataError(f"teacher.openai.max_cost: expected {remain}, got about {cost:.4f}; {remedy}")

    def spend(self, answer: Answer) -> None:
        """Count the tokens of an answer."""
        if self._tokens is not None:
            self._tokens -= answer.prompt_tokens + answer.answer_tokens
        if self._money is not None:
            self._money -= self._options.cost(answer.prompt_tokens, answer.answer_tokens)


def ask_all(server: Server, config: ExternalConfig, texts: Mapping[int, str], budget: Budget) -> Iterator[tuple[int, Answer]]:
    """Yield the answers for texts as they come, several requests at the same time (`concurrency`).

    Raises DataError before a request that the budget does not hold, and the error of a request, after all answers that are under
    way were yielded.
    """
    assert config.openai is not None
    concurrency = config.openai.concurrency
    waiting = iter(texts.items())
    running = dict[Future[Answer], int]()
    error: Exception | None = None
    with ThreadPoolExecutor(concurrency) as pool:
        while True:
            while error is None and len(running) < concurrency and (following := next(waiting, None)):
                index, text = following
                try:
                    budget.check(*estimate(config, [text]))
                except DataError as refused:
                    error = refused
                    break
                running[pool.submit(server.ask, text)] = index
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(future)
                try:
                    answer = future.result()
                except Exception as failed:
                    error = error or failed
                    continue
                budget.spend(answer)
                yield index, answer
    if error is not None:
        raise error


class Chooser:
    """The choice of targets among answers."""

    def __init__(self, config: ExternalConfig, comet: ExternalFile | None, context: Context) -> None:
        """Raise DataError for a language whose tokeniser is not installed."""
        self.config = config
        self._filter = filter_of(config)
        self._selector = selector_of(config, comet, context)

    def targets(self, rows: Sequence[tuple[str, Answer, str]]) -> list[tuple[str, str]]:
        """Return the target of each source, answer and reference, or an empty one and the reason for its absence. Raises what
        selectors raise."""
        usable, reasons = zip(*(self._usable(source, answer) for source, answer, _ in rows), strict=True) if rows else ((), ())
        candidates = [
            Candidates(source, texts, reference) for (source, _, reference), texts in zip(rows, usable, strict=True) if texts
        ]
        chosen = iter(self._selector(candidates) if self._selector else [0] * len(candidates))

        def of_row(texts: Sequence[str], reason: str) -> tuple[str, str]:
            if not texts:
                return "", reason
            index = next(chosen)
            return ("", "quality") if index is None else (texts[index], "")

        return [of_row(*row) for row in zip(usable, reasons, strict=True)]

    def _usable(self, source: str, answer: Answer) -> tuple[list[str], str]:
        """Return the outputs that may be targets, and otherwise the reason."""
        if not answer.outputs:
            return [], "rejected" if answer.problem else "empty"
        reasons = [
            "cut" if index in answer.cut else _reason(source, output, self._filter) for index, output in enumerate(answer.outputs)
        ]
        usable = [output for output, reason in zip(answer.outputs, reasons, strict=True) if output and reason is None]
        return usable, reasons[0] or "empty"


def filter_of(config: ExternalConfig) -> TargetFilter | None:
    """Return the filter of outputs, if the config has one."""
    return None if config.filters is None else TargetFilter(config.filters, config.target_language)


def _reason(source: str, output: str | None, found: TargetFilter | None) -> str | None:
    if output is None:
        return "not_json"
    if not output.strip():
        return "empty"
    return found.rejection(source, output) if found else None


def tokens_of(answers: Iterable[Answer]) -> tuple[int, int]:
    """Return the tokens of prompts and of answers."""
    prompts, outputs = 0, 0
    for answer in answers:
        prompts, outputs = prompts + answer.prompt_tokens, outputs + answer.answer_tokens
    return prompts, outputs
