"""Shortlists: their contents, and the sources that get one."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fewstep.candidates import CandidateTables
from fewstep.shortlist import build_lexicon
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from models.common.shortlist import linked_tokens, token_mask


def tables(folder: Path, backoff: float = 1.0) -> CandidateTables:
    """Three pairs: 7 is written as 8 twice and as 9 once, 8 as 9, 9 as nothing."""
    source = Sentences.of([[7, 8], [7, 8], [7, 9]])
    target = Sentences.of([[8, 9], [8, 10], [9, 11]])
    links = [0, 1, 0, -1, 0, -1]
    count_candidates(source, target, links, folder / "counts", options=CountOptions(source_size=12, target_size=13))
    merge_candidates([folder / "counts"], folder / "tables", options=TableOptions(reserved=7, backoff=backoff))
    return CandidateTables.load(folder / "tables")


def test_a_lexicon_is_counted_from_links(tmp_path):
    found = build_lexicon(tables(tmp_path), joint=False)
    assert found.common_tokens.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9, 7, 10, 11, 12]  # 8 and 9 twice each
    linked = linked_tokens(found, 3)
    assert linked is not None
    assert linked.shape == (12, 3)
    assert linked[7].tolist() == [8, 9, -1]
    assert linked[8].tolist() == [9, -1, -1]
    assert linked[9].tolist() == linked[0].tolist() == [-1, -1, -1]


def test_words_of_a_joint_vocabulary_bring_themselves_first(tmp_path):
    linked = linked_tokens(build_lexicon(tables(tmp_path), joint=True), 3)
    assert linked is not None
    assert linked[7].tolist() == [7, 8, 9]
    assert linked[8].tolist() == [8, 9, -1]
    assert linked[11].tolist() == [11, -1, -1]
    assert linked[2].tolist() == [-1, -1, -1]


def test_tables_that_were_counted_without_a_backoff_make_none(tmp_path):
    with pytest.raises(ValueError, match="backoff"):
        build_lexicon(tables(tmp_path, backoff=0.0), joint=False)


def test_a_shortlist_holds_common_tokens_and_those_of_real_positions_alone():
    linked = torch.from_numpy(np.array([[-1, -1], [4, -1], [5, 2], [3, 4]]))
    found = token_mask(torch.tensor([0]), linked, torch.tensor([[1, 2], [1, 3], [0, 2]]), torch.tensor([2, 1, 1]), 6)
    assert [row.nonzero()[:, 0].tolist() for row in found] == [[0, 2, 4, 5], [0, 4], [0]]
    assert token_mask(torch.tensor([0, 3]), None, torch.tensor([[1]]), torch.tensor([1]), 6)[0].nonzero()[:, 0].tolist() == [0, 3]
