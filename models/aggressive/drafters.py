"""Sources of drafts: a block decoder, a draft head, heads, a draft model, the continuation of the last n-gram in a text, and the
verifier's own tokens.

Dimensions are named as in `models.family`; W tokens of a block. Tensors have the largest width of a block and the largest length of
an output, so that no shape depends on the outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.vocabulary import BOS, EOS, PAD
from models.aggressive.model import AggressiveModel, Source, sequences
from models.aggressive.on_verifier import DraftHead, MedusaHeads
from models.aggressive.precision import Network
from models.aggressive.tokens import ban
from models.aggressive.tree import DraftTree, TreeGrowth, best_tree, depths
from models.aggressive.verifier import CachedDecoder
from models.common.buffers import Inputs, Size
from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone


class Draft(NamedTuple):
    """Proposals for the B sentences."""

    ids: Tensor
    """The proposed tokens [B,W], -1 where nothing is proposed."""
    log_probs: Tensor | None
    """The distributions [B,W,V] from which the ids were drawn. None: each id had probability 1."""
    parents: Tensor | None = None
    """The parents [B,N] of the nodes of a tree (`DraftTree`), whose tokens are `ids` [B,N]. None: a chain."""


class Drafter(Protocol):
    """A source of drafts for a batch of sources."""

    def start(self, inputs: Inputs) -> None:
        """Read a batch."""
        ...

    def propose(self, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        """Propose up to `widths` [B] tokens for each sentence.

        The first `lengths` [B] of the `tokens` [B,T] are written. With `numbers` [B,W], uniform in [0, 1), tokens are drawn;
        otherwise they are the most probable ones.
        """
        ...

    def observe(self, slots: Tensor, states: Tensor, own: Tensor) -> None:
        """Receive the verifier's states [B,Q,D] of slots [B,Q], and its own tokens [B,Q] there."""
        ...


