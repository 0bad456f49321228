"""Drafts that an imported BART verifies: outputs are those of its greedy search, here and in transformers."""

import dataclasses
import itertools

import pytest
import torch

import fewstep
from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.format import MERGES, BundleError
from fewstep.translation import Hypothesis
from models.aggressive.decode import AggressiveDecoder
from models.aggressive.model import AggressiveModel
from models.bundle.directory import load_system, write_system
from models.bundle.export import export_ctranslate2
from models.bundle.weights import save_weights
from models.imports.foreign import write_foreign
from tests.models.aggressive.networks import DRAFTER, sharpen
from tests.models.common.device_alone import buffers_of_a_gpu
from tests.models.imports.test_bart import LIMIT, LINES, expectations, names_of, read, write_bart

transformers = pytest.importorskip("transformers")

LIMITS = OutputLimits(max_tokens=LIMIT - 2, max_extra_tokens=100, allow_unknown=True)
WIDTHS = (1, 5)
VARIANTS = {"bart": {}, "scaled": {"scale_embedding": True}}
TEXTS = [*LINES, *(" ".join(reversed(line.split())) for line in LINES), *(line * 2 for line in LINES)]


def search(strategy="gad", **options):
    return AggressiveSearch(strategy=strategy, **{"min_tokens_per_pass": 0.0, "output_limits": LIMITS, **options})


def drafter_of(verifier, seed=2, **changes):
    """Return a random drafter with an encoder of its own, which has BART's vocabulary and lengths and no other part of it."""
    torch.manual_seed(seed)
    config = dataclasses.replace(DRAFTER, **{"max_positions": verifier.config.max_positions, "draft_width": 4, **changes})
    return sharpen(AggressiveModel(config, verifier.sizes), seed)


def written(decoder, rows, how):
    return [ranked[0] for ranked in decoder.decode(decoder.prepare(rows), how)]


