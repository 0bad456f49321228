"""The steps that decode, score and time systems."""

from __future__ import annotations

from typing import NamedTuple

from fewstep.config.search import SearchConfig
from pipeline.plan import stage_configs
from pipeline.plan.flow import Built, Flow, Texts
from pipeline.plan.text_files import local_file
from stages import benchmark, decode, report, score
from stages.artifacts import ExternalFile, Hypotheses, Scores, Text, Timings


class _Files(NamedTuple):
    """The user's files that scores need."""

    comet: ExternalFile | None
    glossary: ExternalFile | None


def decode_and_score(flow: Flow, texts: Texts, systems: dict[str, Built]) -> tuple[report.Evaluated, ...]:
    """Decode each test set with each system and search, and with its default search and the glossary, and score the hypotheses."""
    options = flow.config.evaluation
    paths = (options.comet, options.glossary)
    files = _Files(*(None if path is None else local_file(path, flow.store) for path in paths))
    return tuple(
        report.Evaluated(
            name,
            f"{label}-glossary" if terms else label,
            test,
            *_decode_and_score(flow, f"{name}/{label}:{test}", systems[name], label, search, text, files, terms),
        )
        for test, text in texts.tests.items()
        for name, settings in flow.config.systems.items()
        for number, (label, search) in enumerate(settings.search.items())
        for terms in (False, True)
        if not terms or (number == 0 and files.glossary is not None)
    )


def _decode_and_score(
    flow: Flow, step: str, built: Built, label: str, search: SearchConfig, text: Text, files: _Files, terms: bool
) -> tuple[Hypotheses, Scores]:
    step = f"{step}:glossary" if terms else step
    decoding = decode.DecodeConfig(search=search, batch_tokens=flow.config.evaluation.batch_tokens)
    inputs = decode.DecodeInputs(built.system, text, built.tuned.get(label), files.glossary if terms else None)
    hypotheses = flow.steps.add(decode.STAGE, step, inputs, decoding)
    scoring = stage_configs.score_config(flow.config, search)
    scored = score.ScoreInputs(hypotheses, text, files.comet, built.system if scoring.repetition else None, files.glossary)
    return hypotheses, flow.steps.add(score.STAGE, step, scored, scoring)


def measure_speed(flow: Flow, texts: Texts, systems: dict[str, Built]) -> dict[str, Timings]:
    """Time all systems together on one test set, unless the config disables it; by test set."""
    test = flow.config.benchmark.test
    if not flow.config.benchmark.enabled:
        return {}
    others = stage_configs.further_seeds(flow.config)
    measured = {
        f"{name}/{label}": tuned
        for name, built in systems.items()
        if name not in others
        for label, tuned in built.tuned.items()
        if flow.config.systems[name].search[label].unmeasured_shortlist
    }
    timed = {name: built.system for name, built in systems.items() if name not in others}
    inputs = benchmark.BenchmarkInputs(timed, texts.tests[test], measured)
    return {test: flow.steps.add(benchmark.STAGE, f"all:{test}", inputs, stage_configs.benchmark_config(flow.config))}
