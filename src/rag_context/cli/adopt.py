"""`adopt`: copies of documents that other programs stored in a form of their own, in this index."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from rag_context.api.maintenance import AdoptedSource, AdoptionReceipt
from rag_context.api.wire import Vocabulary
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console, counted
from rag_context.cli.local_connection import MODEL_WAIT_S, InProcess, with_bulk_timeout
from rag_context.cli.options import Options, option, resumable, with_options
from rag_context.cli.summary import stages
from rag_context.errors import NotFoundError
from rag_context.settings import Settings
from rag_context.transfer.adopter import EXAMPLES, Adopted, Adopter, AdoptionPlan, Passages, RecordReader
from rag_context.wiring.opening import open_adopting
from rag_context.wiring.transfers import AdoptionOrigin, open_origins


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptOptions(Options):
    mongodb: str | None = option(None, "A MongoDB whose documents are taken over.", metavar="URI")
    qdrant: str | None = option(None, "A Qdrant whose points are taken over.", metavar="URL")
    chroma: str | None = option(None, "A Chroma whose rows are taken over.", metavar="URL|FOLDER")
    collection: str | None = option(
        None, "Qdrant's or Chroma's collection; p4nth30n_context if absent.", metavar="NAME"
    )
    dry_run: bool = option(False, "Only show what would be taken over.")


@with_options
def adopt(options: AdoptOptions) -> ExitCode:
    """Copy documents of other programs, in MongoDB, Qdrant or Chroma, into this index; the originals stay.

    Reads the form of `C0N7EXT` documents and of their points: without a source, the MongoDB and the Qdrant of the
    settings. Copies are embedded by the model in use. A repetition adds what is missing, and keeps what was changed
    here since. Exits 1 when a document was rejected.
    """
    console = Console()
    settings = with_bulk_timeout(options.load_for_work().settings)
    with resumable(console, lambda: "What was taken over is safe: run the same command again, it goes on."):
        receipts = run_to_end(_adopt(settings, options, console))
    if options.as_json:
        console.line(AdoptionReceipt(dry_run=options.dry_run, sources=receipts).to_json().decode())
    else:
        for receipt in receipts:
            _show(receipt, options, console)
    return ExitCode.FAILED if any(receipt.rejected for receipt in receipts) else ExitCode.OK


async def _adopt(settings: Settings, options: AdoptOptions, console: Console) -> list[AdoptedSource]:
    places = {name: getattr(options, name) for name in ("mongodb", "qdrant", "chroma", "collection")}
    async with AsyncExitStack() as stack:
        vocabulary = Vocabulary.extended(settings.vocabulary.content_types, settings.vocabulary.categories)
        reader = RecordReader(vocabulary.content_types)
        plans = await _plans(reader, await open_origins(settings, stack, **places))
        if options.dry_run:
            return [_receipt(origin, plan, Adopted(rejected=plan.rejected)) for origin, plan in plans]
        documents, service = await stack.enter_async_context(open_adopting(settings))
        adopter = Adopter(reader, documents, InProcess(service, settings).bulk)
        await service.wait_ready(MODEL_WAIT_S)
        service.model()  # raises where the index cannot be used with it
        with stages(console) as show:
            receipts = []
            for origin, plan in plans:
                adopted = await adopter.adopt(origin.source, plan, partial(show, "Adopting", "documents"))
                if origin.mark_adopted is not None and adopted.is_complete:
                    await origin.mark_adopted(plan.records)
                receipts.append(_receipt(origin, plan, adopted))
            return receipts


async def _plans(reader: RecordReader, origins: list[AdoptionOrigin]) -> list[tuple[AdoptionOrigin, AdoptionPlan]]:
    """What each origin holds; passages of documents that an earlier origin has are left out."""
    plans: list[tuple[AdoptionOrigin, AdoptionPlan]] = []
    covered: set[str] = set()
    for each in origins:
        source = Passages(each.source, covered) if each.has_passages else each.source
        origin = AdoptionOrigin(source, each.has_passages, each.is_requested, each.mark_adopted)
        try:
            plan = await reader.plan(source)
        except NotFoundError:
            if each.is_requested:
                raise
            continue
        covered |= plan.chunk_ids
        plans.append((origin, plan))
    return plans


def _receipt(origin: AdoptionOrigin, plan: AdoptionPlan, adopted: Adopted) -> AdoptedSource:
    return AdoptedSource(
        source=origin.source.label,
        records=plan.records + plan.covered,
        documents=len(plan.newest),
        superseded=plan.superseded,
        covered=plan.covered,
        without_text=plan.without_text,
        outcomes=dict(adopted.outcomes),
        rejected=len(adopted.rejected),
        reasons=dict(list(adopted.rejected.items())[:EXAMPLES]),
    )


def _show(receipt: AdoptedSource, options: AdoptOptions, console: Console) -> None:
    verb = "would be taken over" if options.dry_run else "taken over"
    console.show(f"{receipt.source}: {counted(receipt.documents, 'document')} {verb}, of {receipt.records} records.")
    parts = [f"{count} {outcome}" for outcome, count in sorted(receipt.outcomes.items())]
    parts += [f"{receipt.superseded} earlier versions"] if receipt.superseded else []
    parts += [f"{receipt.covered} passages of documents that are taken over as a whole"] if receipt.covered else []
    parts += [f"{receipt.without_text} without text"] if receipt.without_text else []
    parts += [f"{receipt.rejected} rejected"] if receipt.rejected else []
    if parts:
        console.show(", ".join(parts))
    for record, reason in receipt.reasons.items():
        console.warning(f"{record}: {reason}")
