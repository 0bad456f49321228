"""The table at Transformer-base size: its arithmetic, its rivals' files, and a run of the program on tiny networks."""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.decoding import base_size
from benchmarks.decoding.base_entries import chosen, entries
from benchmarks.decoding.networks import network
from benchmarks.decoding.profile import by_part
from benchmarks.decoding.roofline import Network, least_seconds, sentence_bytes, stepwise
from benchmarks.rivals import marian_files
from benchmarks.rivals.ctranslate2_settings import Setting, Trial

TINY = Network(width=128, feed_forward=256, source=9, vocabulary=8000, shortlist=628)


def test_bytes_are_those_of_the_network() -> None:
    model = network("tiny", (4, 1))
    weights = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embedding" not in name)
    *layers, _ = stepwise(TINY, (4, 1), tokens=8, step=1)
    assert sum(phase.weights for phase in layers) == weights


def test_a_batch_shares_weights_and_a_step_of_two_tokens_halves_passes() -> None:
    one, two = (stepwise(TINY, (4, 4), tokens=8, step=step) for step in (1, 2))
    assert [phase.passes for phase in one] == [1, 1, 8, 8]
    assert [phase.passes for phase in two] == [1, 1, 4, 4]
    shared = sum(phase.passes * phase.weights for phase in one)
    assert sentence_bytes(one, 1) - sentence_bytes(one, 8) == pytest.approx(shared * 7 / 8)


def test_the_least_time_takes_the_slower_limit_of_each_phase() -> None:
    phases = stepwise(TINY, (4, 4), tokens=8, step=1)
    by_bytes, by_products = least_seconds(phases, 1, 1e9, 1e30), least_seconds(phases, 1, 1e30, 1e9)
    both = least_seconds(phases, 1, 1e9, 1e9)
    assert by_bytes == pytest.approx(sentence_bytes(phases, 1) / 1e9)
    assert max(by_bytes, by_products) < both < by_bytes + by_products


def test_marian_files_hold_each_tokens_links(tmp_path: Path) -> None:
    links = np.arange(60).reshape(20, 3) % 20
    folder = marian_files.write(tmp_path, layers=(1, 1), width=8, feed_forward=16, heads=2, vocabulary=20, links=links, common=4)
    data = (folder / "shortlist.bin").read_bytes()
    magic, _, common, best, count, total = struct.unpack_from("<6Q", data)
    assert (magic, common, best, count, total) == (marian_files.SHORTLIST_MAGIC, 4, 3, 21, 60)
    offsets = struct.unpack_from(f"<{count}Q", data, 48)
    tokens = struct.unpack_from(f"<{total}I", data, 48 + 8 * count)
    assert [list(tokens[offsets[at] : offsets[at + 1]]) for at in range(20)] == links.tolist()
    assert str(folder / "model.npz") in marian_files.configuration(folder, 100, 10)


def test_parts_of_a_profile_sum_to_one() -> None:
    functions = {"native fewstep::packed_gemm::multiply": 0.4, "native fewstep::Attention::attend": 0.1}
    shares = by_part({"libpython3.11.so eval": 0.2, **functions, "x y": 0.1})
    assert shares == pytest.approx({"Python": 0.25, "8-bit products": 0.5, "attention": 0.125, "other": 0.125})


def test_unknown_entries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"--only: expected parts of names.*autoregressive 4-4"):
        chosen(entries("tiny", 8, (1,)), ["gpu"])


@pytest.mark.slow  # it measures the machine first
def test_the_program_writes_both_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    times, limits = tmp_path / "times.json", tmp_path / "limits.json"
    monkeypatch.setattr(base_size, "trials", lambda *_: [Trial((4, 4), True, 1, Setting(), 1.0)])
    options = ["--size", "tiny", "--batches", "1", "--threads", "1", "--tokens", "6", "--rounds", "1", "--quick", "--only", "ctc"]
    monkeypatch.setattr(sys, "argv", ["base_size", *options, "--json", str(times), "--roofline", str(limits)])
    base_size.main()
    names = [[row[0] for row in json.loads(path.read_text())["rows"]] for path in (times, limits)]
    assert names == [["CTranslate2 4-4, map", "autoregressive 4-4", "ctc 4-4"], ["ctc 4-4"]]
