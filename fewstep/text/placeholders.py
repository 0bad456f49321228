"""Placeholders: the parts of a text that a translation keeps as they are.

| kind | examples |
|---|---|
| `code` | `` ``x`` ``, `` `x` `` unless a role or `>` stands in front |
| `url` | `https://example.org/a`, `mailto:a@b.org` |
| `tag` | `<b>`, `</b>`, `<br/>` |
| `reference` | `` :func:`len` ``, `` :ref:`label` ``: a role with one word that is no text |
| `role` | `:ref:`, `:py:class:`, `:term:` in front of other text in a backquote |
| `directive` | `%s`, `%(name)d`, `%1$s`, `{0}`, `{name!r}`, `{{ name }}`, `${name}` |
| `entity` | `&nbsp;`, `&#160;` |

Two texts have the same placeholders if each occurs as often in both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from fewstep.text.languages import UNSPACED

_AROUND = rf"\s<>\"'`{UNSPACED}\u3000-\u303f\uff01-\uff65"
"""Characters that end a URL, as in a class: among them those of scripts without spaces, whose text goes on directly behind it, and
their punctuation."""
PLACEHOLDER = re.compile(
    r"""
      (?P<code>``(?=\S)(?:[^`]|`(?!`))+?(?<=\S)``(?!`)|(?<![`:>])(?<!<word>)`(?=\S)[^`\n]+(?<=\S)`(?![`_]))
    | (?P<url>(?:https?|ftp)://[^<around>]*[^<around>.,;:!?)\]}]|mailto:[^<around>]*<word>)
    | (?P<tag></?[A-Za-z][\w:.-]*(?:\s[^<>]*|)/?>)
    | (?P<reference>(?<!:)(?<!<word>):(?:[a-zA-Z][\w+.-]*:)*
        (?!(?:term|dfn|abbr|token|kbd|guilabel|menuselection|emphasis|strong|title|sub|sup)(?:-reference|script)?:)
        [a-zA-Z][\w+.-]*:`[^`\s<>]+`(?!`))
    | (?P<role>(?<!:)(?<!<word>):[a-zA-Z][\w+.-]*(?::[a-zA-Z][\w+.-]*)*:(?=`))
    | (?P<directive>
          %\([^()\s]+\)[-+0\#]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]
        | %(?:\d+\$)?[-+0\#]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGcpsa@](?!<word>)
        | \{\{[^{}\n]*\}\}
        | \$\{[^{}\n]*\}
        | \{[A-Za-z0-9_.\[\]]*(?:![rsa])?(?::[^{}\n]*)?\}
      )
    | (?P<entity>&(?:[A-Za-z][A-Za-z0-9]*|\#\d+|\#[xX][0-9a-fA-F]+);)
    """.replace("<word>", rf"[^\W{UNSPACED}]").replace("<around>", _AROUND),
    re.X,
)
"""The pattern of all of them, with a group for each kind. `<word>` is a character of a word in scripts with spaces: text of other
scripts stands directly before and behind a placeholder."""


def placeholders(text: str) -> Iterator[re.Match[str]]:
    """Yield the placeholders of a text in order."""
    return PLACEHOLDER.finditer(text)


def changes(source: Counter[str], target: Counter[str]) -> str:
    """Return what a translation lacks, and what it has that its source lacks; empty if both have the same."""
    lacks, added = source - target, target - source
    parts = [f"lacks {_listed(lacks)}"] * bool(lacks) + [f"has {_listed(added)} in addition"] * bool(added)
    return f"the translation {' and '.join(parts)}" if parts else ""


def _listed(found: Counter[str]) -> str:
    return ", ".join(text if count == 1 else f"{text} ({count} times)" for text, count in found.items())
