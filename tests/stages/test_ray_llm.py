"""A language model on the GPUs of the cluster: Ray's processor of vLLM runs as it is, with a stand-in for the package vllm."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ray

from stages.errors import DataError
from stages.external import ExternalConfig, ExternalInputs, RayLLMOptions, ray_llm
from stages.external.prompts import Answer
from stages.external.ray_llm import Sources, answers
from stages.external.run import run
from stages.shared.target_filters import TargetFilters
from stages.workers import Resources
from tests.stages.steps import context_in, rows_of, write_text

LINES = ("one dog runs", "two dogs run", "", "three cats", "four birds", "too long")

VLLM = '''
"""A stand-in for vLLM: the engine writes the last line of its prompt in capitals, and the seed of the request."""

import json, os, time
from types import SimpleNamespace


class AsyncEngineArgs:
    def __init__(self, **arguments):
        with open(os.environ["ENGINES_OF_TEST"], "a") as file:
            print(json.dumps(arguments), file=file)

    def create_engine_config(self):
        return SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_seqs=4), parallel_config=SimpleNamespace(pipeline_parallel_size=1)
        )


class SamplingParams:
    def __init__(self, **values):
        self.values = values


class RequestOutput:
    finished, metrics, prompt_logprobs = True, None, None


class PoolingRequestOutput:
    """Never made."""


outputs = SimpleNamespace(RequestOutput=RequestOutput, PoolingRequestOutput=PoolingRequestOutput)
sampling_params = SimpleNamespace(StructuredOutputsParams=lambda **values: values)


class AsyncLLMEngine:
    @classmethod
    def from_engine_args(cls, arguments, stat_loggers=None):
        return cls()

    async def generate(self, request_id, prompt, sampling_params, lora_request):
        text = prompt["prompt"]
        values = {**sampling_params.values, "text": text}
        with open(os.environ["ENGINES_OF_TEST"] + ".asked", "a") as file:
            print(json.dumps(values), file=file)
        if "too long" in text:
            raise ValueError("the prompt is longer than the model")
        source = text.removesuffix("<answer>").split("\\n")[-1]
        found = RequestOutput()
        found.prompt_token_ids = list(range(len(text.split())))
        found.outputs = [SimpleNamespace(text=f"{source.upper()} {values['seed']}", token_ids=[1, 2, 3], logprobs=None)]
        yield found

    async def do_log_stats(self):
        pass
'''


def config(**options: Any) -> ExternalConfig:
    own = {name: options.pop(name) for name in ("n_best", "choose", "filters") if name in options}
    found = RayLLMOptions(**{"model": "none", "batch_sentences": 2, **options})
    return ExternalConfig(ray_llm=found, source_language="en", target_language="de", shards_per_process=1, **own)


class Engines:
    """The answers of engines, in an order of its own; it ends after a number of answers."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.lives = 10**9

    def __call__(self, missing: Any, config: ExternalConfig, resources: Resources) -> Any:
        pairs = [(found.shard, row, text) for found in missing for row, text in found.texts.items()]
        for shard, row, text in pairs[::-1]:
            if self.lives == 0:
                raise KeyboardInterrupt
            self.lives -= 1
            self.asked[text] += 1
            yield shard, row, Answer([], 0, 0, "too long") if text == "too long" else Answer([text.upper()], 3, 2)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    found = Engines()
    monkeypatch.setattr(ray_llm, "answers", found)
    return found


def counts(directory: Path) -> dict[str, int]:
    return {name: number for name, number in json.loads((directory / "distill.json").read_text()).items() if number}


def test_nothing_is_asked_twice_after_a_kill(engines: Engines, tmp_path: Path) -> None:
    inputs = ExternalInputs(write_text(tmp_path / "text", [(line, "x") for line in LINES], 2), ())
    context = context_in(tmp_path / "external.partial")
    for lives in (1, 2):
        engines.lives = lives
        with pytest.raises(KeyboardInterrupt):
            run(inputs, config(), context)
    engines.lives = 10**9
    run(inputs, config(), context)
    assert engines.asked == Counter(line for line in LINES if line)
    assert counts(context.directory) == {"rows": 6, "kept": 4, "empty": 1, "rejected": 1}
    targets = {row["id"]: row["target"] for row in rows_of(context.directory)}
    assert targets == {number: LINES[number].upper() for number in (0, 1, 3, 4)}
    # Another choice of targets asks for nothing, another engine for everything.
    other = context_in(tmp_path / "other.partial", shard_cache=context.shard_cache)
    run(inputs, config(filters=TargetFilters()), other)
    assert sum(engines.asked.values()) == 5
    run(inputs, config(engine={"quantization": "fp8"}), context_in(tmp_path / "more.partial", shard_cache=context.shard_cache))
    assert sum(engines.asked.values()) == 10


