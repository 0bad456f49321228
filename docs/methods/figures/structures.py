"""Figures of graphs, lattices, tables and lists."""

from __future__ import annotations

from svg import BLUE, GREEN, GREY, INK, LINE, MUTED, ORANGE, PALE, Canvas


def dag() -> Canvas:
    """A graph of eight vertices with the path that is written."""
    c = Canvas(760, 310, "A directed acyclic graph of tokens with one path through it")
    tokens = ("BOS", "Ein", "Der", "Mann", "liest", "las", ".", "EOS")
    at = [60 + 91 * vertex for vertex in range(8)]
    edges = {
        (0, 1): 0.6,
        (0, 2): 0.4,
        (1, 3): 0.9,
        (2, 3): 1.0,
        (3, 4): 0.7,
        (3, 5): 0.3,
        (4, 6): 1.0,
        (5, 6): 1.0,
        (6, 7): 1.0,
        (1, 4): 0.1,
    }
    path = {(0, 1), (1, 3), (3, 4), (4, 6), (6, 7)}
    for (start, end), share in edges.items():
        chosen = (start, end) in path
        color = BLUE if chosen else LINE
        rise = 22 + 32 * (end - start - 1) if end - start > 1 else 14
        middle = (at[start] + at[end]) / 2
        c.line(
            f"M{at[start] + 12} 138 Q{middle:g} {138 - 2 * rise + 12} {at[end] - 12} 138",
            color=color,
            width=2.5 if chosen else 1.5,
            arrow=True,
        )
        if start != 0 or end != 1:
            c.text(middle, 138 - rise - 1, f"{share:g}", size=12, color=color)
        else:
            c.text(middle, 116, f"{share:g}", size=12, color=color)
    on_path = {vertex for edge in path for vertex in edge}
    for vertex, token in enumerate(tokens):
        chosen = vertex in on_path
        c.circle(at[vertex], 156, 19, str(vertex), fill=PALE[BLUE] if chosen else GREY, stroke=BLUE if chosen else LINE)
        c.text(at[vertex], 202, token, bold=chosen, color=INK if chosen else MUTED)
    c.text(
        380,
        244,
        "Every vertex holds a distribution over tokens (its best one is shown), every arc a transition probability.",
        size=13,
        color=MUTED,
    )
    c.text(
        380,
        266,
        "All of it is computed in one pass; a search then chooses a path from the first vertex to the last.",
        size=13,
        color=MUTED,
    )
    c.text(
        380,
        288,
        "Several translations share their vertices here and differ in their paths.",
        size=13,
        color=MUTED,
    )
    return c


def lattice() -> Canvas:
    """Slots with candidates, the best path and its exits."""
    c = Canvas(760, 330, "A lattice of candidates with the best path")
    slots = (("ein", "der", "einen"), ("Mann", "Mensch", "Herr"), ("liest", "las", "lesen"), (".", "ein", "Buch"), ("EOS",))
    best = (0, 0, 0, 0)
    at = [110 + 145 * slot for slot in range(5)]
    for slot in range(3):
        for start in range(3):
            for end in range(3):
                if (start, end) != (best[slot], best[slot + 1]):
                    c.line(f"M{at[slot] + 40} {80 + 64 * start} L{at[slot + 1] - 42} {80 + 64 * end}", color="#d3dbe4", width=1)
    for slot in range(3):
        c.line(f"M{at[slot] + 40} 80 L{at[slot + 1] - 43} 80", color=BLUE, width=2.5, arrow=True)
    c.line(f"M{at[3] + 40} 80 L{at[4] - 43} 80", color=BLUE, width=2.5, arrow=True)
    c.line(f"M{at[2] + 20} 62 C{at[2] + 90} 20 {at[4] - 110} 20 {at[4] - 30} 60", color=LINE, arrow=True, dashed=True)
    for slot, words in enumerate(slots):
        c.text(at[slot], 42, f"slot {slot}" if slot < 4 else "end", size=12, color=MUTED)
        for rank, word in enumerate(words):
            chosen = rank == 0
            c.box(at[slot] - 40, 62 + 64 * rank, 80, 36, word, fill=PALE[BLUE] if chosen else GREY, stroke=BLUE if chosen else LINE)
    c.text(
        380,
        268,
        "Counts propose K candidates for each slot. A network scores all pairs of neighbouring candidates in one pass.",
        size=13,
        color=MUTED,
    )
    c.text(
        380,
        290,
        "Viterbi finds the best path exactly; dashed: an exit for an output that is one token shorter.",
        size=13,
        color=MUTED,
    )
    return c


