"""A program with the arguments and the output of comet-score. The score of an output is the number of its words in the reference
for each word of the source; without references, a tenth for each word."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("-s", "--sources")
parser.add_argument("-t", "--translations", nargs="+")
parser.add_argument("-r", "--references")
parser.add_argument("--batch_size", type=int)
parser.add_argument("--gpus", type=int, default=1)
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--to_json", default="")
parser.add_argument("--model", default="Unbabel/wmt22-comet-da")
given = parser.parse_args()
assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1", "a download"
assert "PYTHONPATH" not in os.environ, "packages of another environment"
assert given.gpus == 0 and given.model.endswith(".ckpt")
json.load(open(given.model))
names = filter(None, (given.sources, *given.translations, given.references))
columns = [[line.strip() for line in open(name).readlines()] for name in names]
rows = [dict(zip(("src", "mt", "ref"), row)) for row in zip(*columns)]
for row in rows:
    words = row["mt"].split()
    row["COMET"] = len({*words} & {*row["ref"].split()}) / len(row["src"].split()) if "ref" in row else len(words) / 10
EDIT
print(given.translations[0], "score: 0.5")
json.dump({given.translations[0]: rows}, open(given.to_json, "w"), ensure_ascii=False, indent=4)
"""


def program(folder: Path, edit: str = "") -> str:
    """Write the program, which does `edit` before it writes."""
    path = folder / "comet-score"
    path.write_text(f"#!{sys.executable}\n{PROGRAM.replace('EDIT', edit)}")
    path.chmod(0o755)
    return str(path)
