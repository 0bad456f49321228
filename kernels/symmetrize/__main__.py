"""Run `python -m kernels.symmetrize -i FORWARD -j REVERSE -c METHOD`, a counterpart of upstream's atools."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

from fewstep.commands.options import Once
from fewstep.text.escape import escaped
from kernels.symmetrize import METHODS, symmetrize

LINK = re.compile(r"(\d{1,9})-(\d{1,9})")


def links_of(line: str, place: str) -> list[tuple[int, int]]:
    """Return the links of a line: `0-0 1-2`, `links ||| score` or `source ||| target ||| links ||| score`.

    Raises ValueError for any other line.
    """
    fields = line.split("|||")
    if len(fields) not in (1, 2, 4):
        raise ValueError(
            f"{place}: expected links, `links ||| score` or `source ||| target ||| links ||| score`, got {line!r:.100}"
        )
    links = []
    for word in fields[2 if len(fields) == 4 else 0].split():
        if not (found := LINK.fullmatch(word)):
            raise ValueError(f"{place}: expected links such as 0-0 1-2, got {word!r:.40}")
        links.append((int(found[1]), int(found[2])))
    return links


def read(path: str) -> Iterator[list[tuple[int, int]]]:
    with sys.stdin if path == "-" else open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for number, line in enumerate(file, 1):
            yield links_of(line, f"{path}, line {number}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.symmetrize", description="Join the links of two directions.")
    parser.add_argument(
        "-i",
        "--input_1",
        action=Once,
        required=True,
        help="Links of the forward direction, one line per pair; - for the standard input.",
    )
    parser.add_argument("-j", "--input_2", action=Once, required=True, help="Links of the reverse direction.")
    parser.add_argument(
        "-c", "--command", action=Once, required=True, choices=METHODS, help="The method that combines both directions."
    )
    arguments = parser.parse_args()
    try:
        forward, reverse = list(read(arguments.input_1)), list(read(arguments.input_2))
        if len(forward) != len(reverse):
            raise ValueError(f"expected files of equally many lines, got {len(forward)} and {len(reverse)}")
        for links in symmetrize(forward, reverse, arguments.command):
            print(*(f"{source}-{target}" for source, target in links))
    except (ValueError, OSError) as error:
        print(f"symmetrize: {escaped(str(error))}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