def shortlists() -> Canvas:
    """Common tokens and linked tokens form the list of a sentence."""
    c = Canvas(760, 330, "A shortlist of output tokens for one sentence")
    links = {"▁A": ("▁ein", "▁eine"), "▁man": ("▁Mann", "▁Mensch"), "▁reads": ("▁liest", "▁lesen")}
    for row, (source, targets) in enumerate(links.items()):
        y = 46 + row * 62
        c.box(40, y, 92, 40, source, fill=PALE[BLUE], stroke=BLUE)
        for index, target in enumerate(targets):
            c.box(190 + index * 104, y, 92, 40, target, fill=PALE[GREEN], stroke=GREEN)
        c.line(f"M134 {y + 20} L186 {y + 20}", color=GREEN, arrow=True)
    c.box(190, 238, 196, 40, ".  ,  ▁und  ▁in  ▁die  …", fill=PALE[ORANGE], stroke=ORANGE)
    c.text(182, 263, "common tokens", anchor="end", color=ORANGE)
    c.text(86, 34, "source pieces", size=12, color=MUTED)
    c.text(290, 34, "pieces that they are linked to most often", size=12, color=MUTED)
    c.line("M400 128 L470 128", color=INK, arrow=True)
    c.line("M392 258 C440 258 430 150 470 140", color=INK, arrow=True)
    c.box(478, 90, 110, 84, "", fill=GREY)
    c.text(533, 126, "about 350", bold=True)
    c.text(533, 146, "of 8,000", color=MUTED)
    c.line("M592 132 L640 132", color=INK, arrow=True)
    c.box(644, 102, 92, 60, "softmax", fill=PALE[BLUE], stroke=BLUE)
    c.text(380, 312, "The output layer multiplies only the listed rows; scores are normalised over the list.", size=13, color=MUTED)
    return c


def candidate_tables() -> Canvas:
    """How the candidates of one slot come about."""
    c = Canvas(760, 330, "Candidates of one slot from tables of counts")
    for column, word in enumerate(("▁A", "▁man", "▁reads", ".")):
        c.box(60 + column * 120, 34, 96, 38, word, fill=PALE[BLUE], stroke=BLUE)
        weight = (0.1, 0.7, 0.15, 0.05)[column]
        c.line(f"M{108 + column * 120} 76 L{258 + (column - 1.5) * 26:g} 150", color=GREEN, width=1 + 4 * weight, arrow=True)
        c.text(108 + column * 120 + (-30 if column < 2 else 30), 110, f"{weight:g}", size=12, color=GREEN)
    c.text(560, 58, "source, S = 4", anchor="start", color=MUTED)
    c.text(560, 112, "P(s | S, t): where slot t looks", anchor="start", size=13, color=GREEN)
    c.box(198, 154, 120, 42, "slot t = 1", fill=GREY, bold=True)
    c.line("M258 198 L258 226", color=INK, arrow=True)
    for rank, (word, share) in enumerate((("▁Mann", "0.52"), ("▁Mensch", "0.11"), ("▁Mannes", "0.06"), ("▁liest", "0.04"))):
        c.box(74 + rank * 100, 230, 90, 38, word, fill=PALE[ORANGE], stroke=ORANGE)
        c.text(119 + rank * 100, 288, share, size=12, color=ORANGE)
    c.text(500, 254, "P(y | x, t): the K largest are kept", anchor="start", size=13, color=ORANGE)
    c.text(
        380,
        318,
        "P(y | x, t) sums P(y | x_s, s − t) P(s | S, t) over source positions s; no network is involved.",
        size=13,
        color=MUTED,
    )
    return c


def word_alignment() -> Canvas:
    """Links of a sentence pair over the diagonal prior."""
    c = Canvas(760, 360, "Word links over a prior that favours the diagonal")
    source = ("Today", "the", "man", "reads", "an", "old", "book")
    target = ("Heute", "liest", "der", "Mann", "ein", "altes", "Buch")
    links = {(0, 0), (1, 3), (2, 1), (3, 2), (4, 4), (5, 5), (6, 6)}
    for row, word in enumerate(target):
        c.text(210, 74 + row * 38, word, anchor="end")
        for column in range(len(source)):
            near = 1 - abs(row - column) / 6
            shade = f"#{int(255 - 90 * near * near):02x}{int(255 - 50 * near * near):02x}ff"
            c.box(222 + column * 64, 50 + row * 38, 64, 38, fill=shade, stroke="#c9d4e2")
            if (row, column) in links:
                c.circle(254 + column * 64, 69 + row * 38, 9, fill=BLUE, stroke=BLUE)
    for column, word in enumerate(source):
        c.text(254 + column * 64, 40, word)
    c.text(
        380, 342, "Dots: the most probable link of each target word. Shade: the prior exp(−λ |i/n − j/m|).", size=13, color=MUTED
    )
    return c


def ngram() -> Canvas:
    """Back-off of an n-gram that was never seen."""
    c = Canvas(760, 250, "An n-gram model backs off to shorter contexts")
    rows = (
        ("ein Mann liest", "▸ schnell", "never seen: add the back-off weight of this context", ORANGE),
        ("Mann liest", "▸ schnell", "never seen: add its back-off weight too", ORANGE),
        ("liest", "▸ schnell", "seen: its probability ends the sum", GREEN),
    )
    for row, (context, word, meaning, color) in enumerate(rows):
        y = 34 + row * 58
        c.box(40 + row * 42, y, 150 - row * 42, 38, context, fill=PALE[BLUE], stroke=BLUE)
        c.box(196, y, 100, 38, word, fill=PALE[color], stroke=color)
        c.text(320, y + 24, meaning, anchor="start", size=13, color=MUTED)
        if row < 2:
            c.line(f"M246 {y + 40} L246 {y + 54}", color=INK, arrow=True)
    c.text(
        380, 232, "log p(schnell | ein Mann liest) = b(ein Mann liest) + b(Mann liest) + log p(schnell | liest)", size=13, color=INK
    )
    return c