def test_a_model_that_takes_no_source_of_a_shard_is_an_error(engines: Engines, tmp_path: Path) -> None:
    inputs = ExternalInputs(write_text(tmp_path / "text", [("too long", "x"), ("", "y")], 2), ())
    with pytest.raises(DataError, match=r"teacher\.ray_llm: expected translations, got for all 1 sources of a shard: too long"):
        run(inputs, config(), context_in(tmp_path / "external.partial"))


def test_a_run_without_ray_is_refused() -> None:
    with pytest.raises(DataError, match=r"teacher\.ray_llm: expected a run on Ray, got one in this process"):
        list(answers([Sources(0, {0: "one"})], config(), Resources(workers=1, gpus=1)))


@pytest.mark.slow
def test_the_processor_of_ray_runs_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model, unk_token="[UNK]")
    tokenizer.chat_template = (
        "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
    )
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model/config.json").write_text('{"model_type": "llama"}')
    made = tmp_path / "engines.jsonl"
    variables = {"ENGINES_OF_TEST": str(made), "PYTHONPATH": f"{tmp_path / 'packages'}:{Path(__file__).parents[2]}"}
    ray.init(
        address="local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20,
        runtime_env={"env_vars": variables},
    )  # fmt: skip
    try:
        inputs = ExternalInputs(write_text(tmp_path / "text", [(line, "x") for line in LINES], 2), ())
        resources = Resources(workers=1, cpus=1, gpus=1)
        context = context_in(tmp_path / "external.partial", resources=resources)
        options = {"model": str(tmp_path / "model"), "temperature": 0.5, "n_best": 2, "engine": {"max_model_len": 99}}
        with pytest.raises(
            DataError, match=r"expected the package vllm on the workers, got none on node .*pip install 'ray\[llm\]'"
        ):
            run(inputs, config(**options), context)
        package = tmp_path / "packages/vllm"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(VLLM)
        (package / "inputs.py").write_text("TextPrompt = TokensPrompt = dict\n")
        run(inputs, config(**options), context)
    finally:
        ray.shutdown()
    assert counts(context.directory) == {"rows": 6, "kept": 4, "empty": 1, "rejected": 1}
    targets = {row["id"]: row["target"] for row in rows_of(context.directory)}
    assert targets == {number: f"{LINES[number].upper()} 0" for number in (0, 1, 3, 4)}
    asked = [json.loads(line) for line in Path(f"{made}.asked").read_text().splitlines()]
    assert sorted(Counter((found["text"].split("\n")[-1], found["seed"]) for found in asked).items()) == sorted(
        ((f"{line}<answer>", seed), 1) for line in LINES if line for seed in (0, 1)
    )
    assert asked[0]["text"].startswith("<user>Translate the following text from English into German.")
    assert {name: asked[0][name] for name in ("temperature", "top_p", "max_tokens")} == {
        "temperature": 0.5, "top_p": 1.0, "max_tokens": 512,
    }  # fmt: skip
    (engine,) = [json.loads(line) for line in made.read_text().splitlines()]
    assert {name: engine[name] for name in ("model", "tensor_parallel_size", "max_model_len", "distributed_executor_backend")} == {
        "model": str(tmp_path / "model"), "tensor_parallel_size": 1, "max_model_len": 99, "distributed_executor_backend": "uni",
    }  # fmt: skip
    journals = [json.loads(line) for path in context.shard_cache.glob("*.answers") for line in path.read_text().splitlines()]
    kept = {tuple(outputs): (problem, answers) for _, outputs, _, answers, problem, _ in journals}
    assert kept[("ONE DOG RUNS 0", "ONE DOG RUNS 1")] == ("", 6)
    assert "the prompt is longer than the model" in kept[()][0]
