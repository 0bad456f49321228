import dataclasses
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewstep import DagNetwork, DagRules, TransformerShape
from fewstep.networks.arrays import expected_arrays
from kernels.reference.dag_network import DagReference
from tests.kernels.dag_graphs import banded

NEAR = 1e-4
"""A margin below which float32 may choose otherwise than float64."""
RULES = DagRules()
SHAPE = TransformerShape(encoder_layers=1, decoder_layers=2, width=32, feed_forward=9, heads=2, norm="pre", activation="gelu")


def arrays_for(shape, seed, *, vocabulary=13, sources=None, positions=9, slots=40, classes=None):
    """Random, with sharp outputs, so that close calls are rare."""
    draw = np.random.default_rng(seed)
    rows = {"target_embedding": vocabulary, "source_embedding": sources, "source_positions": positions, "slot_codes": slots}
    wanted = dict(expected_arrays(shape, sources is not None))
    wanted |= {"links": (2 * shape.width + shape.heads, shape.width), "link_codes": (slots, 2 * shape.width + shape.heads)}
    if classes is not None:
        wanted["lengths"] = (classes, shape.width)
    found = {}
    for name, size in wanted.items():
        size = (rows[name], size[1]) if name in rows else size
        large = len(size) == 1 or name in rows or name == "link_codes"
        values = draw.standard_normal(size, dtype=np.float32) * (1.0 if large else size[-1] ** -0.5)
        found[name] = values + 1.0 if name.endswith("norm.weight") else values
    return found


@st.composite
def problems(draw):
    heads = draw(st.sampled_from([1, 2, 3]))
    shape = TransformerShape(
        encoder_layers=draw(st.integers(0, 2)),
        decoder_layers=draw(st.integers(1, 2)),
        width=heads * draw(st.sampled_from([2, 5, 19, 32])),
        feed_forward=draw(st.sampled_from([1, 5, 33])),
        heads=heads,
        norm=draw(st.sampled_from(["pre", "post"])),
        activation=draw(st.sampled_from(["relu", "gelu"])),
    )
    classes = draw(st.sampled_from([None, 7]))
    arrays = arrays_for(shape, draw(st.integers(0, 2**32)), sources=draw(st.sampled_from([None, 17])), classes=classes)
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    sizes = draw(st.lists(st.integers(2, 40), min_size=classes or len(lengths), max_size=classes or len(lengths)))
    sources = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 13, (len(lengths), 9))
    return shape, arrays, sources, np.array(lengths), np.array(sizes)


@given(problem=problems(), token_weight=st.sampled_from([0.0, 0.5, 1.0]), threads=st.sampled_from([1, 2]))
def test_is_the_reference(problem, token_weight, threads):
    shape, arrays, sources, lengths, sizes = problem
    network, slow = DagNetwork(arrays, shape=shape), DagReference(arrays, shape=shape)
    found = network.scores(sources, lengths, sizes, tokens=3, rules=RULES, threads=threads)
    paths = network.follow(sources, lengths, sizes, token_weight=token_weight, rules=RULES, threads=threads)
    for row, (source, length) in enumerate(zip(sources, lengths, strict=True)):
        size = found.lengths[row]
        assert size == sizes[slow.length(source[:length]) if "lengths" in arrays else row]
        states = slow.states(source[:length], size, RULES)
        log_probs = slow.token_log_probs(states, RULES)
        wanted = banded(torch.from_numpy(slow.transitions(states))).numpy()
        np.testing.assert_allclose(found.transitions[row, :size, : size - 1], wanted, rtol=1e-3, atol=2e-3)
        assert (found.transitions[row, size:] == -np.inf).all()
        assert (found.transitions[row, :, size - 1 :] == -np.inf).all()
        best = np.sort(log_probs, axis=1)[:, :-4:-1]
        np.testing.assert_allclose(found.log_probs[row, :size], best, rtol=1e-3, atol=2e-3)
        possible = np.isfinite(best)
        chosen = np.take_along_axis(log_probs, found.ids[row, :size], 1)
        np.testing.assert_allclose(chosen[possible], best[possible], rtol=1e-3, atol=2e-3)
        expected, margin = slow.follow(source[:length], size, token_weight=token_weight, rules=RULES)
        if margin > 20 * NEAR:
            assert paths[row].ids == expected.ids
            assert paths[row].score == pytest.approx(expected.score, rel=1e-3, abs=1e-2)


def test_a_sentence_has_the_same_bits_alone_and_in_company():
    arrays = arrays_for(SHAPE, 1)
    network = DagNetwork(arrays, shape=SHAPE)
    draw = np.random.default_rng(1)
    sources, lengths, sizes = draw.integers(0, 13, (21, 9)), draw.integers(1, 10, 21), draw.integers(2, 41, 21)
    together = network.scores(sources, lengths, sizes, tokens=4, rules=RULES, threads=2)
    for row, threads in itertools.product(range(21), (1, 2, 3)):  # of one sentence, threads have some vertices each
        one = slice(row, row + 1)
        alone = network.scores(sources[one], lengths[one], sizes[one], tokens=4, rules=RULES, threads=threads)
        size = sizes[row]
        assert alone.lengths[0] == size
        assert np.array_equal(alone.transitions[0], together.transitions[row, :size, : size - 1])
        assert np.array_equal(alone.log_probs[0], together.log_probs[row, :size])
        assert np.array_equal(alone.ids[0], together.ids[row, :size])


