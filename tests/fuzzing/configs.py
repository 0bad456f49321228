"""Numbers of a config at the borders of types, memory and floats: `plan` ends with words."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pipeline.__main__ import main
from pipeline.config.load import load_config, resolved
from stages.errors import DataError
from tests.fuzzing.numbers import NUMBERS, at, places

CONFIG = """
name: numbers
corpus:
  train: {embedded: 60}
  validation: {embedded: 10}
  test: {tiny: {embedded: 10}}
vocabulary: {size: 100}
lattice: {}
ngram: {}
teacher: {}
distillation: {}
defaults: {training: {updates: 4}}
systems:
  stepwise: {family: stepwise, data: distilled, search: [greedy, {beam: {beam_size: 2}}]}
  dag: {family: dag, search: [lookahead, {beam: {ngram_weight: 0.1}}]}
  lattice: {family: lattice, search: [viterbi]}
  aggressive: {family: aggressive, verifier: stepwise, search: [gad]}
  parallel: {family: parallel, objective: ctc, search: [greedy, prefix-beam]}
  cmlm: {family: parallel, objective: cmlm, search: [mask-predict]}
cluster: {resources: {train: {workers: 1}}}
"""


class ConfigTarget:
    """A config of all families, of which one number is changed at a time by `--set`: each one by each number at a border."""

    refusals: tuple[type[BaseException], ...] = (DataError,)

    def __init__(self, scratch: Path) -> None:
        self.path, self.store = scratch / "config.yaml", scratch / "store"
        self.path.write_text(CONFIG)
        values = resolved(load_config(self.path))
        self.changes = [(path, number) for path in _numbers(values) for number in NUMBERS]

    def trial(self, seed: int) -> str:
        """Plan the config with one changed number. Raises DataError with the words of a refusal."""
        path, number = self.changes[seed % len(self.changes)]
        value = yaml.safe_dump(number).partition("\n")[0]
        shown, told = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(told):
            code = main(["plan", str(self.path), "--set", f"{path}={value}", "--set", f"store.path={self.store}"])
        if "Traceback" in told.getvalue() or code not in (0, 1, 2):
            raise AssertionError(f"{path}={value}: {told.getvalue()}")
        if code:
            if not told.getvalue().strip():
                raise AssertionError(f"{path}={value}: no words")
            raise DataError(told.getvalue())
        return f"{path}={value}"


def _numbers(values: Any) -> Iterator[str]:
    """Yield the places of numbers and of empty values, once for the trainings of all systems."""
    known = set[tuple[Any, ...]]()
    for path in places(values):
        value = at(values, path)
        tail = path[2:] if path[0] in ("systems", "defaults") and len(path) > 2 else path[1:] if path[0] == "teacher" else path
        if (value is None or type(value) in (int, float)) and tail not in known:
            known.add(tail)
            yield ".".join(map(str, path))
