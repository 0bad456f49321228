"""A process that sets its limits and reads a Parquet file: `python -m stages.corpus.readers.parquet_limits < REQUEST > ANSWER`.

The request is JSON: {path, languages, columns, whole, memory, seconds}; `whole` false: the footer alone. The answer is JSON:
{groups}, the rows of each row group, or {problem}.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from stages.corpus.readers.parquet import checked_groups
from stages.errors import DataError


def main() -> None:
    """Answer a request. A file that is beyond the limits ends the process, or raises an error that has no answer."""
    request = json.load(sys.stdin)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize() if os.path.exists("/proc") else 0
    limits = {resource.RLIMIT_DATA: used + request["memory"], resource.RLIMIT_CPU: request["seconds"], resource.RLIMIT_CORE: 0}
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))
    try:
        groups = checked_groups(Path(request["path"]), tuple(request["languages"]), request["columns"], whole=request["whole"])
    except DataError as error:
        json.dump({"problem": str(error)}, sys.stdout)
    else:
        json.dump({"groups": groups}, sys.stdout)


if __name__ == "__main__":
    main()
