"""The steps that evaluate systems: they decode, score and time them, and analyse them where the config asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fewstep.config.search import SearchConfig
from models.training.recipe import TrainedSystem
from pipeline.config.systems import analysis_of
from pipeline.plan import stage_configs
from pipeline.plan.flow import Built, Distilled, Flow, Texts
from pipeline.plan.text_files import local_file, one_file
from stages import benchmark, contrastive, dag_analysis, decode, lattice_analysis, likelihood, parallel_analysis, report, score
from stages.artifacts import Artifact, ExternalFile, Hypotheses, Scores, Text, Timings
from stages.errors import DataError
from stages.stage import Stage


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


Analysed = dict[str, dict[str, Artifact]]
"""Artifacts of an analysis by text (`train` and test sets; empty for one that reads none) and system."""


def analyse(flow: Flow, texts: Texts, systems: dict[str, Built], distilled: Distilled | None = None) -> dict[str, Analysed]:
    """Plan the analyses that the config asks for; by stage. Slots are analysed on the validation text with the targets of
    `distilled` as well, if it is given."""
    found = {stage.name: plan(flow, texts, systems) for stage, plan in ANALYSES}
    if distilled is not None and flow.config.evaluation.parallel_analysis:
        found[parallel_analysis.STAGE.name] |= analyse_slots(flow, {"validation/distilled": distilled.text}, systems)
    return {stage: analysed for stage, analysed in found.items() if analysed}


def measure_likelihood(flow: Flow, texts: Texts, systems: dict[str, Built]) -> Analysed:
    """Measure the likelihood of the references under each system, if the config asks for it; by test set and system."""
    if not flow.config.evaluation.likelihood:
        return {}
    config = likelihood.LikelihoodConfig()
    return {
        test: {
            name: flow.steps.add(likelihood.STAGE, f"{name}:{test}", likelihood.LikelihoodInputs(built.system, text), config)
            for name, built in systems.items()
        }
        for test, text in texts.tests.items()
    }


def compare_minimal_pairs(flow: Flow, texts: Texts, systems: dict[str, Built]) -> Analysed:
    """Score contrastive pairs, which are no text of the run, with each system, if the config asks for it."""
    evaluation = flow.config.evaluation
    if not evaluation.contrastive and evaluation.contrastive_pairs is None:
        return {}
    config = stage_configs.contrastive_config(flow.config)
    named = evaluation.contrastive_pairs
    pairs = None if named is None else one_file("evaluation.contrastive_pairs", named, flow.access)
    inputs = {name: contrastive.ContrastiveInputs(built.system, pairs) for name, built in systems.items()}
    return {"": {name: flow.steps.add(contrastive.STAGE, name, inputs[name], config) for name in systems}}


def analyse_dags(flow: Flow, texts: Texts, systems: dict[str, Built]) -> Analysed:
    """Analyse the graphs of Directed Acyclic Transformers, if the config asks for it; by text and system.

    The graphs of a number of test sentences are drawn, those of the training text are not.
    """
    drawn = flow.config.evaluation.dag_analysis
    if not drawn:
        return {}
    parts = {"train": (texts.training, 0), **{test: (text, drawn) for test, text in texts.tests.items()}}
    names = _analysed(flow, "dag_analysis", systems)
    return {
        part: {name: _analyse_dag(flow, f"{name}:{part}", name, systems[name], text, sentences) for name in names}
        for part, (text, sentences) in parts.items()
    }


def _analyse_dag(flow: Flow, step: str, name: str, built: Built, text: Text, drawn: int) -> Artifact:
    settings = flow.config.systems[name]
    early = built.trained if isinstance(settings, TrainedSystem) and settings.training.keep_first else None
    inputs = dag_analysis.DagAnalysisInputs(built.system, text, early)
    return flow.steps.add(dag_analysis.STAGE, step, inputs, dag_analysis.DagAnalysisConfig(sentences=drawn))


def analyse_all_slots(flow: Flow, texts: Texts, systems: dict[str, Built]) -> Analysed:
    """Analyse the slots of systems that write all tokens at once, if the config asks for it; by text and system."""
    if not flow.config.evaluation.parallel_analysis:
        return {}
    return analyse_slots(flow, {"train": texts.training, **texts.tests}, systems)


def analyse_slots(flow: Flow, texts: dict[str, Text], systems: dict[str, Built]) -> Analysed:
    """Analyse the slots of systems on the targets of texts; by text and system."""
    config = parallel_analysis.ParallelAnalysisConfig()
    names = _analysed(flow, "parallel_analysis", systems)
    return {
        part: {
            name: flow.steps.add(
                parallel_analysis.STAGE,
                f"{name}:{part}",
                parallel_analysis.ParallelAnalysisInputs(systems[name].system, text),
                config,
            )
            for name in names
        }
        for part, text in texts.items()
    }


def analyse_lattices(flow: Flow, texts: Texts, systems: dict[str, Built]) -> Analysed:
    """Analyse the lattices of sequence-to-lattice systems, if the config asks for it; by test set and system."""
    timed = flow.config.evaluation.lattice_analysis
    if not timed:
        return {}
    names = _analysed(flow, "lattice_analysis", systems)
    return {
        test: {name: _analyse_lattice(flow, name, systems[name], test, text, timed) for name in names}
        for test, text in texts.tests.items()
    }


def _analyse_lattice(flow: Flow, name: str, built: Built, test: str, text: Text, timed: int) -> Artifact:
    config = lattice_analysis.LatticeAnalysisConfig(name=f"{name} on {test}", timed=timed)
    inputs = lattice_analysis.LatticeAnalysisInputs(built.system, text)
    return flow.steps.add(lattice_analysis.STAGE, f"{name}:{test}", inputs, config)


def _analysed(flow: Flow, analysis: str, systems: dict[str, Built]) -> list[str]:
    """Return the names of the systems that have this analysis. Raises DataError without such a system: networks of finished ones
    are known here alone."""
    asked = [name for name, settings in flow.config.systems.items() if analysis_of(settings) == analysis]
    names = [name for name in asked if systems[name].is_analysed]
    if not names:
        raise DataError(
            f"evaluation.{analysis}: expected a system whose network has this analysis, got {', '.join(asked)}, which have none; "
            f"remove evaluation.{analysis}"
        )
    return names


ANALYSES: tuple[tuple[Stage[Any, Any, Any], Callable[[Flow, Texts, dict[str, Built]], Analysed]], ...] = (
    (likelihood.STAGE, measure_likelihood),
    (contrastive.STAGE, compare_minimal_pairs),
    (dag_analysis.STAGE, analyse_dags),
    (parallel_analysis.STAGE, analyse_all_slots),
    (lattice_analysis.STAGE, analyse_lattices),
)
"""The stages of analyses with the functions that plan them, in the order of the report. The module `report` of the stage's folder
gives their tables and figures."""
