"""Decoding of many sentences: batches, streams, threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fewstep.__main__ as runtime
import pipeline.__main__ as application
from fewstep import BeamOptions, SlotRules, Transformer, TransformerShape, access, streams
from fewstep.commands import translate as of_runtime
from fewstep.decoding import DecodingMemoryError, batches, decode_batch, decode_sentences, prefetch
from fewstep.native import fewstep_native
from fewstep.translation import Hypothesis
from kernels import NgramModel
from pipeline.commands import translate as of_pipeline
from tests.fewstep.networks.test_transformer import arrays_for
from tests.processes import FAST_SECONDS

# ---- batches of sentences, read ahead of use


# ---- decoding


class Reversal:
    """A decoder that reverses its sources. A batch of more than `max_tokens` tokens does not fit into memory."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)

    def __init__(self, max_tokens: int = 10**9, error: type[BaseException] = torch.OutOfMemoryError) -> None:
        self.max_tokens, self.error = max_tokens, error
        self.prepared: list[list[list[int]]] = []
        self.decoded: list[list[list[int]]] = []
        self.threads: set[int] = set()

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> list[list[int]]:
        assert all(sources), "empty sources are not decoded"
        self.prepared.append([list(ids) for ids in sources])
        return self.prepared[-1]

    def decode(self, prepared: list[list[int]], search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
        self.threads.add(threading.get_ident())
        if sum(len(ids) + 1 for ids in prepared) > self.max_tokens:
            raise self.error("CUDA out of memory.\nmore lines")
        self.decoded.append(prepared)
        return [[Hypothesis([*ids[::-1], search], -1.0, 1)] for ids in prepared]

    def score(self, sources: Any, targets: Any) -> Any:
        raise NotImplementedError

    def problems(self, search: Any) -> Any:
        raise NotImplementedError


SOURCES = st.lists(st.lists(st.integers(7, 99), max_size=12), max_size=20)


@given(SOURCES, st.integers(1, 40), st.integers(1, 3), st.integers(13, 60))
def test_results_are_in_the_order_of_the_sources_for_any_batches(
    sources: list[list[int]], budget: int, in_flight: int, memory: int
) -> None:
    decoder = Reversal(memory)
    found = decode_sentences(decoder, sources, 5, batch_tokens=budget, in_flight=in_flight)
    assert [ranked[0].ids for ranked in found] == [[*ids[::-1], 5] if ids else [] for ids in sources]
    assert all(ranked[0].steps == 0 for ids, ranked in zip(sources, found, strict=True) if not ids)
    for batch in decoder.decoded:
        assert len(batch) == 1 or len(batch) * (max(map(len, batch)) + 1) <= budget


@given(st.lists(st.integers(0, 40)), st.integers(1, 100))
def test_batches_hold_every_sentence_once_within_the_budget(lengths: list[int], budget: int) -> None:
    made = batches(lengths, budget)
    assert sorted(index for batch in made for index in batch) == [index for index, length in enumerate(lengths) if length]
    for batch in made:
        assert len(batch) == 1 or len(batch) * (max(lengths[index] for index in batch) + 1) <= budget


def test_a_batch_is_prepared_while_the_one_before_is_decoded() -> None:
    second = threading.Event()

    class Waiting(Reversal):
        """Decodes the first batch only once the second one is being prepared."""

        memory_errors = (torch.OutOfMemoryError, MemoryError)

        def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> list[list[int]]:
            if self.prepared:
                second.set()
            return super().prepare(sources, search)

        def decode(self, prepared: list[list[int]], search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
            assert second.wait(timeout=FAST_SECONDS)
            return super().decode(prepared, search)

    decoder = Waiting()
    decode_sentences(decoder, [[7]] * 5, 5, batch_tokens=2)
    assert len(decoder.prepared) == 5
    assert decoder.threads == {threading.get_ident()}


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_a_batch_that_does_not_fit_is_decoded_in_halves(error: type[BaseException]) -> None:
    decoder, sources = Reversal(25, error), [[7] * length for length in (3, 9, 4, 11, 8, 2, 5)]
    found = decode_batch(decoder, sources, 5)
    assert [ranked[0].ids[:-1] for ranked in found] == sources
    assert len(decoder.decoded) > 1
    with pytest.raises(DecodingMemoryError, match=r"one source of 40 tokens: CUDA out of memory\.; reduce beam_size"):
        decode_batch(decoder, [[7], [7] * 40], 5)


def test_other_errors_are_not_caught() -> None:
    decoder = Reversal(3, ValueError)
    with pytest.raises(ValueError, match="CUDA"):
        decode_batch(decoder, [[7], [7]], 5)
    assert len(decoder.prepared) == 1


# ---- reading ahead


def test_items_come_in_their_order_with_what_was_made_of_them():
    assert list(prefetch(lambda item: item * 2, [3, 1, 2])) == [(3, 6), (1, 2), (2, 4)]
    assert list(prefetch(lambda item: item * 2, [])) == []


def test_the_next_item_is_prepared_before_this_one_is_asked_to_end():
    """The caller waits for the second item while it has the first, which would never end without prefetching."""
    prepared = [threading.Event() for _ in range(3)]
    turns = prefetch(lambda item: prepared[item].set(), [0, 1, 2])
    next(turns)
    assert prepared[1].wait(FAST_SECONDS)
    assert not prepared[2].is_set()
    next(turns)
    assert prepared[2].wait(FAST_SECONDS)


def test_one_item_needs_no_thread():
    (made,) = prefetch(lambda item: threading.current_thread(), [1])
    assert made[1] is threading.main_thread()


def test_what_goes_wrong_is_raised_in_its_turn():
    turns = prefetch(lambda item: 1 // item, [1, 0, 2])
    assert next(turns) == (1, 1)
    with pytest.raises(ZeroDivisionError):
        next(turns)


# ---- lines that would fill the memory are refused by both programs that translate, after the lines before them


LINE = 100_000_000


class Upper:
    """A system that returns lines in upper case."""

    default_search = "beam"

    def translate(self, lines: Sequence[str], search: Any = None, **options: Any) -> list[str]:
        return [line.upper() for line in lines]


class Feeder(threading.Thread):
    """Writes two lines and one of 100 MB into a named pipe, until the reader closes it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        os.mkfifo(path)
        self.path = path
        self.taken = 0
        """Bytes that the reader, or the pipe, has taken."""

    def run(self) -> None:
        with suppress(BrokenPipeError), self.path.open("wb", buffering=0) as pipe:
            pipe.write(b"a\nb\n")
            while self.taken < LINE:
                self.taken += pipe.write(b"x" * 65536)
            pipe.write(b"\nc\n")


@pytest.mark.parametrize("more", [[], ["--format", "txt"]], ids=["lines", "document"])
def test_a_pipe_that_is_fed_late_is_waited_for_with_a_word(
    tmp_path: Path, more: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A command that opened the pipe of nobody hung without a word."""
    monkeypatch.setattr(access, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(of_runtime, "_loaded", lambda *_: Upper())
    monkeypatch.setattr(of_runtime, "document_translator", lambda *_: bytes.upper)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    fed = threading.Event()

    def feed() -> None:
        while "still waiting" not in caplog.text:
            threading.Event().wait(0.01)
        fed.set()
        pipe.write_text("a\nb\n")

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert runtime.main(["translate", str(tmp_path), "--input", str(pipe), "--output", str(tmp_path / "out"), *more]) == 0
    feeder.join()
    assert fed.is_set()
    assert f"{pipe}: still waiting for its text" in caplog.text
    assert (tmp_path / "out").read_text() == "A\nB\n"


@pytest.mark.parametrize("main", [runtime.main, application.main], ids=["runtime", "pipeline"])
def test_a_line_of_100_mb_is_refused_while_it_arrives(
    tmp_path: Path,
    main: Callable[[Sequence[str]], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(of_runtime, "_loaded", lambda *_: Upper())
    monkeypatch.setattr(of_pipeline, "_loaded", lambda *_: Upper())
    (tmp_path / "system.json").write_text("{}")
    feeder = Feeder(tmp_path / "pipe")
    feeder.start()
    code = main(["translate", str(tmp_path), "--input", str(tmp_path / "pipe"), "--output", str(tmp_path / "out")])
    feeder.join()
    assert code == 2
    assert "input, line 3: expected at most 1,048,576 bytes, got a longer line; split the line" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.part").read_text() == "A\nB\n"
    assert feeder.taken < 4 * streams.MAX_LINE_BYTES


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000])
@pytest.mark.parametrize("main", [runtime.main, application.main], ids=["runtime", "pipeline"])
def test_names_that_no_file_can_have_are_refused(
    tmp_path: Path, main: Callable[[Sequence[str]], int], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("a\n")
    assert main(["translate", name]) == 2
    assert main(["translate", str(tmp_path), "--input", name]) == 2
    assert "Traceback" not in capsys.readouterr().err


# ---- threads that cannot be started are an error, tokens may be banned twice, and searches keep the models that they use


STACK_KIB = 1 << 20
"""Stack of a thread: so large that the limit of memory stops threads while there is memory for everything else."""

PROGRAM = """
import resource, sys
import numpy as np
from fewstep import BeamOptions, SlotRules, Transformer, TransformerShape
from kernels.symmetrize import symmetrize_arrays
from tests.fewstep.networks.test_transformer import arrays_for, run
shape = TransformerShape(encoder_layers=1, decoder_layers=1, width=64, feed_forward=512, heads=2, norm="pre")
transformer = Transformer(arrays_for(shape, 0, vocabulary=3000), shape=shape)
task = [[7, 8, 9]], [4], BeamOptions(beam_size=1), SlotRules(min_tokens=4)
expected = run(transformer, "greedy", *task)
starts, links = np.arange(1001), np.zeros(1000, np.int32)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (11 << 29), resource.RLIM_INFINITY))  # stacks of five threads, and half of one
def align():
    symmetrize_arrays(starts, links, starts, links, "union", threads=500)
for call in (lambda: run(transformer, "greedy", *task, threads=500), align):
    try:
        call()
        sys.exit("500 threads were started")
    except OSError as error:
        assert "threads: the system started" in str(error) and "use fewer threads" in str(error), error
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert run(transformer, "greedy", *task, threads=3) == expected
print("answered")
"""


def test_threads_that_cannot_be_started_are_an_error_and_no_deadlock() -> None:
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = ["sh", "-c", f'ulimit -s {STACK_KIB} && exec "$@"', "sh", sys.executable, "-c", PROGRAM]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "answered\n"), found.stderr


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("members", [1, 2])
def test_a_token_may_be_banned_twice(precision: str, members: int) -> None:
    """Its probability counted in the sum of a row only until the ban was lifted in the order of the bans."""
    shape = TransformerShape(encoder_layers=1, decoder_layers=1, width=16, feed_forward=16, heads=2, norm="pre")
    kind: Any = precision
    first, *others = (Transformer(arrays_for(shape, seed), shape=shape, precision=kind) for seed in range(members))
    for name, options in (("greedy", BeamOptions(beam_size=1)), ("beam_search", BeamOptions(beam_size=3, n_best=3))):
        once, twice = SlotRules(banned=(0, 1, 3, 9), min_tokens=3), SlotRules(banned=(9, 0, 1, 3, 9, 9, 0), min_tokens=3)
        search = getattr(first, name)
        found = [
            search(np.array([[7, 8, 5, 2]]), np.array([4]), np.array([6]), options=options, rules=rules, others=others)
            for rules in (once, twice)
        ]
        assert found[0] == found[1]


def test_a_beam_keeps_its_language_model() -> None:
    model = NgramModel.estimate([["a", "b"], ["b"]], 2, discount_fallback=(0.5, 1.0, 1.5))
    scorer = model.for_vocabulary(["a", "b", "</s>", "<pad>"]).native
    options: dict[str, Any] = {"beams": 2, "step_size": 2, "per_direction": False, "selection": "exact", "eos": 2, "pad": 3}
    options |= {"n_best": 1, "alpha": 0.6, "gnmt": False, "beam_threshold": 1e9, "ngram_weight": 0.5, "right_to_left": [False]}
    options["ngram"] = scorer
    before = sys.getrefcount(scorer)
    beam = fewstep_native.make_beam([4], **options)
    assert sys.getrefcount(scorer) == before + 1
    del beam
    assert sys.getrefcount(scorer) == before
    assert fewstep_native.make_beam([4], **{**options, "ngram": None, "ngram_weight": 0.0}) is not None
