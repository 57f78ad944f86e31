"""Every error a user can cause: one line that names the value and what would work."""

LONGEST = 2000
"""Characters of a message: values from outside have any length."""


def one_line(text: str) -> str:
    """The text with everything escaped that does not print: names from a file may hold what steers a terminal."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


class SoftDLMError(Exception):
    """Base of all errors raised on purpose: one line, whatever was put into it."""

    exit_code = 2
    """Of the command line: 2 for what was asked, 1 for what the machine could not do."""

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class UsageError(SoftDLMError, ValueError):
    """An argument that cannot be meant."""


class CheckpointError(SoftDLMError):
    """A checkpoint that is not what its configuration says, or of a family we do not know."""


class TokenizerError(SoftDLMError):
    """Text was given to a model without a tokenizer, or the tokenizer contradicts the checkpoint."""


class ResultsError(SoftDLMError):
    """Results on disk that cannot be written or read, or that another process is writing."""

    exit_code = 1


class PromptError(SoftDLMError, ValueError):
    """A prompt that this model cannot decode."""


class PassError(SoftDLMError):
    """A forward pass that failed: the requests that took part in it end with this error."""

    exit_code = 1


class CapacityError(SoftDLMError):
    """A request that needs more memory than there is."""

    exit_code = 1


class SandboxError(SoftDLMError):
    """Generated code cannot be run safely here, or could not be run at all."""

    exit_code = 1


class ClusterError(SoftDLMError):
    """A cluster that cannot be reached, or that has no room for the workers it was asked for."""

    exit_code = 1