class NetworkDrafter(ABC):
    """A drafter that predicts tokens with a network."""

    def __init__(self, search: AggressiveSearch, size: Size, width: int) -> None:
        """`width` is the largest width of a block."""
        self.search = search
        self.slots = size.slots
        self.width = width
        self.excluded: Tensor | None = None
        """True at the tokens [B,V] that may not be drafted; None: all may."""

    def start(self, inputs: Inputs) -> None:
        """Read a batch."""
        self.excluded = inputs.draft_excluded

    @abstractmethod
    def log_probs(self, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [B,W,V] of the next tokens, minus infinity at banned ones."""

    def listed(self, log_probs: Tensor) -> Tensor:
        """Return log-probabilities [B,W,V] with minus infinity at tokens that may not be drafted, and at the temperature that
        tokens are sampled at; they need not sum to 1."""
        if self.search.strategy == "sample":
            log_probs = log_probs / self.search.sampling.temperature
        return log_probs if self.excluded is None else log_probs.masked_fill(self.excluded[:, None], -torch.inf)


class SlotDrafter(NetworkDrafter):
    """A drafter that predicts the tokens of a block independently of one another."""

    def propose(self, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        """Propose the tokens of a block, or of a tree; see `Drafter`."""
        log_probs = self.listed(self.log_probs(tokens, lengths, widths))
        if self.search.tree_nodes:
            tree = best_tree(log_probs.log_softmax(2), widths, self.search.tree_branches, self.search.tree_nodes)
            return Draft(tree.ids, None, tree.parents)
        ids = log_probs.argmax(2) if numbers is None else pick(log_probs.softmax(2), numbers)
        real = torch.arange(ids.size(1), device=ids.device) < widths[:, None]
        return Draft(torch.where(real, ids, -1), None if numbers is None else log_probs.log_softmax(2))


class BlockDrafter(SlotDrafter):
    """A block decoder."""

    source: Source

    def __init__(self, model: AggressiveModel, search: AggressiveSearch, size: Size, width: int) -> None:
        super().__init__(search, size, width)
        self.model = model

    def start(self, inputs: Inputs) -> None:
        """Encode a batch."""
        super().start(inputs)
        self.source = self.model.read(inputs.source, inputs.lengths)

    def observe(self, slots: Tensor, states: Tensor, own: Tensor) -> None:
        """Ignore the verifier's states: drafts depend on the written tokens alone."""

    def log_probs(self, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [B,W,V] of a block."""
        ids = sequences(tokens, lengths, widths, self.slots)
        states = self.model.states(ids, lengths, lengths + widths, self.source)
        positions = lengths[:, None] + torch.arange(self.width, device=lengths.device)
        selected = positions.clamp(max=self.slots - 1)[:, :, None].expand(-1, -1, states.size(2))
        return ban(self.model.logits(states.gather(1, selected)).float().log_softmax(2), self.search, positions)


class MedusaDrafter(SlotDrafter):
    """Heads on the verifier. They read the state from which the verifier predicted the last token, so there is no draft before the
    first pass."""

    def __init__(self, model: MedusaHeads, search: AggressiveSearch, size: Size, width: int) -> None:
        super().__init__(search, size, width)
        self.model = model
        self.states = model.target_embedding.weight.new_zeros((size.sentences, size.slots + 1, model.config.width))
        """The verifier's states [B,T+1,D] by slot; the last entry receives those of padding."""

    def observe(self, slots: Tensor, states: Tensor, own: Tensor) -> None:
        """Store the verifier's states."""
        _store(self.states, slots, states)

    def log_probs(self, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [B,W,V] by the first W heads."""
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, self.states.size(2))
        states = self.model.drafting_states(self.states.gather(1, last)[:, 0])[:, : self.width]
        positions = lengths[:, None] + torch.arange(self.width, device=lengths.device)
        return ban(self.model.logits(states).float().log_softmax(2), self.search, positions)

    def propose(self, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        """Propose the tokens of the heads where the verifier has written a token; see `Drafter`."""
        draft = super().propose(tokens, lengths, widths, numbers)
        return draft._replace(ids=draft.ids.masked_fill(lengths[:, None] == 0, -1))


class TokenDrafter(NetworkDrafter):
    """A drafter that writes token after token."""

    @abstractmethod
    def node_log_probs(self, tokens: Tensor, lengths: Tensor, tree: DraftTree, count: int) -> Tensor:
        """Return the log-probabilities [B,count,V] of the tokens after the last `count` nodes of trees behind `lengths` [B] tokens.

        The nodes before these are those of the last call; `log_probs` was called for the root.
        """

    def propose(self, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        """Propose token after token until EOS or until the block is too uncertain, or a tree; see `Drafter`."""
        if self.search.tree_nodes:
            return self._propose_tree(tokens, lengths, widths)
        written = F.pad(tokens, (0, self.width), value=PAD)
        going = widths > 0
        probability = torch.ones(len(lengths), device=lengths.device)
        ids, distributions = [], []
        for position in range(self.width):
            going = going & (widths > position)
            # The network has no slot behind the longest output, where a sentence that does not draft may stand.
            here = torch.where(going, lengths + position, 0)
            scores = self.listed(self.log_probs(written, here, going.long()))[:, 0].log_softmax(1)
            chosen = scores.argmax(1) if numbers is None else pick(scores.softmax(1), numbers[:, position])
            ids.append(torch.where(going, chosen, -1))
            written.scatter_(1, here[:, None], torch.where(going, chosen, written[:, 0])[:, None])
            distributions.append(scores.masked_fill(~going[:, None], 0.0))
            probability = probability * scores.gather(1, chosen[:, None])[:, 0].exp()
            going = going & (chosen != EOS) & (probability >= self.search.confidence)
        return Draft(torch.stack(ids, 1), None if numbers is None else torch.stack(distributions, 1))

    def _propose_tree(self, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Draft:
        """Propose a tree whose best nodes of each depth are expanded (EAGLE-2, Li et al. 2024, section 4)."""
        here = torch.where(widths > 0, lengths, 0)
        scores = self.log_probs(tokens, here, widths)
        growth = TreeGrowth(len(lengths), self.search.tree_nodes, lengths.device)
        branches = min(self.search.tree_branches, self.search.tree_nodes, scores.size(2))
        for depth in range(tree_depth(self.search, self.width)):
            if depth:
                scores = self.node_log_probs(tokens, here, growth.expanded, growth.level_size)
            top, ids = self.listed(scores).log_softmax(2).topk(branches, dim=2)
            growth.extend(top, ids, widths > depth, branches)
        tree = growth.best()
        return Draft(tree.ids, None, tree.parents)


def tree_depth(search: AggressiveSearch, width: int) -> int:
    """Return the number of levels of a tree of paths of up to `width` tokens: one of N nodes is at most N deep."""
    return min(width, search.tree_nodes)


def expanded_nodes(search: AggressiveSearch, width: int) -> int:
    """Return the largest number of nodes that a drafter expands which writes token after token."""
    return min(search.tree_branches, search.tree_nodes) * max(0, tree_depth(search, width) - 1)


class HeadDrafter(TokenDrafter):
    """A draft head. It reads the verifier's states as far as they are known, and its own states after that."""

    memories: list[Memory]
    tree_states: Tensor
    """The states [B,N+1,D] of the root and the nodes of trees."""

    def __init__(self, model: DraftHead, search: AggressiveSearch, size: Size, width: int) -> None:
        super().__init__(search, size, width)
        self.model = model
        self.origins = model.target_embedding.weight.new_zeros((size.sentences, size.slots + 1, model.config.width))
        """The states [B,T+1,D] from which tokens were predicted; the last entry receives those of padding."""

    def start(self, inputs: Inputs) -> None:
        """Encode a batch."""
        super().start(inputs)
        self.memories = self.model.read(inputs.source, inputs.lengths).head
        self.origins.zero_()

    def observe(self, slots: Tensor, states: Tensor, own: Tensor) -> None:
        """Store the verifier's states in place of the head's own."""
        _store(self.origins, slots, states)

    def log_probs(self, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [B,1,V] of the next token, and store its state where the width is not 0."""
        here = torch.arange(len(lengths), device=lengths.device)
        states = self.model.states(self._ids(tokens), self.origins[:, : self.slots], self.memories)[here, lengths]
        self.origins[here, lengths] = torch.where(widths[:, None] > 0, states, self.origins[here, lengths])
        self.tree_states = states[:, None]
        return ban(self.model.logits(states).float().log_softmax(1)[:, None], self.search, lengths[:, None])

    def node_log_probs(self, tokens: Tensor, lengths: Tensor, tree: DraftTree, count: int) -> Tensor:
        """Return the log-probabilities [B,count,V] of the tokens after the last nodes."""
        parents = tree.parents[:, :, None].expand(-1, -1, self.tree_states.size(2))
        origins = self.tree_states.gather(1, parents)
        found = self.model.tree_states(self._ids(tokens), self.origins[:, : self.slots], self.memories, lengths, tree, origins)
        states = found[:, -count:]
        self.tree_states = torch.cat((self.tree_states, states), 1)
        slots = lengths[:, None] + depths(tree)[:, -count:]
        return ban(self.model.logits(states).float().log_softmax(2), self.search, slots)

    def _ids(self, tokens: Tensor) -> Tensor:
        """Return the tokens [B,T] of all slots."""
        return F.pad(tokens, (0, max(0, self.slots - tokens.size(1))), value=PAD)[:, : self.slots]


class DraftModel(TokenDrafter):
    """An autoregressive network with an encoder of its own (Leviathan et al. 2023; Chen et al. 2023).

    Keys and values of a slot hold as long as the token before it stays. Those slots of the last block are computed again in which
    that token may have changed, so that no shape depends on the outputs.
    """

    def __init__(self, network: Backbone, search: AggressiveSearch, size: Size, width: int) -> None:
        super().__init__(search, size, width)
        nodes = expanded_nodes(search, width)
        self.decoder = CachedDecoder(network, size, nodes)
        # A chain leaves the keys and values of its tokens behind but that of the last one, and a tree those of none.
        self.reread = width + 2 if nodes else 2

    def start(self, inputs: Inputs) -> None:
        """Encode a batch."""
        super().start(inputs)
        self.decoder.start(inputs)

    def observe(self, slots: Tensor, states: Tensor, own: Tensor) -> None:
        """Ignore the verifier's states: drafts depend on the written tokens alone."""

    def log_probs(self, tokens: Tensor, lengths: Tensor, widths: Tensor) -> Tensor:
        """Return the log-probabilities [B,1,V] of the next token."""
        slots = lengths[:, None] + torch.arange(1 - self.reread, 1, device=lengths.device)
        carried = tokens.gather(1, (slots - 1).clamp(min=0))
        states = self.decoder.step(carried, torch.where((slots < 0) | (widths[:, None] <= 0), self.decoder.padding, slots))
        return self._log_probs(states[:, -1:], lengths[:, None])

    def node_log_probs(self, tokens: Tensor, lengths: Tensor, tree: DraftTree, count: int) -> Tensor:
        """Return the log-probabilities [B,count,V] of the tokens after the last nodes."""
        last = tokens.gather(1, (lengths - 1).clamp(min=0)[:, None])
        states = self.decoder.step_tree(torch.cat((last, tree.ids), 1), lengths, tree)
        return self._log_probs(states[:, -count:], lengths[:, None] + depths(tree)[:, -count:])

    def _log_probs(self, states: Tensor, slots: Tensor) -> Tensor:
        return ban(self.decoder.network.logits(states).float().log_softmax(2), self.search, slots)


def _store(kept: Tensor, slots: Tensor, states: Tensor) -> None:
    """Store states [B,Q,D] of slots [B,Q] in `kept` [B,T+1,D]; those of padding, which has a higher slot, in the last entry."""
    index = slots.clamp(max=kept.size(1) - 1)[:, :, None].expand_as(states)
    kept.scatter_(1, index, states.to(kept.dtype))


def network_drafter(model: Network, search: AggressiveSearch, size: Size, width: int) -> BlockDrafter | HeadDrafter | MedusaDrafter:
    """Return the drafter of batches of a size, with blocks of up to `width` tokens."""
    if isinstance(model, DraftHead):
        return HeadDrafter(model, search, size, width)
    if isinstance(model, MedusaHeads):
        return MedusaDrafter(model, search, size, width)
    return BlockDrafter(model, search, size, width)


class LookupDrafter:
    """Drafts without a network: the continuation of the last n-gram in the hint of a sentence or earlier in its output.

    The n-gram has up to `max_ngram` tokens; both texts begin with BOS. The longest n-gram that either text continues counts, in the
    hint if it occurs in both. Of several occurrences in the hint, the one nearest to the output's own length is used; of several in
    the output, the last one.
    """

    hints: Tensor

    def __init__(self, max_ngram: int, width: int) -> None:
        self.max_ngram = max_ngram
        self.width = width

    def start(self, inputs: Inputs) -> None:
        """Read the hints of a batch."""
        assert inputs.hints is not None
        self.hints = F.pad(inputs.hints, (1, 0), value=BOS)

    def observe(self, slots: Tensor, states: Tensor, own: Tensor) -> None:
        """Ignore the verifier's states: drafts depend on the written tokens alone."""

    def propose(self, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        """Propose the tokens that follow the n-gram; see `Drafter`. All have probability 1."""
        end = lengths[:, None]
        before = F.pad(tokens, (1, 0), value=BOS)
        before = before.masked_fill(torch.arange(before.size(1), device=end.device) > end, -1)
        in_hint, hint_at = self._last_ngram(self.hints, before, end, _distances(self.hints, end))
        in_output, output_at = self._last_ngram(before, before, end, -torch.arange(before.size(1), device=end.device))
        use_hint = in_hint >= in_output
        offsets = torch.arange(1, self.width + 1, device=end.device)
        # Padded, so that a continuation may run past the end of its text.
        hint, output = (F.pad(text, (0, self.width + 1), value=-1) for text in (self.hints, before))
        following = torch.where(use_hint, hint.gather(1, hint_at + offsets), output.gather(1, output_at + offsets))
        missing = (torch.maximum(in_hint, in_output) == 0) | (offsets > widths[:, None])
        return Draft(following.masked_fill(missing, -1), None)

    def _last_ngram(self, text: Tensor, before: Tensor, end: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the length [B,1] of the longest n-gram at the `end` [B,1] of `before` [B,M] that a text [B,N] contains and
        continues, at most `max_ngram` and 0 for none, and the position [B,1] of its last token with the lowest of `keys` [B,N].
        """
        longest = torch.zeros_like(text)
        matching = torch.ones_like(text, dtype=torch.bool)
        for back in range(self.max_ngram):
            token = before.gather(1, (end - back).clamp(min=0))
            matching = matching & (F.pad(text, (back, 0), value=-1)[:, : text.size(1)] == token) & (back <= end)
            longest += matching
        # The last token of a text, with which the output's own n-gram ends, has no continuation.
        continued = F.pad(text[:, 1:], (0, 1), value=-1) >= 0
        longest = longest.masked_fill(~continued, 0)
        best = longest.amax(1, keepdim=True)
        others = torch.iinfo(torch.int64).max
        return best, keys.expand_as(longest).masked_fill(longest < best, others).argmin(1, keepdim=True)


class JacobiDrafter:
    """Drafts without a network: the verifier's own tokens in the slots that its last pass rejected (Santilli et al. 2023).

    They are those of a Jacobi iteration, in which every slot is computed from the tokens that the last iteration gave the slots
    before it. Slots that no pass has reached repeat the last written token.
    """

    def __init__(self, size: Size, width: int, device: torch.device) -> None:
        self.width = width
        self.guesses = torch.full((size.sentences, size.slots + 1), -1, device=device)
        """The verifier's tokens [B,T+1] of the last pass, -1 where it had none; the last entry receives those of padding."""

    def start(self, inputs: Inputs) -> None:
        """Forget the guesses of the last batch."""
        self.guesses.fill_(-1)

    def observe(self, slots: Tensor, states: Tensor, own: Tensor) -> None:
        """Store the verifier's tokens."""
        self.guesses.fill_(-1)
        self.guesses.scatter_(1, slots.clamp(max=self.guesses.size(1) - 1), own)

    def propose(self, tokens: Tensor, lengths: Tensor, widths: Tensor, numbers: Tensor | None) -> Draft:
        """Propose the verifier's tokens; see `Drafter`. There is no draft before the first pass."""
        offsets = torch.arange(self.width, device=lengths.device)
        found = F.pad(self.guesses[:, :-1], (0, self.width + 1), value=-1).gather(1, lengths[:, None] + offsets)
        last = tokens.gather(1, (lengths - 1).clamp(min=0)[:, None])
        missing = (lengths[:, None] == 0) | (offsets >= widths[:, None])
        return Draft(torch.where(found < 0, last, found).masked_fill(missing, -1), None)


def _distances(text: Tensor, end: Tensor) -> Tensor:
    """Return keys [B,N] of the positions of a text [B,N] that rise with the distance from `end` [B,1]; of two positions at the same
    distance the left one has the lower key."""
    position = torch.arange(text.size(1), device=text.device)
    return 2 * (position - end).abs() + (position > end)


def pick(probabilities: Tensor, numbers: Tensor) -> Tensor:
    """Return the ids [...] that uniform `numbers` [...] in [0, 1) choose by `probabilities` [...,V], which need not sum to 1."""
    until = probabilities.double().cumsum(-1)
    threshold = numbers.double()[..., None] * until[..., -1:]
    ids = (until <= threshold).sum(-1)
    last = (probabilities > 0).long().mul(torch.arange(1, probabilities.size(-1) + 1, device=numbers.device)).amax(-1) - 1
    return torch.minimum(ids, last).clamp(min=0)