def learn(model, rows, updates=40):
    """Teach a network to write random texts of 1 to 18 tokens, so that its outputs have different tokens and lengths."""
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 19, (len(rows),), generator=draw).tolist()
    texts = [[0, *torch.randint(4, 200, (length,), generator=draw).tolist(), 2] for length in lengths]
    source, target = (torch.nn.utils.rnn.pad_sequence([*map(torch.tensor, side)], True, 1) for side in (rows, texts))
    for weight in model.parameters():
        weight.data.mul_(0.3 if weight.dim() > 1 else 1.0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(updates):
        optimizer.zero_grad()
        model(input_ids=source, attention_mask=source != 1, labels=target.masked_fill(target == 1, -100)).loss.backward()
        optimizer.step()


def transformers_ids(directory, line):
    return transformers.BartTokenizer.from_pretrained(directory)(line)["input_ids"]


class Oracle:
    """A system that drafts given texts."""

    def __init__(self, texts):
        self.texts = texts

    def prepare(self, rows, how=None, threads=None):
        return rows

    def decode(self, rows, how, threads=None):
        return [[Hypothesis(ids, 0.0, 0)] for ids in self.texts]


@pytest.fixture(scope="module", params=VARIANTS)
def bart(request, tmp_path_factory):
    """The original, its system, and sources with the outputs of greedy search: some long, some short."""
    directory = tmp_path_factory.mktemp("bart")
    model = write_bart(directory / "bart", seed=3, end_bias=0.0, d_model=32, dropout=0.0, **VARIANTS[request.param])
    generation = (directory / "bart/generation_config.json").read_text()
    learn(model, [transformers_ids(directory / "bart", line) for line in TEXTS])
    model.save_pretrained(directory / "bart")
    (directory / "bart/generation_config.json").write_text(generation)
    write_foreign(read(directory / "bart"), directory / "system", name="bart", source_language="en", target_language="en")
    system = load_system(directory / "system")
    rows = system.encode(TEXTS)
    greedy = written(system.decoder, rows, StepwiseSearch(output_limits=LIMITS))
    assert len({len(one.ids) for one in greedy}) > 2
    assert sum(len(set(one.ids)) > 3 for one in greedy) > 3
    return model, directory, system, rows, greedy


def test_outputs_are_those_of_transformers_whatever_is_drafted(bart):
    model, directory, system, rows, greedy = bart
    old = names_of(directory / "bart")
    names = system.target_pieces.id_to_piece(list(range(len(system.target_pieces))))
    theirs = expectations(model, [[0, *(old.index(names[token]) for token in row), 2] for row in rows])["greedy"]
    expected = [[names.index(old[token]) for token in row] for row in theirs]
    assert expected == [one.ids for one in greedy]
    verifier = system.decoder.model
    texts = [one.ids for one in greedy]
    for oracle, mode in ((texts, "exact"), (texts, "fast"), ([row[::-1] for row in texts], "exact")):
        decoder = AggressiveDecoder(drafter_of(verifier), verifier, (Oracle(oracle), None, 1_000))
        for width, drafter in itertools.product(WIDTHS, ("network", "lookup", "system")):
            found = written(decoder, rows, search(draft_width=width, drafter=drafter, ngram=LIMIT, mode=mode))
            assert [one.ids for one in found] == expected
            if drafter == "system" and oracle is texts:
                assert sum(one.steps for one in found) < sum(one.steps for one in greedy)
        assert decoder.record.accepted > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_drafts_leave_scores_and_margins_as_they_are_to_the_last_bit(bart, threads):
    """In the mode `exact`, whichever sentences have ended, and with the wide matrices of a larger network as well."""
    _, _, system, rows, greedy = bart
    verifier = system.decoder.model
    decoder = AggressiveDecoder(drafter_of(verifier), verifier, (Oracle([one.ids for one in greedy]), None, 1_000), frozen=True)
    ways = [*itertools.product(WIDTHS, ("network", "lookup", "system"))] if threads == 1 else [(2, "network")]
    count = len(rows) if threads == 1 else 5
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for width, drafter in ways:
            how = search(draft_width=width, drafter=drafter, ngram=LIMIT)
            found, alone = (written(decoder, rows[:count], one) for one in (how, dataclasses.replace(how, strategy="greedy")))
            for one, other, usual in zip(found, alone, greedy, strict=False):
                assert (one.ids, one.score, one.statistics["margin"]) == (other.ids, other.score, other.statistics["margin"])
                assert one.ids == usual.ids
                assert one.score == pytest.approx(usual.score, abs=1e-4)
                assert one.steps <= other.steps == usual.steps
    finally:
        torch.set_num_threads(before)


def test_trees_and_shapes_of_devices_write_the_same(bart):
    _, _, system, rows, greedy = bart
    verifier = system.decoder.model
    decoder = AggressiveDecoder(drafter_of(verifier), verifier)
    for how in (search(), search(tree_nodes=7, tree_branches=3), search("greedy")):
        assert [one.ids for one in written(decoder, rows, how)] == [one.ids for one in greedy]
        with buffers_of_a_gpu():
            rounded = AggressiveDecoder(decoder.model, verifier)
            for part in (slice(0, 5), slice(5, 8)):  # the same buffers serve both and forget the batch before
                assert [one.ids for one in written(rounded, rows[part], how)] == [one.ids for one in greedy[part]]


def test_a_system_holds_its_bart_and_torch_decodes_it(bart, tmp_path):
    _, directory, system, _, _ = bart
    verifier = system.decoder.model
    drafter = drafter_of(verifier)
    save_weights(tmp_path / "drafter.safetensors", drafter.state_dict(), dataclasses.asdict(drafter.config))
    origin = directory / "system"
    write_system(
        tmp_path / "pair",
        family="aggressive",
        network=drafter.config,
        sizes=drafter.sizes,
        weights=tmp_path / "drafter.safetensors",
        source_vocabulary=origin / "source.spm",
        target_vocabulary=origin / "target.spm",
        merges=origin / MERGES,
        name="pair",
        source_language="en",
        target_language="en",
        searches={"gad": search()},
        companions={"verifier": origin},
    )
    pair = load_system(tmp_path / "pair")
    assert set(pair.decoder.engines) == {"torch"}
    expected = system.translate(LINES, StepwiseSearch(output_limits=LIMITS))
    assert pair.translate(LINES) == expected != []
    with pytest.raises(ValueError, match="verifier_precision: expected float32 in torch"):
        pair.translate(LINES, search(verifier_precision="int8"))
    with pytest.raises(BundleError, match=r"verifier: expected a network that native code decodes, got one with embedding_norm"):
        fewstep.load(tmp_path / "pair")
    with pytest.raises(ValueError, match="CTranslate2: expected"):
        export_ctranslate2(tmp_path / "pair", tmp_path / "exported", "float32")


def test_a_drafter_that_shares_its_encoder_is_refused(bart):
    verifier = bart[2].decoder.model
    keys = {"norm": "post", "positions": "learned", "activation": verifier.config.activation}
    keys |= {key: getattr(verifier.config, key) for key in ("width", "feed_forward", "encoder_layers", "scale_embeddings")}
    with pytest.raises(ValueError, match=r"encoder: expected separate for a verifier with .* \(BART\)"):
        AggressiveDecoder(drafter_of(verifier, encoder="shared", **keys), verifier)
    assert AggressiveConfig(encoder="shared").needs_torch is False
