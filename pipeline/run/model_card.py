"""The card of a system that is passed on: what it is, its data with their licences, its scores, its speed, and how to run it.

The front matter is that of models on the Hugging Face Hub (https://huggingface.co/docs/hub/model-cards).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fewstep.text.escape import escaped
from pipeline.run.compare import Result, rows_of
from pipeline.run.origins import Provenance, provenance
from pipeline.run.run_directory import Run, all_runs
from pipeline.store.files import read_json
from pipeline.store.records import step_directory
from stages import benchmark, system
from stages.artifacts import RECORDS

CARD = "README.md"
SIZES = ("encoder_layers", "decoder_layers", "width")


def model_card(directory: Path, wheel: str) -> str:
    """Return the card of the system in `directory`, whose folder has the runtime as the file `wheel`.

    Scores and speed are those of the run of the store that made it, if the directory is in a store.
    """
    description = read_json(directory / "system.json")
    run = _run_of(directory)
    parts = [_heading(description), *_data(provenance(directory)), *_results(run, directory), *_usage(description, wheel)]
    return _front_matter(description) + "\n\n".join(parts) + "\n"


def _run_of(directory: Path) -> Run | None:
    """Return a run of the directory's store whose plan has the system; None for a directory that is in no store."""
    store = directory.resolve().parent.parent
    return next((run for run in all_runs(store) if _step_of(run, directory) is not None), None)


def _step_of(run: Run, directory: Path) -> str | None:
    fingerprint = directory.resolve().name
    found = (entry for entry in run.spec["plan"] if entry["stage"] == system.STAGE.name and entry["fingerprint"] == fingerprint)
    return next((str(entry["step"]) for entry in found), None)


def _front_matter(description: Mapping[str, Any]) -> str:
    sides = dict.fromkeys(str(description["languages"][side]) for side in ("source", "target"))
    values = {
        "language": list(sides),
        "library_name": "fewstep",
        "pipeline_tag": str(description["task"]),
        "tags": ["fewstep", str(description["family"])],
    }
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---\n\n"


def _heading(description: Mapping[str, Any]) -> str:
    source, target = (_text(description["languages"][side]) for side in ("source", "target"))
    task = f"translates from {source} to {target}" if description["task"] == "translation" else f"summarises text in {source}"
    network = description["network"]
    sizes = ", ".join(f"{name} {_text(network[name])}" for name in SIZES if name in network)
    searches = ", ".join(f"`{_text(label)}`" for label in description["searches"])
    return (
        f"# {_text(description['name'])}\n\nThis system {task}. It is a network of the family `{_text(description['family'])}` "
        f"({sizes}) in format {description['format']} of fewstep. Its searches are {searches}; `{_text(description['search'])}` is "
        "the default."
    )


def _data(found: Provenance) -> Iterator[str]:
    yield "## Data and licences"
    if found.files:
        rows = [(_text(file["from"]), _text(file["licence"])) for file in found.files]
        yield "It was made from these files:\n\n" + _table(("file", "licence"), rows)
    else:
        yield "No file from elsewhere is on record. Files of the author's machine that state no licence are not listed."
    if not found.complete:
        yield "The store lacked the manifests of some steps that made it, so that this list may be incomplete."
    yield "The author of the system has not stated a licence for it; `license` in the front matter of this file would."


def _results(run: Run | None, directory: Path) -> Iterator[str]:
    yield "## Scores and speed"
    step = _step_of(run, directory) if run else None
    if run is None or step is None:
        yield "None are on record here: the directory was exported without the run that made it."
        return
    name = step.partition(":")[2]
    own = [row for row in rows_of(run) if row.entry.partition("/")[0] == name]
    if not own:
        yield "None: the system was not evaluated."
        return
    metrics = list(dict.fromkeys(metric for row in own for metric in row.scores))
    rows = [(_text(row.test), _text(row.entry.partition("/")[2]), *(_score(row, metric) for metric in metrics)) for row in own]
    yield _table(("test set", "search", *metrics), rows)
    signatures = sorted({(metric, signature) for row in own for metric, signature in row.signatures.items() if signature})
    yield "\n".join(f"- {metric}: `{_text(signature)}`" for metric, signature in signatures)
    yield from _speed(run, name)


def _score(row: Result, metric: str) -> str:
    return f"{row.scores[metric]:.2f}" if metric in row.scores else ""


def _speed(run: Run, name: str) -> Iterator[str]:
    for entry in run.spec["plan"]:
        if entry["stage"] != benchmark.STAGE.name:
            continue
        record = read_json(step_directory(run.store, entry) / RECORDS / "benchmark.json")
        rows = [
            (
                _text(label.partition("/")[2]),
                f"{figures['latency_ms']['median']:.2f}",
                f"{figures['latency_ms']['p95']:.2f}",
                f"{figures['sentences_per_second']['median']:.1f}",
                f"{memory['peak']:,.0f}" if (memory := figures.get("memory_mib")) else "",
            )
            for label, figures in record.get("entries", {}).items()
            if label.partition("/")[0] == name
        ]
        if rows:
            machine = record["environment"]
            yield (
                f"Measured on {_text(entry['step'].rpartition(':')[2])}, {machine['threads']} threads of "
                f"{_text(machine['cpu'] if machine['device'] == 'cpu' else machine['device'])}:"
            )
            yield _table(("search", "ms a sentence (median)", "ms (95 %)", "sentences a second in batches", "MiB of memory"), rows)


def _usage(description: Mapping[str, Any], wheel: str) -> Iterator[str]:
    yield "## How to run it"
    yield (
        "No package index has the program that runs it; the wheel here is for the machines and the version of Python that its name "
        "states. `fewstep.load` and the commands compare all files with their checksums, and no code of the directory is run."
    )
    yield (
        f"```\npip install ./{wheel}\necho 'A sentence.' | python -m fewstep translate .\n"
        "pip install fastapi h11 prometheus-client py3langid uvicorn && python -m fewstep serve .\n```"
    )
    yield (
        '```python\nimport fewstep\n\nsystem = fewstep.load(".")  # or a URL of this directory, s3://BUCKET/FOLDER, hf:ORG/NAME\n'
        'print(system.translate(["A sentence."]))\n```'
    )
    yield (
        "MLflow serves the directory as well. Unlike the above, this runs the code in `served_system.py`:\n\n"
        "```\nmlflow models serve -m . --env-manager local\n"
        """curl http://127.0.0.1:5000/invocations -H 'content-type: application/json' \\\n"""
        """    -d '{"dataframe_records": [{"source": "A sentence."}]}'\n```"""
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: object) -> str:
    """Return foreign text without the characters that are mark-up in a card."""
    return "".join(f"&#{ord(letter)};" if letter in "<>|`" else letter for letter in escaped(str(value))).replace("\n", " ")
