"""`backup` and `restore`: a data directory as one file, and back."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console, counted
from rag_context.cli.options import Options, argument, option, with_options
from rag_context.cli.transfer_commands import STREAM, unwritable, written
from rag_context.errors import InvalidInputError
from rag_context.logs import configure_logging
from rag_context.wiring.backups import back_up, restore


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions(Options):
    file: Path = argument("The backup; - is stdout.", "FILE")
    with_configuration: bool = option(False, "Also the configuration file, with the keys and passwords in it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions(Options):
    file: Path = argument("What `backup` wrote; - is stdin.", "FILE")
    overwrite: bool = option(False, "Set aside what the data directory holds, in a folder of it.")


@with_options
def backup(options: BackupOptions) -> ExitCode:
    """Write the data directory to one file, as it is at one moment, beside a running server.

    The file gets its name once it is complete. `restore` puts it into a data directory.
    """
    console = Console()
    loaded = options.load_available()
    configure_logging("error")
    beside = Path.cwd() if options.file == STREAM else options.file.absolute().parent
    try:
        with written(options.file) as file:
            configuration = loaded.file if options.with_configuration else None
            receipt = back_up(loaded.settings, file, beside, configuration)
    except OSError as error:
        raise unwritable(options.file, error) from error
    if options.as_json:
        print(json.dumps(asdict(receipt)), file=sys.stderr if options.file == STREAM else sys.stdout)
    else:
        size = sum(part.bytes for part in receipt.parts)
        console.note(
            f"{counted(receipt.documents, 'document')} and {counted(receipt.collections, 'collection')} backed up, "
            f"{size / 1e6:,.1f} MB in {counted(len(receipt.parts), 'file')}."
        )
    return ExitCode.OK


@with_options
def restore_backup(options: RestoreOptions) -> ExitCode:
    """Put a backup into an empty data directory, once all of it was read and checked.

    Nothing is changed if the file is not a whole backup, if its index is not sound, or while a process uses the data.
    """
    console = Console()
    settings = options.load_available().settings
    configure_logging("error")
    try:
        with sys.stdin.buffer if options.file == STREAM else options.file.open("rb") as file:
            receipt, aside = run_to_end(restore(settings, file, over=options.overwrite))
    except OSError as error:
        raise InvalidInputError(f"{options.file} cannot be restored: {error.strerror}.") from error
    if options.as_json:
        console.line(json.dumps({**asdict(receipt), "setAside": None if aside is None else str(aside)}))
    else:
        console.show(
            f"{counted(receipt.documents, 'document')} and {counted(receipt.collections, 'collection')} of "
            f"{receipt.made_at[:19]} restored into {settings.data_dir}; the index is sound."
        )
        if aside is not None:
            console.show(f"What was there is in {aside}.")
    return ExitCode.OK
