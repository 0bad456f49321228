"""Sentences that wait together are decoded together, in turn, and nobody suffers from the company."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fewstep.serve.batching import Backlog, Batcher, BusyError, Options
from fewstep.serve.metrics import Metrics
from fewstep.translation import Translation

GREEDY, WIDE = Options("greedy", 1), Options("wide", 2)


class Decoder:
    """A decoder that waits at each batch until it is let through."""

    def __init__(self, open_gate=False):
        self.batches = []
        self.gate = threading.Semaphore(10_000 if open_gate else 0)

    def __call__(self, lines, options):
        self.batches.append((list(lines), options))
        self.gate.acquire()
        if "bad" in lines:
            raise ValueError("bad")
        return [[Translation(line.upper(), 0.0, 1, {})] for line in lines]


def run(scenario, decoder, max_waiting=1000, max_batch=4):
    """Run `scenario(batcher, backlog)` beside the loop of a batcher."""

    async def main():
        metrics = Metrics()
        backlog = Backlog(max_waiting, metrics)
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher("system", decoder, executor, backlog, metrics, max_batch)
            loop = asyncio.create_task(batcher.run())
            try:
                return await asyncio.wait_for(scenario(batcher, backlog), 30)
            finally:
                decoder.gate.release(10_000)
                loop.cancel()

    return asyncio.run(main())


async def begun(decoder, count):
    while len(decoder.batches) < count:
        await asyncio.sleep(0.001)


def texts(answer):
    return [ranked[0].text for ranked in answer.outputs]


def test_requests_that_wait_are_decoded_together_and_a_short_one_passes_a_long_one():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        first = asyncio.create_task(batcher.translate(["a"], GREEDY))
        await begun(decoder, 1)
        long = asyncio.create_task(batcher.translate([f"l{index}" for index in range(7)], GREEDY))
        short = asyncio.create_task(batcher.translate(["s"], GREEDY))
        await asyncio.sleep(0.01)
        assert backlog.waiting == 9
        decoder.gate.release(2)
        answers = await first, await short
        assert not long.done()
        decoder.gate.release(2)
        return [*answers, await long, backlog.waiting]

    first, short, long, waiting = run(scenario, decoder)
    assert [lines for lines, _ in decoder.batches] == [["a"], ["l0", "s", "l1", "l2"], ["l3", "l4", "l5", "l6"]]
    assert (texts(first), texts(short)) == (["A"], ["S"])
    assert texts(long) == [f"L{index}" for index in range(7)], "the order of the request"
    assert (first.largest_batch, short.largest_batch, long.largest_batch) == (1, 4, 4)
    assert waiting == 0


def test_requests_with_other_options_wait_for_a_batch_of_their_own():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        first = asyncio.create_task(batcher.translate(["a"], GREEDY))
        await begun(decoder, 1)
        rest = [
            asyncio.create_task(batcher.translate([name], options)) for name, options in (("b", WIDE), ("c", GREEDY), ("d", WIDE))
        ]
        await asyncio.sleep(0.01)
        decoder.gate.release(3)
        return await asyncio.gather(first, *rest)

    assert [texts(answer) for answer in run(scenario, decoder)] == [["A"], ["B"], ["C"], ["D"]]
    assert decoder.batches == [(["a"], GREEDY), (["b", "d"], WIDE), (["c"], GREEDY)]


def test_a_long_request_does_not_hold_up_other_options():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        long = asyncio.create_task(batcher.translate([f"l{index}" for index in range(12)], GREEDY))
        await begun(decoder, 1)
        other = asyncio.create_task(batcher.translate(["o"], WIDE))
        await asyncio.sleep(0.01)
        decoder.gate.release(3)
        await other
        done = long.done()
        decoder.gate.release(1)
        await long
        return done

    assert run(scenario, decoder) is False


def test_a_failure_reaches_its_request_alone():
    decoder = Decoder(open_gate=True)

    async def scenario(batcher, backlog):
        requests = [["a"], ["bad", "c"], ["d"]]
        answers = await asyncio.gather(*(batcher.translate(lines, GREEDY) for lines in requests), return_exceptions=True)
        later = await batcher.translate(["e"], GREEDY)
        return answers, later, backlog.waiting

    (good, bad, other), later, waiting = run(scenario, decoder)
    assert (texts(good), texts(other), texts(later)) == (["A"], ["D"], ["E"])
    assert isinstance(bad, ValueError)
    assert waiting == 0


def test_a_request_that_is_given_up_is_not_decoded():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        first = asyncio.create_task(batcher.translate(["a"], GREEDY))
        await begun(decoder, 1)
        given_up = asyncio.create_task(batcher.translate(["b"] * 9, GREEDY))
        kept = asyncio.create_task(batcher.translate(["c"], GREEDY))
        await asyncio.sleep(0.01)
        given_up.cancel()
        await asyncio.sleep(0)
        assert backlog.waiting == 2
        decoder.gate.release(2)
        return await first, await kept

    run(scenario, decoder)
    assert [lines for lines, _ in decoder.batches] == [["a"], ["c"]]


def test_the_queue_has_an_end():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        accepted = asyncio.create_task(batcher.translate(["a"] * 3, GREEDY))
        await begun(decoder, 1)
        with pytest.raises(BusyError, match="3 sentences are waiting, and at most 4 may"):
            await batcher.translate(["b"] * 2, GREEDY)
        last = asyncio.create_task(batcher.translate(["c"], GREEDY))
        await asyncio.sleep(0.01)
        decoder.gate.release(9)
        return await accepted, await last

    accepted, last = run(scenario, decoder, max_waiting=4)
    assert (texts(accepted), texts(last)) == (["A"] * 3, ["C"])
