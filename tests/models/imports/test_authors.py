"""Checkpoints of the papers' authors: logits, transitions and outputs against values that their code computed (`authors.json`)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.vocabulary import RESERVED
from models.aggressive.decode import AggressiveDecoder
from models.aggressive.model import AggressiveModel, sequences
from models.dag.decode import DagDecoder
from models.dag.model import DagModel, empty_vertices
from models.family import family_named
from models.imports.fairseq_network import read_network
from models.imports.files import ForeignModelError
from pipeline.commands.convert import write_checkpoint
from tests.models.imports.authors_networks import NETWORKS, SYMBOLS, Network, sources

VALUES = json.loads(Path(__file__).with_name("authors.json").read_text(encoding="utf-8"))
FIRST = len(RESERVED)
"""Id of the first symbol, whose row in the authors' tables is 4."""
OLD_ROWS = [1, 0, 2, 3]
"""Our ids of the rows `<s>`, `<pad>`, `</s>` and `<unk>`."""
GRAPHS = ("v1", "v2", "predat", "other")
SEARCHES = {
    "greedy": DagSearch(strategy="greedy"),
    "lookahead": DagSearch(),
    "jointviterbi": DagSearch(strategy="joint-viterbi"),
}
ROUNDING = 1e-4


def size_of(network):
    return FIRST + SYMBOLS + network.options.get("seg_tokens", 0)


def columns(network):
    return [*OLD_ROWS, *range(FIRST, size_of(network))]


def written(network, directory, **changes):
    content = Network(network.seed, network.changes | changes).checkpoint()
    directory.mkdir(exist_ok=True)
    torch.save(content, directory / "checkpoint.pt")
    return directory / "checkpoint.pt"


def read(name, family, directory, **changes):
    network = NETWORKS[name]
    size = size_of(network)
    return read_network(written(network, directory, **changes), family, (size, size), 1024)


def model_of(name, family, directory):
    found = read(name, family, directory)
    model = family_named(family).functions.build(found.network, found.sizes)
    model.load_state_dict(found.weights)
    return model.eval()


def ids_of(count):
    return [[FIRST + symbol for symbol in source] for source in sources(count)]


def close(found, expected):
    known = [number for number, value in enumerate(expected) if value is not None]
    torch.testing.assert_close(found[known], torch.tensor([expected[number] for number in known]), atol=ROUNDING, rtol=ROUNDING)


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_those_of_the_authors(name, tmp_path):
    expected, network, model = VALUES[name], NETWORKS[name], model_of(name, "dag", tmp_path)
    assert isinstance(model, DagModel)
    for number, source in enumerate(ids_of(len(expected["logits"]))):
        length = torch.tensor([expected["sizes"][number]])
        row = torch.tensor([[*source, 2]])
        with torch.no_grad():
            states = model.states(empty_vertices(length, int(length)), length, model.read(row, torch.tensor([row.size(1)])))
            scores, transitions = model.logits(states).log_softmax(-1)[0], model.transitions(states, length)[0]
        assert bool((model.logits(states)[..., [4, 5, 6]] == -torch.inf).all())
        for vertex, values in expected["logits"][number].items():
            close(scores[int(vertex), columns(network)], values)
        for vertex, values in expected["links"][number].items():
            close(transitions[int(vertex)], values[int(vertex) + 1 :][: transitions.size(1)])


@pytest.mark.parametrize("name", GRAPHS)
def test_native_code_and_torch_find_the_outputs_of_the_authors(name, tmp_path):
    expected = VALUES[name]
    decoder = DagDecoder(model_of(name, "dag", tmp_path), frozen=True)
    rows = decoder.prepare(ids_of(len(expected["sizes"])))
    for strategy, outputs in expected["outputs"].items():
        search, wanted = SEARCHES[strategy], [[token - 4 + FIRST for token in output] for output in outputs]
        for engine in ("auto", "torch"):
            found = decoder.decode(rows, replace(search, engine=engine))
            assert [ranked[0].ids for ranked in found] == wanted, (strategy, engine)


