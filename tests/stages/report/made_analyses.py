"""A report with all optional analyses, from made results of each."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from stages.artifacts import Scores
from stages.context import StepContext
from stages.contrastive import Contrasted
from stages.dag_analysis import DagAnalysis
from stages.dag_analysis.drawing import Drawing, Vertex, draw
from stages.likelihood import Likelihood
from stages.parallel_analysis import ParallelAnalysis
from stages.report import STAGE, ReportInputs, SystemPair
from stages.score import ScoreConfig, ScoreInputs
from stages.score.run import run as score
from tests.stages.report.made_report import CONFIG, make_work


def make_analysed_report(root: Path, inputs: ReportInputs) -> StepContext:
    """Return the report of `inputs` with all optional analyses, made below `root`."""

    def likelihood(system: str, log_probability: float) -> Likelihood:
        context = make_work(root / f"likelihood.{system}")
        found = {"rows": 60, "left_out": {"over_long": 2}, "tokens": 1000, "log_probability": log_probability, "vocabulary": "ab12"}
        context.write_json(context.directory / "likelihood.json", {**found, "perplexity": math.exp(-log_probability / 1000)})
        return Likelihood(context.directory, f"likelihood-{system}")

    def contrasted(system: str, correct: list[int]) -> Contrasted:
        context = make_work(root / f"contrastive.{system}")
        bands = [{"distance": name, "pairs": 20, "correct": n} for name, n in zip(["1", "2", "3-4"], correct, strict=True)]
        counts = {"pairs": 60, "correct": sum(correct), "correct_by_mean": 30}
        types = [{"type": "subj_verb_agreement", **counts}, {"type": "compound", "pairs": 4, "correct": 3, "correct_by_mean": 3}]
        frequencies = [{"frequency": "3-5", "pairs": 8, "correct": 2, "correct_by_mean": 2}]
        found = {"pairs": 64, "left_out": 0, "correct": sum(correct) + 3, "correct_by_mean": 33, "bands": bands, "types": types}
        found |= {"distances": bands, "frequencies": frequencies}
        context.write_json(context.directory / "contrastive.json", found)
        return Contrasted(context.directory, f"contrastive-{system}")

    def dag_analysis(text: str, drawn: int) -> DagAnalysis:
        context = make_work(root / f"dag.{text}")
        one = {
            "sentences": 60,
            "impossible": 2,
            "aligned": 58,
            "tokens": 1000,
            "correct": 250,
            "correct_ends": 100,
            "spread": 3.456,
        }
        vertices = {"vertices": 400, "likely": 80, "confident": 100, "vague": 40, "joint": [[4] * 10] * 10}
        found = {**one, **vertices, "out_degrees": {"1": 30, "2": 90}}
        context.write_json(
            context.directory / "dag_analysis.json", {**found, "left_out": {}, "early": {**found, "correct": 50, "update": 1500}}
        )
        for number in range(drawn):
            drawing = Drawing([Vertex(0, 1.0, [("<s>", 1.0)]), Vertex(3, 1.0, [("</s>", 1.0)])], [(0, 3, 1.0)])
            context.write_text(context.records("figures", f"0{number}-dag.svg"), draw(drawing))
            context.write_json(context.records("figures", f"0{number}-dag.json"), {"caption": f"drawing {number} & more"})
        return DagAnalysis(context.directory, f"dag-{text}")

    def parallel_analysis() -> ParallelAnalysis:
        context = make_work(root / "slots")
        found = {"sentences": 60, "impossible": 2, "tokens": 800, "correct": 250.0, "choices": 3.456, "candidates": [1, 2]}
        recall = {"recall": [0.25, 0.5], "recall_predicted_length": [0.125, 0.375]}
        context.write_json(context.directory / "parallel_analysis.json", {**found, **recall, "left_out": {}})
        return ParallelAnalysis(context.directory, "slots")

    evaluated = []
    for item in inputs.evaluated:
        context = make_work(root / f"{item.system}.{item.search}")
        config = ScoreConfig(
            target_language="de",
            metrics=("bleu", "otem", "utem"),
            head_and_tail=True,
            long_sentences=5,
            length_bins=(12, 13),
        )
        score(ScoreInputs(item.hypotheses, inputs.tests["demo"]), config, context)
        if item.search == "greedy":
            found = {
                "samples": 3,
                "sentences": 60,
                "left_out": 0,
                "bleu_by_rank": [50, 40, 30],
                "bleu": 40.0,
                "pairwise_bleu": 71.5,
                "oracle_bleu": 61.25,
                "matched": {"references": 2.5, "bleu": 44.75, "covered": 1.5},
            }
            context.write_json(context.directory / "diversity.json", found)
            parts = {"tokens": (3, 400), "words": (2, 300), "reference_tokens": (5, 1250), "reference_words": (1, 1000)}
            repetition = {unit: {"repeated": part, "total": whole} for unit, (part, whole) in parts.items()}
            context.write_json(context.directory / "repetition.json", repetition)
        evaluated.append(replace(item, scores=Scores(context.directory, "again")))
    systems = {"autoregressive": -1200.0, "interleaved": -1300.0, "graph": -1250.0}
    asked = replace(
        inputs,
        evaluated=tuple(evaluated),
        analyses={
            "likelihood": {"demo": {system: likelihood(system, value) for system, value in systems.items()}},
            "contrastive": {
                "": {"autoregressive": contrasted("autoregressive", [20, 19, 11]), "graph": contrasted("graph", [18, 13, 9])}
            },
            "dag_analysis": {"train": {"graph": dag_analysis("train", 0)}, "demo": {"graph": dag_analysis("demo", 2)}},
            "parallel_analysis": {"demo": {"graph": parallel_analysis()}},
        },
    )
    pairs = {"l2r": SystemPair(parallel="interleaved", sequential="autoregressive", step_size=2)}
    STAGE.run(asked, replace(CONFIG, system_pairs=pairs), context := make_work(root / "out"))
    return context
