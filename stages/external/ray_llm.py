"""A language model on the GPUs of the cluster: the vLLM engines of `ray.data.llm` as a translator of texts. Importing this module
loads Ray."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import pyarrow as pa
import ray
from ray.exceptions import RayError

from stages.errors import DataError, FewstepError
from stages.external import ExternalConfig, RayLLMOptions
from stages.external.prompts import Answer, prompt, translation
from stages.workers import Resources
from stages.workers.ray_errors import explained

log = logging.getLogger("fewstep")

SHARED_CPUS = 0.1
"""CPUs that Ray reserves for each process beside the engines, which fills in prompts."""
SCHEMA = '{"type": "object", "properties": {"translation": {"type": "string"}}, "required": ["translation"]}'
"""Schema of answers in JSON, to which the engine keeps."""
ERROR = "__inference_error__"
"""Column in which Ray says why the engine does not take a text."""


class Sources(NamedTuple):
    """Sources of a shard that have no answer."""

    shard: int
    texts: Mapping[int, str]
    """Sources by their row."""


def answers(missing: Iterable[Sources], config: ExternalConfig, resources: Resources) -> Iterator[tuple[int, int, Answer]]:
    """Yield (shard, row, answer) as the engines write them, in any order.

    `resources.workers` engines run at once, each split over `resources.gpus` GPUs. Raises DataError if this process is not in a
    cluster or vllm is not installed there, TransientError for lost machines, and StageError if an engine fails.
    """
    samples: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    try:
        _check_installed(resources)
        for found in _outputs(missing, config, resources):
            key = (found["shard"], found["row"])
            samples.setdefault(key, []).append(found)
            if len(samples[key]) == config.n_best:
                yield *key, _answer(samples.pop(key), config)
    except FewstepError:
        raise
    except RayError as error:
        raise explained(error) from error


def _check_installed(resources: Resources) -> None:
    if not ray.is_initialized():
        raise DataError("teacher.ray_llm: expected a run on Ray, got one in this process; leave --in-process out")
    (found,) = ray.get([ray.remote(num_cpus=0, num_gpus=resources.gpus, max_retries=3)(_vllm_of_node).remote()])
    if problem := found["problem"]:
        raise DataError(
            f"teacher.ray_llm: expected the package vllm on the workers, got none on node {found['node']} ({problem}); run: pip "
            "install 'ray[llm]' in the environment of every machine with GPUs"
        )


def _vllm_of_node() -> dict[str, str]:
    """Return the address of this node, and why vllm cannot be imported here; empty if it is installed."""
    problem = "" if find_spec("vllm") else "not installed"
    return {"node": ray.util.get_node_ip_address(), "problem": problem}


def _outputs(missing: Iterable[Sources], config: ExternalConfig, resources: Resources) -> Iterator[Mapping[str, Any]]:
    """Yield the samples of all sources, each a map with `shard`, `row`, `text` and `answer`, or with the column `ERROR`."""
    import ray.data  # here, since it takes seconds
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    ray.data.DataContext.get_current().enable_progress_bars = False
    options = _options(config)
    processor = build_processor(
        vLLMEngineProcessorConfig(
            model_source=options.model,
            engine_kwargs=_engine_arguments(options, resources),
            batch_size=options.batch_sentences,
            concurrency=(1, resources.workers or 1),
            should_continue_on_error=True,
            log_engine_metrics=False,
            chat_template_stage={"enabled": options.protocol == "chat", "num_cpus": SHARED_CPUS, "concurrency": 1},
            tokenize_stage=False,  # the engine does both
            detokenize_stage=False,
        ),
        preprocess=partial(_request, config),
        postprocess=_sample,
        preprocess_map_kwargs={"num_cpus": SHARED_CPUS},
        postprocess_map_kwargs={"num_cpus": SHARED_CPUS},
    )
    blocks = [ray.put(_table(sources, config.n_best)) for sources in missing]
    if blocks:
        yield from processor(ray.data.from_arrow_refs(blocks)).iter_rows()


def _options(config: ExternalConfig) -> RayLLMOptions:
    assert config.ray_llm is not None
    return config.ray_llm


def _engine_arguments(options: RayLLMOptions, resources: Resources) -> dict[str, Any]:
    """Return the arguments of vLLM's engine, which is split over the GPUs of a worker."""
    stages = int(options.engine.get("pipeline_parallel_size", 1))
    return {"tensor_parallel_size": max(1, int(resources.gpus) // stages), **options.engine}


def _table(sources: Sources, samples: int) -> pa.Table:
    """Return a row for each answer that a shard needs."""
    rows = [(row, text, sample) for row, text in sources.texts.items() for sample in range(samples)]
    columns = list(zip(*rows, strict=True))
    names = {"row": pa.int64(), "text": pa.string(), "sample": pa.int64()}
    table = {name: pa.array(column, kind) for (name, kind), column in zip(names.items(), columns, strict=True)}
    return pa.table({"shard": pa.array([sources.shard] * len(rows), pa.int64()), **table})


def _request(config: ExternalConfig, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request for a row, in the columns that Ray's processor of vLLM reads."""
    options = _options(config)
    sampling: dict[str, Any] = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
        "seed": row["sample"],  # samples of a source differ, and are equal when it is asked again
    }
    if options.output == "json":
        sampling["structured_outputs"] = {"json": SCHEMA}
    asked = prompt(config, row["text"])
    content = {"messages": [{"role": "user", "content": asked}]} if options.protocol == "chat" else {"prompt": asked}
    return {**content, "sampling_params": sampling}


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an output that an answer needs."""
    return {
        "shard": row["shard"],
        "row": row["row"],
        "answer": row["generated_text"],
        "num_input_tokens": row["num_input_tokens"],
        "num_generated_tokens": row["num_generated_tokens"],
    }


def _answer(samples: Sequence[Mapping[str, Any]], config: ExternalConfig) -> Answer:
    """Return the samples of a source as one answer, with a problem if the engine took none."""
    taken = [sample for sample in samples if not sample.get(ERROR)]
    if not taken:
        return Answer([], 0, 0, str(samples[0][ERROR]))
    outputs: list[str | None] = [sample["answer"] for sample in taken]
    if _options(config).output == "json":
        outputs = [output and translation(output) for output in outputs]
    prompts, answered = (sum(int(sample[name]) for sample in taken) for name in ("num_input_tokens", "num_generated_tokens"))
    cut = tuple(index for index, sample in enumerate(taken) if sample["num_generated_tokens"] >= _options(config).max_tokens)
    return Answer(outputs, prompts, answered, cut=cut)
