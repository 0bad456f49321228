"""The steps that decode, score and time systems."""

from __future__ import annotations

from fewstep.config.search import SearchConfig
from pipeline.plan import stage_configs
from pipeline.plan.flow import Built, Flow, Texts
from pipeline.plan.text_files import local_file
from stages import benchmark, decode, report, score
from stages.artifacts import ExternalFile, Hypotheses, Scores, Text, Timings


def decode_and_score(flow: Flow, texts: Texts, systems: dict[str, Built]) -> tuple[report.Evaluated, ...]:
    """Decode each test set with each system and search, and score the hypotheses."""
    checkpoint = flow.config.evaluation.comet
    comet = None if checkpoint is None else local_file(checkpoint, flow.store)
    return tuple(
        report.Evaluated(
            name, label, test, *_decode_and_score(flow, f"{name}/{label}:{test}", systems[name], label, search, text, comet)
        )
        for test, text in texts.tests.items()
        for name, settings in flow.config.systems.items()
        for label, search in settings.search.items()
    )


def _decode_and_score(
    flow: Flow, step: str, built: Built, label: str, search: SearchConfig, text: Text, comet: ExternalFile | None
) -> tuple[Hypotheses, Scores]:
    decoding = decode.DecodeConfig(search=search, batch_tokens=flow.config.evaluation.batch_tokens)
    inputs = decode.DecodeInputs(built.system, text, built.tuned.get(label))
    hypotheses = flow.steps.add(decode.STAGE, step, inputs, decoding)
    scoring = stage_configs.score_config(flow.config, search)
    scored = score.ScoreInputs(hypotheses, text, comet, built.system if scoring.repetition else None)
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
