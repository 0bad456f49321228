"""A process that lets sacrebleu extract a test set: `python extract_test_set.py < REQUEST > ANSWER`.

The request is JSON: {module, kind, name, data, langpairs, options, pair, archives, directory}. The first six describe an object of
sacrebleu, `archives` are the downloaded files in the order of `data`, and `directory` is empty. The answer is JSON: {source,
references}, paths of text files, or {problem}.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
from importlib import import_module
from typing import Any


def extract(request: dict[str, Any]) -> dict[str, Any]:
    """Return the paths of the source and of the references, after writing them into the directory."""
    from sacrebleu.utils import extract_tarball

    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)  # no member leaves the directory
    kind = getattr(import_module(request["module"]), request["kind"])
    dataset = kind(request["name"], data=request["data"], langpairs=request["langpairs"], **request["options"])
    pair = request["pair"]
    directory = request["directory"]
    dataset._outdir = directory
    dataset._rawdir = os.path.join(directory, "raw")
    os.makedirs(dataset._rawdir)
    for url, archive in zip(dataset.data, request["archives"], strict=True):
        own = os.path.join(dataset._rawdir, dataset._get_tarball_filename(url))  # sacrebleu finds it there and downloads nothing
        os.symlink(archive, own)
        extract_tarball(own, dataset._rawdir)
    dataset.process_to_text(pair)
    # From XML, sacrebleu returns them in an order that changes with each process.
    references = sorted(dataset.get_reference_files(pair))
    return {"source": dataset.get_source_file(pair), "references": references}


if __name__ == "__main__":
    try:
        answer = extract(json.load(sys.stdin))
    except Exception as error:  # of sacrebleu's readers and of archives
        answer = {"problem": f"{type(error).__name__}: {error}"}
    json.dump(answer, sys.stdout)
