"""What can go wrong in a stage. `pipeline.errors` turns each into an exit code."""


class FewstepError(Exception):
    """A failure that is explained to the user in one message, without a traceback.

    The message says where, what was expected, what was got and what to do.
    """


class DataError(FewstepError):
    """The user's text or files cannot be used: missing, unequal, badly encoded, empty (exit code 2)."""


class ArtifactError(FewstepError):
    """A finished artifact is not what its manifest says, or was written by another version (exit code 1)."""


class StageError(FewstepError):
    """A step failed for a reason that lies in the machine: disk full, memory, a dead worker (exit code 1)."""


class TransientError(StageError):
    """A failure that is worth another attempt: the executor repeats the step."""
