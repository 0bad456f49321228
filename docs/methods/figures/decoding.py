"""Figures of methods that differ in what one call of the decoder writes."""

from __future__ import annotations

from svg import BLUE, GREEN, GREY, INK, MUTED, ORANGE, PALE, PAPER, STEPS, Canvas


def autoregressive() -> Canvas:
    """One call of the decoder a token."""
    c = Canvas(760, 250, "Autoregressive decoding: one call of the decoder for each token")
    c.box(30, 96, 120, 60, "encoder", fill=PALE[BLUE], stroke=BLUE)
    c.text(90, 186, "A man reads .", color=MUTED)
    c.line("M90 172 L90 160", color=MUTED, arrow=True)
    outputs = ("Ein", "Mann", "liest", ".", "EOS")
    inputs = ("BOS", *outputs[:-1])
    for step, (read, written) in enumerate(zip(inputs, outputs, strict=True)):
        x = 200 + step * 110
        c.box(x, 96, 86, 60, "decoder", fill=PALE[MUTED])
        c.text(x + 43, 72, written, bold=True)
        c.line(f"M{x + 43} 94 L{x + 43} 80", color=INK, arrow=True)
        c.text(x + 43, 186, read, color=MUTED)
        c.line(f"M{x + 43} 172 L{x + 43} 160", color=MUTED, arrow=True)
        c.text(x + 43, 36, f"step {step + 1}", size=12, color=MUTED)
        if step < 4:
            c.line(f"M{x + 62} 66 C{x + 100} 66 {x + 98} 182 {x + 134} 182", color=ORANGE, arrow=True)
    c.line("M152 126 L196 126", color=BLUE, arrow=True)
    c.text(
        380, 228, "A sentence of n tokens takes n + 1 calls. Every other method on these pages makes fewer.", size=13, color=MUTED
    )
    return c


ORDERS = (
    ("autoregressive", (1, 2, 3, 4, 5), "6 steps"),
    ("semi-autoregressive", (1, 1, 2, 2, 3), "3 steps"),
    ("interleaved", (1, 2, 3, 2, 1), "3 steps"),
    ("interleaved-sa", (1, 1, 2, 1, 1), "2 steps"),
    ("multi-directional", (1, 2, 1, 1, 1), "2 steps"),
)


def orders() -> Canvas:
    """The step in which each token of A B C D E is written."""
    c = Canvas(760, 330, "The step in which each order writes each token")
    for column, token in enumerate("ABCDE"):
        c.text(255 + column * 76, 36, token, bold=True, size=16)
    for row, (name, steps, count) in enumerate(ORDERS):
        y = 56 + row * 50
        c.text(30, y + 25, name, anchor="start")
        for column, step in enumerate(steps):
            c.box(222 + column * 76, y, 66, 38, str(step), fill=STEPS[step - 1])
        c.text(630, y + 25, count, anchor="start", color=MUTED)
    c.text(
        380, 318, "Numbers and colours are steps; EOS takes the slot after the last token in writing order.", size=13, color=MUTED
    )
    return c


def masks() -> Canvas:
    """The relaxed causal mask for one, two and four tokens a step."""
    c = Canvas(760, 250, "Relaxed causal masks")
    for panel, (step, name) in enumerate(((1, "M(1, 1): one token"), (2, "M(2, 1): interleaved"), (4, "M(2, 2): interleaved-sa"))):
        left, top, cell = 60 + panel * 240, 50, 20
        c.text(left + 80, 32, name, bold=True)
        for query in range(8):
            for key in range(8):
                fill = PALE[BLUE] if query // step >= key // step else PAPER
                c.box(left + key * cell, top + query * cell, cell, cell, fill=fill, stroke="#b8c4d2")
    c.text(
        380,
        236,
        "Row: the slot that is predicted. Column: an input slot. Blue: visible. Inputs are shifted by one step.",
        size=13,
        color=MUTED,
    )
    return c


def double_token() -> Canvas:
    """A sentence folded into pairs, and unfolded again."""
    c = Canvas(760, 290, "Double-token bidirectional decoding folds the target into pairs")
    words = ("We", "will", "go", "to", "Tokyo", ".")
    for index, word in enumerate(words):
        left = index < 3
        c.box(135 + index * 84, 26, 74, 36, word, fill=PALE[BLUE if left else ORANGE], stroke=BLUE if left else ORANGE)
    pairs = (("We", "."), ("will", "Tokyo"), ("go", "to"), ("EOS", "EOS"))
    for step, pair in enumerate(pairs):
        x = 110 + step * 140
        c.text(x + 60, 122, f"step {step + 1}", size=12, color=MUTED)
        for side, word in enumerate(pair):
            color = (BLUE, ORANGE)[side]
            c.box(x, 134 + side * 48, 120, 40, word, fill=PALE[color] if step < 3 else GREY, stroke=color)
        if step < 3:
            c.line(f"M{x + 122} 178 L{x + 138} 178", color=INK, arrow=True)
    c.text(92, 160, "left", anchor="end", color=BLUE)
    c.text(92, 208, "right", anchor="end", color=ORANGE)
    c.text(380, 96, "each step writes the next token from the left end and the next from the right end", size=13, color=MUTED)
    c.text(
        380,
        268,
        "The left row is read forwards, then the right row backwards: no length has to be predicted.",
        size=13,
        color=MUTED,
    )
    return c


def aggressive() -> Canvas:
    """Two passes of drafting and verifying."""
    c = Canvas(760, 400, "Drafting and verifying: two passes")
    passes = (
        ("pass 1", 0, ("Ein", "Mann", "las", "ein"), ("Ein", "Mann", "liest"), 2),
        ("pass 2", 3, ("ein", "Buch", "."), ("ein", "Buch", ".", "EOS"), 3),
    )
    for row, (name, first, drafts, verified, kept) in enumerate(passes):
        y = 30 + row * 175
        c.text(30, y + 24, name, anchor="start", bold=True)
        c.text(30, y + 56, "drafter", anchor="start", color=ORANGE)
        c.text(30, y + 116, "verifier", anchor="start", color=BLUE)
        for index in range(first):
            c.box(120 + index * 86, y + 36, 78, 36, ("Ein", "Mann", "liest")[index], fill=GREY)
        for index, word in enumerate(drafts):
            x = 120 + (first + index) * 86
            good = index < kept
            c.box(x, y + 36, 78, 36, word, fill=PALE[GREEN] if good else PALE[ORANGE], stroke=GREEN if good else ORANGE)
            c.line(f"M{x + 39} {y + 74} L{x + 39} {y + 92}", color=GREEN if good else ORANGE, arrow=True, dashed=index > kept)
        for index, word in enumerate(verified):
            x = 120 + (first + index) * 86
            own = index == kept
            c.box(x, y + 96, 78, 36, word, fill=PALE[BLUE] if own else PALE[GREEN], stroke=BLUE if own else GREEN, bold=own)
        verdict = "2 kept, 1 corrected: 3 tokens" if row == 0 else "3 kept, 1 more: 4 tokens"
        c.text(740, y + 152, verdict, anchor="end", size=13, color=MUTED)
    c.text(
        380,
        390,
        "The verifier scores a block in one pass, and writes the token after the last draft that it keeps.",
        size=13,
        color=MUTED,
    )
    return c
