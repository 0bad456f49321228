"""The flow of the pipeline, from raw text to the report.

`build_plan` is the whole of it and can be read from top to bottom with the picture in the README. The functions that it
calls plan one or a few steps each: they take artifacts and return the artifacts that the steps will leave.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.schema import Pinned, RunConfig
from pipeline.config.systems import PRETRAINING, Distillation
from pipeline.plan import stage_configs
from pipeline.plan.counts import align_and_count, estimate_language_model
from pipeline.plan.evaluation import analyse, decode_and_score, measure_speed
from pipeline.plan.flow import Built, Distilled, Flow, Sources
from pipeline.plan.step import Builder, Plan
from pipeline.plan.systems import build_systems
from pipeline.plan.teachers import VALIDATION, back_translate, distill_texts, teacher_networks, train_teacher
from pipeline.plan.texts import encode_texts, import_teacher, read_texts, train_vocabulary
from pipeline.store.artifacts import Store
from stages import report
from stages.artifacts import Artifact, Links, Ngram, Tables, Trained


def build_plan(config: RunConfig, store: Store) -> Plan:
    """Return all steps of `config`. Files that it names by URL are downloaded unless the store holds them.

    Raises DataError for a file or pinned artifact that is missing or unsuitable, StageError for a server that cannot be reached.
    """
    flow = Flow(config, store, Builder(store.root))

    texts = read_texts(flow)
    imported = import_teacher(flow)
    vocab = train_vocabulary(flow, texts.training, imported)
    encoded, truncated = encode_texts(flow, texts, vocab)
    back_translated = back_translate(flow, encoded)
    encoded = replace(encoded, further=encoded.further | {"back_translation": back_translated})

    teacher_trainings = train_teacher(flow, encoded)
    teachers = (imported,) if imported else teacher_networks(flow, teacher_trainings, vocab)
    distilled = distill_texts(flow, encoded, teachers)
    learned = tuple(part.tokens for step, part in distilled.items() if step != VALIDATION)
    data = {"raw": (encoded.training, *back_translated), "distilled": learned}

    links, tables = align_and_count(flow, encoded, data, distilled.get(VALIDATION))
    language_model = estimate_language_model(flow, encoded)
    systems = build_systems(flow, Sources(encoded, data, teachers, tables, language_model))

    inputs = report.ReportInputs(
        corpus=texts.training,
        tests=texts.tests,
        trainings=teacher_trainings | _trainings(systems),
        evaluated=decode_and_score(flow, texts, systems),
        timings=measure_speed(flow, texts, systems),
        cut=truncated,
        counts=_counted_artifacts(config, distilled, links, tables, language_model, systems),
        analyses=analyse(flow, texts, systems, distilled.get(VALIDATION)),
        tuned={f"{name}/{search}": tuned for name, built in systems.items() for search, tuned in built.tuned.items()},
        imported=imported,
    )
    flow.steps.add(report.STAGE, "run", inputs, stage_configs.report_config(config))
    return flow.steps.plan()


def _trainings(systems: dict[str, Built]) -> dict[str, Trained]:
    """Return the trainings of systems, each after its pre-training, by name."""
    found: dict[str, Trained] = {}
    for name, built in systems.items():
        if built.pretrained:
            found[f"{name}/{PRETRAINING}"] = built.pretrained
        if built.trained:
            found[name] = built.trained
    return found


def _counted_artifacts(
    config: RunConfig,
    distilled: dict[str, Distilled],
    links: dict[str, Links],
    tables: dict[str, Tables],
    language_model: Ngram | None,
    systems: dict[str, Built],
) -> dict[str, Artifact]:
    """Return all artifacts whose counts the report lists, by step."""
    made = dict(distilled) if isinstance(config.distillation, Distillation) else {}
    made |= {step: part for built in systems.values() for step, part in built.distilled.items()}
    artifacts: dict[str, Artifact] = {f"distill:{step}": part.text for step, part in made.items()}
    for name in links:
        artifacts[f"align:{name}"] = links[name]
        if name in tables:
            artifacts[f"lattice:{name}"] = tables[name]
    if config.ngram is not None and language_model is not None:
        artifacts[f"ngram:{'pinned' if isinstance(config.ngram, Pinned) else config.ngram.side}"] = language_model
    return artifacts
