"""How a command ends: the exit status, and one sentence on stderr that says why and what to do."""

from enum import IntEnum
from typing import TYPE_CHECKING

from rag_context.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ForeignIndexError,
    InvalidInputError,
    RagContextError,
)

if TYPE_CHECKING:
    from rag_context.cli.console import Screen


class ExitCode(IntEnum):
    """The statuses of every command; 75 and 78 are those of sysexits.h."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TRY_AGAIN = 75
    CONFIGURATION = 78
    INTERRUPTED = 130


EXIT_CODES = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "a failure, or an unhealthy state",
    ExitCode.USAGE: "invalid usage",
    ExitCode.TRY_AGAIN: "the server is unavailable or busy: try again",
    ExitCode.CONFIGURATION: "invalid configuration",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}

EPILOG = "Exit status: " + ", ".join(f"{code.value} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
"""What stands below the help of every command."""


def exit_code(error: RagContextError) -> ExitCode:
    """The status that tells a caller what kind of failure it was."""
    match error:
        case ConfigurationError() | ForeignIndexError():
            return ExitCode.CONFIGURATION
        case InvalidInputError():
            return ExitCode.USAGE
        case BackendUnavailableError():
            return ExitCode.TRY_AGAIN
        case _:
            return ExitCode.FAILED


def report(error: RagContextError, screen: "Screen") -> ExitCode:
    """Say what went wrong, a line per problem."""
    for line in str(error).splitlines():
        screen.error(line)
    return exit_code(error)