def test_drafts_and_verified_outputs_are_those_of_specdec(tmp_path):
    expected, network = VALUES["block"], NETWORKS["block"]
    drafter, verifier = model_of("block", "aggressive", tmp_path), model_of("verifier", "stepwise", tmp_path / "verifier")
    assert isinstance(drafter, AggressiveModel)
    assert drafter.config.draft_width == 5
    decoder = AggressiveDecoder(drafter, verifier, frozen=True)
    known = ids_of(len(expected["outputs"]["gad"]))
    for number, blocks in enumerate(expected["logits"]):
        row = torch.tensor([[*known[number], 2]])
        source = drafter.read(row, torch.tensor([row.size(1)]))
        for prefix, slots in zip(([], [7, 9, 11]), blocks, strict=True):
            tokens = torch.tensor([[token - 4 + FIRST for token in prefix]], dtype=torch.int64).view(1, -1)
            lengths, widths = torch.tensor([len(prefix)]), torch.tensor([5])
            with torch.no_grad():
                states = drafter.states(sequences(tokens, lengths, widths), lengths, lengths + widths, source)
                logits = drafter.logits(states)[0, len(prefix) :, columns(network)]
            for slot, values in slots.items():
                close(logits[int(slot)], values)
    searches = {
        "gad": AggressiveSearch(min_tokens_per_pass=0.0),
        "gad++": AggressiveSearch(strategy="gad++", top_k=12, max_logprob_gap=4.0, require_top1_eos=False, min_tokens_per_pass=0.0),
    }
    limit = min(expected["limit"], drafter.config.max_positions)
    for name, search in searches.items():
        search = replace(search, output_limits=OutputLimits(max_tokens=limit))
        wanted = [[token - 4 + FIRST for token in output] for output in expected["outputs"][name]]
        for engine in ("auto", "torch"):
            found = decoder.decode(decoder.prepare(known), replace(search, engine=engine))
            outputs = [ranked[0].ids for ranked in found]
            # Blocks are narrower here where fewer tokens remain until the limit, and EOS is never first.
            kept = limit - drafter.config.draft_width
            begun = zip(outputs, wanted, expected["outputs"]["gad"], strict=True)
            pairs = [(ids[:kept], own[:kept]) for ids, own, greedy in begun if greedy]
            assert len(pairs) >= 9
            assert [ids for ids, _ in pairs] == [own for _, own in pairs], (name, engine)


@pytest.mark.parametrize(
    ("name", "family", "changes", "match"),
    [
        ("v2", "dag", {"upsample_base": "source"}, "upsample_base: expected source_old, predict, fixed.*got source"),
        ("v2", "dag", {"upsample_scale": "a~b"}, "upsample_scale: expected a factor or a range"),
        ("v2", "dag", {"src_embedding_copy": True}, "src_embedding_copy: expected false"),
        ("v2", "dag", {"arch": "ls_glat_decomposed_link_base"}, "arch: expected glat_decomposed_link.*convert_ls_to_fs"),
        ("predat", "dag", {"pred_length_offset": True}, "pred_length_offset: expected false"),
        ("v2", "dag", {"links_feature": "feature:depth"}, "links_feature: expected feature, position or sinposition"),
        ("v2", "stepwise", {}, "arch: expected transformer or one of its sizes, got glat_decomposed_link_base"),
        ("block", "dag", {}, "arch: expected glat_decomposed_link or one of its sizes, got block"),
        ("block", "aggressive", {"block_size": 0}, "block_size: expected a positive number, got 0"),
        ("block", "aggressive", {"src_embedding_copy": False}, None),
    ],
)
def test_other_settings_are_refused_by_name(name, family, changes, match, tmp_path):
    if match is None:  # a drafter without a soft copy, whose empty slots read the row of <unk>
        found = read(name, family, tmp_path, **changes)
        assert torch.equal(found.weights["target_embedding.weight"][4], found.weights["target_embedding.weight"][3])
        return
    with pytest.raises(ForeignModelError, match=match):
        read(name, family, tmp_path, **changes)


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    path = written(NETWORKS["predat"], tmp_path)
    with pytest.raises(ForeignModelError, match=r"expected a vocabulary of 40 symbols, the last 4 of them its plan tokens.*got 36"):
        read_network(path, "dag", (FIRST + SYMBOLS, FIRST + SYMBOLS), 1024)


def test_a_file_of_tensors_alone_has_the_settings_of_the_authors_scripts(tmp_path):
    network = Network(3, NETWORKS["predat"].changes | {"prepend_bos": False})
    tensors = {name.replace("decoder.gate", "decoder.link_predictor.gate"): one for name, one in network.tensors().items()}
    torch.save(tensors, tmp_path / "weights.bin")
    size = size_of(network)
    alone = read_network(tmp_path / "weights.bin", "dag", (size, size), 1024)
    whole = read_network(written(network, tmp_path), "dag", (size, size), 1024)
    assert alone.network == whole.network
    assert alone.weights.keys() == whole.weights.keys()
    assert all(torch.equal(alone.weights[name], weight) for name, weight in whole.weights.items())


def test_a_converted_pair_translates_split_text(tmp_path):
    import fewstep

    dictionary = tmp_path / "dict.en.txt"
    dictionary.write_text("".join(f"w{number} 1\n" for number in range(SYMBOLS)), encoding="utf-8")
    systems = {"verifier": "stepwise", "block": "aggressive", "v2": "dag"}
    for name, family in systems.items():
        checkpoint = written(NETWORKS[name], tmp_path / f"{name}.checkpoint")
        companions = {"verifier": tmp_path / "verifier"} if family == "aggressive" else {}
        write_checkpoint(checkpoint, tmp_path / name, (dictionary, dictionary), family, ("en", "de"), companions, 20)
    lines = [" ".join(f"w{symbol}" for symbol in source) for source in sources(4)]
    graph = fewstep.load(tmp_path / "v2")
    expected = [[f"w{token - 4}" for token in output] for output in VALUES["v2"]["outputs"]["lookahead"][:4]]
    assert [text.split() for text in graph.translate(lines)] == expected
    assert fewstep.load(tmp_path / "block").translate(lines) == fewstep.load(tmp_path / "verifier").translate(lines)
