"""Errors of the pipeline, and what each means to the shell: 2 for what a user wrote, 1 for what failed while running."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.urls import masked
from stages.errors import ArtifactError, DataError, FewstepError, StageError, TransientError

__all__ = ["ArtifactError", "ConfigError", "DataError", "FewstepError", "StageError", "TransientError", "exit_code"]


class ConfigError(FewstepError):
    """A config cannot be used. It carries all that is wrong at once, one line per problem (exit code 2)."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(masked(problem) for problem in problems)
        super().__init__("\n".join(self.problems))


def exit_code(error: BaseException) -> int:
    """2 if the user must change the config, the command or the text; 1 for all else."""
    return 2 if isinstance(error, ConfigError | DataError) else 1