def test_callers_do_not_get_into_each_others_way():
    """Threads that wait from one call to the next are those of one caller."""
    network = DagNetwork(arrays_for(SHAPE, 1), shape=SHAPE)
    sources = np.random.default_rng(1).integers(0, 13, (40, 9))

    def path(row):
        one, length, size = sources[row : row + 1], np.array([9]), np.array([40])
        return network.follow(one, length, size, token_weight=0.5, rules=RULES, threads=2 + row % 2)

    alone = [path(row) for row in range(40)]
    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(path, range(40))) == alone


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent():
    network = DagNetwork(arrays_for(SHAPE, 1), shape=SHAPE)
    sources = np.random.default_rng(1).integers(0, 13, (1, 9))

    def path():
        return network.follow(sources, np.array([9]), np.array([40]), token_weight=0.5, rules=RULES, threads=2)

    before = path()
    if (child := os.fork()) == 0:
        os._exit(0 if path() == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@given(
    problem=problems(),
    token_weight=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    precision=st.sampled_from(["float32", "bfloat16", "int8"]),
    threads=st.sampled_from([1, 2]),
)
def test_a_path_is_the_same_as_in_the_whole_graph(problem, token_weight, precision, threads):
    """Only words that may matter are ranked: path and score are, to the bit, those of a graph that is ranked as a whole."""
    shape, arrays, sources, lengths, sizes = problem
    network = DagNetwork(arrays, shape=shape, precision=precision)
    graphs = network.scores(sources, lengths, sizes, tokens=1, rules=RULES)
    paths = network.follow(sources, lengths, sizes, token_weight=token_weight, rules=RULES, threads=threads)
    for row, path in enumerate(paths):
        words, last = graphs.log_probs[row], graphs.lengths[row] - 1
        vertex, visited, score = 0, [0], float(words[0, 0])
        while vertex < last:
            steps = graphs.transitions[row, vertex, : last - vertex]
            sums = steps + (np.float32(token_weight) * words[vertex + 1 : last + 1, 0] if token_weight else 0)
            step = vertex + 1 + int(sums.argmax())
            score += float(words[step, 0])
            score += float(steps[step - vertex - 1])
            visited.append(vertex := step)
        assert path.ids == graphs.ids[row, visited[1:-1], 0].tolist()
        assert path.score == pytest.approx(score, abs=1e-9)


@settings(max_examples=20, derandomize=True)  # the same draws always: how near it is depends on the network
@given(problem=problems(), how=st.sampled_from([("bfloat16", 0.2), ("int8", 1.0)]))
def test_fewer_bits(problem, how):
    """Scores (some tens) stay close to float32, and do not depend on other sentences or threads."""
    precision, near = how
    shape, arrays, sources, lengths, sizes = problem
    network, narrow = (DagNetwork(arrays, shape=shape, precision=name) for name in ("float32", precision))
    wide, found = (one.scores(sources, lengths, sizes, tokens=2, rules=RULES, threads=2) for one in (network, narrow))
    assert (wide.lengths == found.lengths).all()
    assert ((wide.transitions == -np.inf) == (found.transitions == -np.inf)).all()
    there = wide.log_probs[..., 0] > -np.inf
    assert np.median(np.abs(wide.log_probs[..., 0][there] - found.log_probs[..., 0][there])) < near
    for row in range(len(lengths)):
        one = slice(row, row + 1)
        given_sizes = sizes if "lengths" in arrays else sizes[one]
        alone, size = narrow.scores(sources[one], lengths[one], given_sizes, tokens=2, rules=RULES), found.lengths[row]
        assert np.array_equal(alone.transitions[0], found.transitions[row, :size, : size - 1])
        assert np.array_equal(alone.log_probs[0], found.log_probs[row, :size])
        assert np.array_equal(alone.ids[0], found.ids[row, :size])


def test_bad_input_is_named():
    arrays = arrays_for(SHAPE, 1)
    with pytest.raises(ValueError, match="missing link_codes, links"):
        DagNetwork({name: array for name, array in arrays.items() if not name.startswith("link")}, shape=SHAPE)
    with pytest.raises(ValueError, match="link_codes: expected 40 rows as in slot_codes, got 3"):
        DagNetwork({**arrays, "link_codes": arrays["link_codes"][:3]}, shape=SHAPE)
    with pytest.raises(ValueError, match="precision: expected float32, bfloat16 or int8, got fp16"):
        DagNetwork(arrays, shape=SHAPE, precision="fp16")
    network = DagNetwork(arrays, shape=SHAPE)
    good = {"sources": np.full((2, 4), 7), "lengths": np.array([4, 1]), "graph_lengths": np.array([9, 40])}
    bad = {
        r"graph_lengths: expected 2 to 40 vertices with codes, got 41": {"graph_lengths": np.array([9, 41])},
        r"graph_lengths: expected 2 to 40 vertices with codes, got 1": {"graph_lengths": np.array([1, 40])},
        r"graph_lengths: expected one for each row": {"graph_lengths": np.array([9])},
        r"lengths\[1\]: expected 1 to 4, got 5": {"lengths": np.array([4, 5])},
        r"sources\[0\]: expected ids below 13, got 13": {"sources": np.full((2, 4), 13)},
    }
    for message, changes in bad.items():
        with pytest.raises(ValueError, match=message):
            network.follow(**{**good, **changes}, token_weight=1.0, rules=RULES)
    with pytest.raises(ValueError, match="banned: expected ids below 13, got 99"):
        network.follow(**good, token_weight=1.0, rules=dataclasses.replace(RULES, banned=(99,)))
