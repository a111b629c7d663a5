"""`check`: is the index what it says it is, and can it be mended?"""

import asyncio
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from rag_context.api.maintenance import CheckResponse, FlawReport
from rag_context.cli.exits import ExitCode
from rag_context.cli.in_process import MODEL_PATIENCE_S
from rag_context.cli.options import Chosen
from rag_context.cli.screen import Screen, safe
from rag_context.cli.settings import load_available
from rag_context.domain.integrity import Examination, Thoroughness
from rag_context.errors import BackendError, IndexMismatchError
from rag_context.logs import configure_logging
from rag_context.service.audit import report
from rag_context.settings import Settings
from rag_context.wiring import open_audit, open_service
from rag_context.wiring.stores import begin_empty_index


@dataclass(frozen=True, slots=True)
class Check:
    """What the command line asks for."""

    repair: bool
    thoroughness: Thoroughness
    as_json: bool


def run(chosen: Chosen, what: Check) -> ExitCode:
    """Examine, mend if that was asked for, and say what is left."""
    screen = Screen()
    settings = load_available(chosen).settings
    configure_logging("error")
    checked = asyncio.run(_check(settings, what, screen))
    if what.as_json:
        screen.line(checked.to_json().decode())
    else:
        _print(checked, screen)
    return ExitCode.OK if checked.sound else ExitCode.FAILED


def start_empty(chosen: Chosen) -> ExitCode:
    """Begin an empty index where one is gone; a running server uses it at once."""
    screen = Screen()
    settings = load_available(chosen).settings
    lost = begin_empty_index(settings)
    screen.show(f"An empty index was begun in {settings.data_dir}{f' in place of {lost}' if lost else ''}.")
    return ExitCode.OK


async def _check(settings: Settings, what: Check, screen: Screen) -> CheckResponse:
    async with open_audit(settings) as audit:
        found = await audit.examine(what.thoroughness)
        if not what.repair:
            return report(found, what.thoroughness)
        if found.flaws:
            await audit.mend(found)
    if any(flaw.mendable for flaw in report(found, what.thoroughness).flaws):
        await _restore(settings, found, screen)
    async with open_audit(settings) as audit:
        return report(await audit.examine(what.thoroughness), what.thoroughness, before=found)


async def _restore(settings: Settings, found: Examination, screen: Screen) -> None:
    """What takes the tokenizer or the model. Without the model documents wait, as they do after any failure of it."""
    try:
        async with open_service(settings) as service:
            await service.wait_ready(MODEL_PATIENCE_S)
            await service.restore(found.broken, lambda _done, _total: None)
    except (BackendError, IndexMismatchError) as error:
        screen.warning(f"not all vectors could be made now: {error}")


def _print(checked: CheckResponse, screen: Screen) -> None:
    state = ("sound", "bold green") if checked.sound else ("not sound", "bold red")
    held = f" · {checked.documents} documents in {checked.chunks} chunks, {checked.pending} pending"
    screen.show(Text.assemble(state, held))
    if checked.compared_terms < checked.chunks:
        screen.show(f"Terms were compared in a sample of {checked.compared_terms} chunks; --full compares all.")
    if checked.mended:
        screen.show("Mended:")
        screen.show(_table(checked.mended))
    if checked.flaws:
        screen.show("Left:" if checked.mended is not None else "Found:")
        screen.show(_table(checked.flaws))


def _table(flaws: list[FlawReport]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("Kind", "Count", "What", "For example", "--repair"):
        table.add_column(column, justify="right" if column == "Count" else "left")
    for flaw in flaws:
        examples = safe(", ".join(flaw.examples[:3]))
        table.add_row(flaw.kind, str(flaw.count), flaw.says, examples, flaw.repair)
    return table
