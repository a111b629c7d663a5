"""Activating projects: who works on which, and that the index follows the files while someone does."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from rag_context.api.projects import ListDocTypesRequest
from rag_context.domain.callers import ANONYMOUS, Bounds, CallerId
from rag_context.domain.documents import Tenant
from rag_context.errors import BackendUnavailableError, ConfigurationError, InvalidInputError, NotFoundError
from rag_context.projects.activation import Projects
from rag_context.projects.project_opening import Activation
from rag_context.projects.project_requests import ProjectResolver
from rag_context.projects.records import (
    DocumentNotFoundError,
    ExternalDocsNotPromotableError,
    ProjectNotActivatedError,
    PromotionLevel,
    SchemaValidationError,
)
from rag_context.projects.sync import SyncProgress
from rag_context.stores.machine_tables import SqliteProjectRegistry
from rag_context.testing import Fault, Faulty
from tests.projects.sync_harness import ManualWatch, SyncHarness, configure, write

ONE, TWO = CallerId("one"), CallerId("two")
SAMPLE = Path(__file__).parents[2] / "examples" / "sample-project"


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that happens in the background."""
    async with asyncio.timeout(120):
        while not await holds():
            await asyncio.sleep(0.02)


@pytest.fixture
async def projects(harness: SyncHarness) -> AsyncIterator[Projects]:
    projects = Projects(harness.indexer, harness.documents)
    yield projects
    await projects.aclose()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository on the branch `main` with one document."""
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    configure(root)
    write(root / "docs" / "a.md", "# A\n")
    return root


async def test_an_activation_indexes_the_files_and_names_the_tenant(
    harness: SyncHarness, projects: Projects, shop: Path
) -> None:
    activation = await projects.activate(str(shop / ".rag-context" / "config.json"))
    assert (activation.tenant.project, activation.tenant.branch) == ("shop", "main")
    assert activation.docs_root == (shop / "docs").resolve()
    assert await harness.contents(activation.tenant) == {"a.md": "# A\n"}
    assert projects.followed(activation.tenant) is activation


async def test_an_activation_counts_for_who_may_see_the_project_alone(projects: Projects, shop: Path) -> None:
    """Tokens of one subject may have different bounds, and its activations are those of the subject."""
    activation = await projects.activate(str(shop))
    request = ListDocTypesRequest()
    for bounds, may in ((None, True), (Bounds(projects=("shop",)), True), (Bounds(projects=("other",)), False)):
        caller = CallerId("one", "token:ana", bounds)
        handle = projects.activations.note(replace(caller, bounds=None), activation)
        for named in ({}, {"activation": handle}, {"project": "shop"}):
            asking = ProjectResolver(projects).resolve(request.model_copy(update=named), caller)
            if may:
                assert (await asking).tenant == activation.tenant
            else:
                with pytest.raises((ProjectNotActivatedError, NotFoundError)):
                    await asking


@pytest.mark.parametrize("place", [".", ".rag-context", ".rag-context/config.json", "docs"])
async def test_a_project_may_be_named_by_any_of_its_folders(projects: Projects, shop: Path, place: str) -> None:
    assert (await projects.activate(str(shop / place))).config.path == shop / ".rag-context" / "config.json"


async def test_edits_renames_and_deletions_are_followed(harness: SyncHarness, projects: Projects, shop: Path) -> None:
    tenant = (await projects.activate(str(shop))).tenant

    async def holds(expected: dict[str, str]) -> None:
        async def as_expected() -> bool:
            return await harness.contents(tenant) == expected

        await until(as_expected)

    write(shop / "docs" / "sub" / "b.md", "# B\n")
    write(shop / "docs" / "a.md", "# A2\n")
    await holds({"a.md": "# A2\n", "sub/b.md": "# B\n"})
    embedded = await harness.embedded()
    (shop / "docs" / "sub").rename(shop / "docs" / "new")
    await holds({"a.md": "# A2\n", "new/b.md": "# B\n"})
    assert await harness.embedded() == embedded
    (shop / "docs" / "a.md").unlink()
    await holds({"new/b.md": "# B\n"})


async def test_a_file_that_could_not_be_stored_is_tried_again(
    harness: SyncHarness, projects: Projects, shop: Path
) -> None:
    tenant = (await projects.activate(str(shop))).tenant
    harness.writer.fault = Fault(BackendUnavailableError("documents", "gone"))
    calls = harness.writer.calls
    write(shop / "docs" / "b.md", "# B\n")

    async def was_tried() -> bool:
        return harness.writer.calls > calls

    async def is_there() -> bool:
        return "b.md" in await harness.contents(tenant)

    await until(was_tried)
    harness.writer.fault = None
    await until(is_there)


async def test_another_branch_is_followed_for_every_caller(
    harness: SyncHarness, projects: Projects, shop: Path
) -> None:
    main = await projects.activate(str(shop))
    handle = projects.activations.note(ONE, main)
    embedded = await harness.embedded()
    (shop / ".git" / "HEAD").write_text("ref: refs/heads/next\n")

    async def is_next() -> bool:
        everybody = (*projects.activations.of(ONE), *projects.activations.of(ANONYMOUS, handle))
        return {each.tenant.branch for each in everybody} == {"next"}

    await until(is_next)
    tenant = Tenant("shop", "next", main.tenant.path_hash)
    write(shop / "docs" / "b.md", "# B\n")

    async def is_there() -> bool:
        return "b.md" in await harness.contents(tenant)

    await until(is_there)
    assert await harness.contents(main.tenant) == {"a.md": "# A\n"}
    assert await harness.embedded() == embedded + 1


async def test_files_that_a_checkout_changes_stay_out_of_the_branch_before(harness: SyncHarness, shop: Path) -> None:
    watch = ManualWatch()
    projects = Projects(harness.indexer, harness.documents, watch=watch)
    main = await projects.activate(str(shop))
    (shop / ".git" / "index.lock").touch()
    write(shop / "docs" / "a.md", "# Next\n")
    watch.tell(main.docs_root, shop / "docs" / "a.md")
    await asyncio.sleep(0.2)  # a follower that does not wait for git has indexed it by now
    (shop / ".git" / "HEAD").write_text("ref: refs/heads/next\n")
    (shop / ".git" / "index.lock").unlink()

    async def is_next() -> bool:
        return await harness.contents(Tenant("shop", "next", main.tenant.path_hash)) == {"a.md": "# Next\n"}

    await until(is_next)
    assert await harness.contents(main.tenant) == {"a.md": "# A\n"}
    await projects.aclose()


async def test_a_file_is_indexed_for_the_branch_that_was_checked_out_a_moment_ago(
    harness: SyncHarness, shop: Path
) -> None:
    projects = Projects(harness.indexer, harness.documents, watch=ManualWatch())  # nothing is noticed by itself
    main = await projects.activate(str(shop))
    projects.activations.note(ONE, main)
    assert await projects.checked_out(main) is main
    (shop / ".git" / "HEAD").write_text("ref: refs/heads/next\n")
    write(shop / "docs" / "a.md", "# Next\n")
    now = await projects.checked_out(main)
    await projects.index_document(now, "a.md")
    await projects.promote(now, "a.md", PromotionLevel.CRITICAL)
    assert now.tenant == Tenant("shop", "next", main.tenant.path_hash)
    assert projects.activations.of(ONE) == (now,)
    assert await harness.contents(main.tenant) == {"a.md": "# A\n"}
    assert "critical" in (await harness.contents(now.tenant))["a.md"]
    await projects.aclose()


async def test_where_the_branch_that_is_checked_out_cannot_be_followed_no_file_is_touched(
    harness: SyncHarness, shop: Path
) -> None:
    projects = Projects(harness.indexer, harness.documents, watch=ManualWatch())
    main = await projects.activate(str(shop))
    (shop / ".git" / "HEAD").write_text("ref: refs/heads/next\n")
    configure(shop, project_name="Shop")
    for _ in range(2):
        with pytest.raises(ProjectNotActivatedError, match="Another branch than 'main'"):
            await projects.checked_out(main)
    assert await harness.contents(main.tenant) == {"a.md": "# A\n"}
    await projects.aclose()


async def test_what_is_tried_again_after_a_checkout_stays_out_of_the_branch_before(
    harness: SyncHarness, shop: Path
) -> None:
    projects = Projects(harness.indexer, harness.documents, watch=ManualWatch())
    harness.writer.fault = Fault(BackendUnavailableError("documents", "gone"))
    main = await projects.activate(str(shop))
    (shop / ".git" / "HEAD").write_text("ref: refs/heads/next\n")
    write(shop / "docs" / "a.md", "# Next\n")
    harness.writer.fault = None

    following = Tenant("shop", "next", main.tenant.path_hash)

    async def is_next() -> bool:
        return any([await harness.contents(tenant) for tenant in (main.tenant, following)])

    await until(is_next)
    assert await harness.contents(main.tenant) == {}
    assert await harness.contents(Tenant("shop", "next", main.tenant.path_hash)) == {"a.md": "# Next\n"}
    await projects.aclose()


async def test_a_branch_that_is_not_checked_out_stays_active_when_forced(projects: Projects, shop: Path) -> None:
    with pytest.raises(InvalidInputError, match="'main' is checked out, not 'review'"):
        await projects.activate(str(shop), "review")
    activation = await projects.activate(str(shop), "review", is_forced=True)
    assert (activation.tenant.branch, activation.branch_is_given) == ("review", True)


async def test_a_branch_that_is_named_and_checked_out_is_left_with_the_checkout(projects: Projects, shop: Path) -> None:
    assert (await projects.activate(str(shop), "main")).branch_is_given is False


async def test_a_branch_that_cannot_be_read_is_accepted(projects: Projects, shop: Path) -> None:
    (shop / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    assert (await projects.activate(str(shop), "topic")).branch_is_given is True


async def test_a_long_first_reconciliation_goes_on_behind_the_activation(harness: SyncHarness, shop: Path) -> None:
    for number in range(12):
        write(shop / "docs" / f"{number}.md", f"# {number}\n")
    projects = Projects(harness.indexer, harness.documents, first_sync_timeout_s=0.3)
    harness.writer.fault = Fault(delay_s=0.4)
    received: list[SyncProgress] = []
    try:
        activation = await projects.activate(str(shop), progress=received.append)
        state = projects.state(activation.tenant)
        assert state is not None
        assert state.first is None
        harness.writer.fault = None

        async def is_done() -> bool:
            return state.first is not None

        await until(is_done)
        assert len(await harness.contents(activation.tenant)) == 13
        assert received[-1].done == received[-1].total == 13
    finally:
        await projects.aclose()


@pytest.mark.parametrize("place", ["nowhere", "..", "docs/a.md", "a\0b", "", ".git/HEAD"])
async def test_an_invalid_project_configuration_is_rejected(projects: Projects, shop: Path, place: str) -> None:
    with pytest.raises(InvalidInputError, match=r"config\.json") as caught:
        await projects.activate(str(shop / place) if place else "/")
    assert caught.value.details[0].field == "config_path"


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"docs_path": "../elsewhere"}, "docs_path"),
        ({"docs_path": "/etc"}, "docs_path"),
        ({"external_docs": {"path": "../../x"}}, "external_docs.path"),
        ({"project_name": "No"}, "project_name"),
    ],
)
async def test_a_configuration_that_cannot_be_used_changes_nothing(
    projects: Projects, shop: Path, values: dict[str, object], place: str
) -> None:
    before = await projects.activate(str(shop))
    configure(shop, **values)
    with pytest.raises(SchemaValidationError) as caught:
        await projects.activate(str(shop))
    assert caught.value.details[0].field == place
    assert projects.followed(before.tenant) is before


async def test_a_docs_folder_that_is_a_link_out_of_the_repository_is_rejected(
    projects: Projects, shop: Path, tmp_path: Path
) -> None:
    shutil.rmtree(shop / "docs")
    write(tmp_path / "secret" / "s.md", "secret\n")
    (shop / "docs").symlink_to(tmp_path / "secret")
    with pytest.raises(SchemaValidationError, match="is outside the repository"):
        await projects.activate(str(shop))


async def test_a_project_whose_docs_folder_is_created_later_is_followed(
    harness: SyncHarness, projects: Projects, shop: Path
) -> None:
    shutil.rmtree(shop / "docs")
    tenant = (await projects.activate(str(shop))).tenant
    write(shop / "docs" / "b.md", "# B\n")

    async def is_there() -> bool:
        return set(await harness.contents(tenant)) == {"b.md"}

    await until(is_there)


async def test_an_index_that_cannot_be_read_activates_nothing(harness: SyncHarness, shop: Path) -> None:
    documents = Faulty(harness.documents, "tenants", "matching")
    documents.fault = Fault(BackendUnavailableError("documents", "gone"))
    projects = Projects(harness.indexer, documents.port)
    with pytest.raises(BackendUnavailableError):
        await projects.activate(str(shop))
    documents.methods = frozenset({"matching"})
    with pytest.raises(BackendUnavailableError):
        await projects.activate(str(shop))
    assert await projects.tenants.known() == ()
    assert await projects.project_records.records() == []
    await projects.aclose()


async def test_a_tenant_is_found_by_what_is_named_of_it(
    harness: SyncHarness, projects: Projects, shop: Path, tmp_path: Path
) -> None:
    configure(shop, external_docs={"path": "vendor"})
    write(shop / "vendor" / "x.md", "# X\n")
    main = (await projects.activate(str(shop), "main")).tenant
    assert await projects.tenants.named("shop") == main
    other = (await projects.activate(str(shutil.copytree(shop, tmp_path / "other")), "main")).tenant
    assert await projects.tenants.named("shop", "main", other.path_hash) == other
    with pytest.raises(InvalidInputError, match=main.path_hash):
        await projects.tenants.named("shop")
    with pytest.raises(NotFoundError, match=r"nonsuch.*existing projects: shop"):
        await projects.tenants.named("nonsuch")
    await projects.aclose()
    with pytest.raises(InvalidInputError, match="branch and path_hash"):
        await projects.tenants.named("shop", "main")
    with pytest.raises(NotFoundError, match="on branch 'old'; projects of that name: branch 'main'"):
        await projects.tenants.named("shop", "old")


async def test_one_file_is_indexed_on_request(harness: SyncHarness, projects: Projects, shop: Path) -> None:
    activation = await projects.activate(str(shop))
    write(shop / "docs" / "b.md", "---\ntitle: B\ndoc_type: tool\n---\n")
    document = await projects.index_document(activation, "b.md")
    assert (document.path, document.title, document.doc_type) == ("b.md", "B", "tool")
    assert document.warnings
    with pytest.raises(DocumentNotFoundError):
        await projects.index_document(activation, "c.md")
    with pytest.raises(InvalidInputError):
        await projects.index_document(activation, "../.rag-context/config.json")
    (shop / "docs" / "notes.csv").write_text("x")
    with pytest.raises(InvalidInputError, match="is not a document"):
        await projects.index_document(activation, "notes.csv")
    (shop / "docs" / "bad.md").write_bytes(b"\0")
    with pytest.raises(InvalidInputError, match="binary"):
        await projects.index_document(activation, "bad.md")


async def test_a_promotion_changes_file_record_and_chunks(harness: SyncHarness, projects: Projects, shop: Path) -> None:
    activation = await projects.activate(str(shop))
    done = await projects.promote(activation, "a.md", PromotionLevel.IMPORTANT)
    assert (done.previous, done.new) == (PromotionLevel.STANDARD, PromotionLevel.IMPORTANT)
    assert (shop / "docs" / "a.md").read_text().startswith("---\npromotion_level: important\n")
    stored = await harness.documents.get(done.document.id)
    assert stored is not None
    assert "promotion:important" in stored.metadata.tags
    again = await projects.promote(activation, str(shop / "docs" / "a.md"), PromotionLevel.STANDARD)
    assert (again.previous, again.new) == (PromotionLevel.IMPORTANT, PromotionLevel.STANDARD)


async def test_a_promotion_that_cannot_be_stored_leaves_the_file_as_it_was(
    harness: SyncHarness, projects: Projects, shop: Path
) -> None:
    activation = await projects.activate(str(shop))
    harness.writer.fault = Fault(BackendUnavailableError("documents", "gone"))
    with pytest.raises(BackendUnavailableError):
        await projects.promote(activation, "a.md", PromotionLevel.CRITICAL)
    assert (shop / "docs" / "a.md").read_bytes() == b"# A\n"
    harness.writer.fault = None
    found = (await projects.document_lists.of(activation.tenant)).by_path("a.md")
    assert found is not None
    assert found.promotion_level is PromotionLevel.STANDARD


async def test_a_caller_that_disconnects_leaves_no_half_promotion(harness: SyncHarness, shop: Path) -> None:
    projects = Projects(harness.indexer, harness.documents, watch=ManualWatch())
    activation = await projects.activate(str(shop))
    harness.writer.fault = Fault(delay_s=0.2)
    calls = harness.writer.calls
    asking = asyncio.create_task(projects.promote(activation, "a.md", PromotionLevel.CRITICAL))
    while harness.writer.calls == calls:
        await asyncio.sleep(0.01)
    asking.cancel()

    async def is_whole() -> bool:
        found = (await projects.document_lists.of(activation.tenant)).by_path("a.md")
        return found is not None and found.promotion_level is PromotionLevel.CRITICAL

    await until(is_whole)
    assert "critical" in (shop / "docs" / "a.md").read_text()
    await projects.aclose()


@pytest.mark.parametrize("path", ["nowhere.md", "../shop/docs/nowhere.md"])
async def test_what_is_no_document_cannot_be_promoted(projects: Projects, shop: Path, path: str) -> None:
    activation = await projects.activate(str(shop))
    with pytest.raises((DocumentNotFoundError, InvalidInputError)):
        await projects.promote(activation, path, PromotionLevel.CRITICAL)


async def test_external_documents_are_apart_and_read_only(
    harness: SyncHarness, projects: Projects, tmp_path: Path
) -> None:
    root = shutil.copytree(SAMPLE, tmp_path / "sample")
    activation = await projects.activate(str(root))
    assert activation.external is not None
    assert set(await harness.contents(activation.external)) == {"payments/errors.md", "payments/webhooks.md"}
    assert "payments/errors.md" not in await harness.contents(activation.tenant)
    before = (root / "vendor" / "payments" / "errors.md").read_bytes()
    for path in ("payments/errors.md", "vendor/payments/errors.md", str(root / "vendor" / "payments" / "errors.md")):
        with pytest.raises(ExternalDocsNotPromotableError):
            await projects.promote(activation, path, PromotionLevel.CRITICAL)
    assert (root / "vendor" / "payments" / "errors.md").read_bytes() == before


async def test_an_activation_is_complete_when_external_documents_are_there_too(
    harness: SyncHarness, shop: Path
) -> None:
    await Projects(harness.indexer, harness.documents).activate(str(shop))  # the documents are there already
    configure(shop, external_docs={"path": "vendor"})
    write(shop / "vendor" / "x.md", "# X\n")
    projects = Projects(harness.indexer, harness.documents, first_sync_timeout_s=0.3)
    harness.writer.fault = Fault(hang=True)
    try:
        activation = await projects.activate(str(shop))
        state = projects.state(activation.tenant)
        assert state is not None
        assert not state.complete
        assert activation.external is not None
        assert await harness.contents(activation.external) == {}
    finally:
        await projects.aclose()


async def test_the_sample_project_is_complete_and_without_warnings(
    harness: SyncHarness, projects: Projects, tmp_path: Path
) -> None:
    activation = await projects.activate(str(shutil.copytree(SAMPLE, tmp_path / "sample")))
    catalogue = await projects.document_lists.of(activation.tenant)
    assert catalogue.counts == {
        "problem": 3, "insight": 1, "codebase": 2, "tool": 2, "style": 1, "runbook": 1, "document": 1
    }  # fmt: skip
    assert [each.path for each in catalogue.documents if each.warnings] == []
    assert [each.path for each in catalogue.critical()] == ["codebase/card-data.md"]
    pool = catalogue.by_path("problems/connection-pool-exhaustion.md")
    assert pool is not None
    assert catalogue.superseded_by("problems/pool-timeouts.md") == (pool.path,)
    assert [each.path for each in await catalogue.links(pool)] == ["codebase/order-states.md", "tools/postgres-pool.md"]
    assert [each.path for each in catalogue.related(pool)] == ["insights/checkout-traffic.md"]


async def test_a_deletion_is_shown_before_it_is_made(harness: SyncHarness, projects: Projects, shop: Path) -> None:
    configure(shop, external_docs={"path": "vendor"})
    write(shop / "vendor" / "x.md", "# X\n")
    main = await projects.activate(str(shop), "main")
    other = await projects.activate(str(shop), "next", is_forced=True)
    for caller, activation in ((ONE, main), (TWO, other)):
        projects.activations.note(caller, activation)
    preview = await projects.tenants.deletion("shop", "main", None)
    assert (preview.documents, preview.chunks) == (2, 2)
    assert set(preview.tenants) == {main.tenant, main.external}
    assert len(await harness.contents(main.tenant)) == 1
    assert (await projects.tenants.deletion("shop", None, main.tenant.path_hash)).documents == 4
    assert (await projects.tenants.deletion("shop", None, "f" * 16)).documents == 0
    deleted = await projects.delete_documents("shop", "main", None)
    assert deleted == preview
    assert await harness.contents(main.tenant) == {}
    assert await harness.contents(other.tenant) == {"a.md": "# A\n"}
    assert projects.activations.of(ONE) == ()
    assert projects.activations.of(TWO) == (other,)


async def test_deleted_documents_do_not_come_back_by_themselves(harness: SyncHarness, shop: Path) -> None:
    watch = ManualWatch()
    projects = Projects(harness.indexer, harness.documents, watch=watch)
    activation = await projects.activate(str(shop))
    await projects.delete_documents("shop", None, None)
    assert watch.stops
    assert all(stop.is_set() for stop in watch.stops)
    assert await harness.contents(activation.tenant) == {}
    with pytest.raises(ProjectNotActivatedError):
        await projects.index_document(activation, "a.md")
    await projects.activate(str(shop))
    assert await harness.contents(activation.tenant) == {"a.md": "# A\n"}
    await projects.aclose()


class TwoProcesses(NamedTuple):
    """Two processes that follow the same project, on one index and one file of records."""

    one: Projects
    two: Projects
    registry: SqliteProjectRegistry
    watch: ManualWatch
    """These two are the second one's."""
    activation: Activation


@pytest.fixture
async def processes(harness: SyncHarness, shop: Path, tmp_path: Path) -> AsyncIterator[TwoProcesses]:
    registries = SqliteProjectRegistry(tmp_path), SqliteProjectRegistry(tmp_path)
    watches = ManualWatch(), ManualWatch()
    one, two = (
        Projects(harness.indexer, harness.documents, registry=registry, watch=watch)
        for registry, watch in zip(registries, watches, strict=True)
    )
    await one.activate(str(shop))
    activation = await two.activate(str(shop))
    two.activations.note(ONE, activation)
    yield TwoProcesses(one, two, registries[1], watches[1], activation)
    for projects in (one, two):
        await projects.aclose()
    for registry in registries:
        registry.close()


@pytest.mark.parametrize("is_edited", [True, False])
async def test_what_one_process_deletes_another_does_not_bring_back(
    harness: SyncHarness, processes: TwoProcesses, is_edited: bool
) -> None:
    _, two, _, watch, activation = processes
    await processes.one.delete_documents("shop", None, None)
    if is_edited:
        edited = write(activation.docs_root / "a.md", "# A2\n")
        watch.tell(activation.docs_root, edited)

    async def is_ended() -> bool:
        return two.followed(activation.tenant) is None

    await until(is_ended)
    assert await harness.contents(activation.tenant) == {}
    assert await two.project_records.records() == []
    assert two.activations.of(ONE) == ()
    await two.activate(str(activation.config.path))
    assert set(await harness.contents(activation.tenant)) == {"a.md"}


async def test_a_project_that_another_process_deleted_must_be_activated_again(processes: TwoProcesses) -> None:
    await processes.one.delete_documents("shop", None, None)
    with pytest.raises(ProjectNotActivatedError, match="no longer followed: activate the project again"):
        await processes.two.checked_out(processes.activation)


async def test_a_project_whose_record_cannot_be_read_is_still_followed(
    harness: SyncHarness, processes: TwoProcesses
) -> None:
    _, _, registry, watch, activation = processes
    registry.close()
    watch.tell(activation.docs_root, write(activation.docs_root / "a.md", "# A2\n"))

    async def is_indexed() -> bool:
        return await harness.contents(activation.tenant) == {"a.md": "# A2\n"}

    await until(is_indexed)


async def test_a_project_that_could_not_be_deleted_stays_recorded(
    harness: SyncHarness, processes: TwoProcesses
) -> None:
    before = await processes.one.project_records.records()
    harness.writer.fault = Fault(BackendUnavailableError("documents", "gone"))
    with pytest.raises(BackendUnavailableError):
        await processes.one.delete_documents("shop", None, None)
    assert await processes.one.project_records.records() == before
    harness.writer.fault = None
    assert (await processes.one.delete_documents("shop", None, None)).documents == 1
    assert await processes.one.project_records.records() == []


async def test_a_deletion_names_a_project(projects: Projects) -> None:
    with pytest.raises(InvalidInputError):
        await projects.tenants.deletion("", None, None)


async def test_a_broken_watch_still_indexes(harness: SyncHarness, shop: Path) -> None:
    async def broken(root: Path, *, debounce_s: float = 0.5, stop: asyncio.Event) -> AsyncIterator[frozenset[Path]]:
        raise ConfigurationError("no more watches")
        yield frozenset()

    projects = Projects(harness.indexer, harness.documents, watch=broken)
    activation = await projects.activate(str(shop))
    assert set(await harness.contents(activation.tenant)) == {"a.md"}
    await projects.aclose()


async def test_a_clone_and_a_renamed_project_take_their_vectors_from_what_is_stored(
    harness: SyncHarness, shop: Path
) -> None:
    projects = Projects(harness.indexer, harness.documents, watch=ManualWatch())
    write(shop / "docs" / "b.md", "# B\n\nAnother text.\n")
    await projects.activate(str(shop))
    embedded = await harness.embedded()
    clone = shutil.copytree(shop, shop.parent / "clone")
    (clone / "docs" / "b.md").rename(clone / "docs" / "renamed.md")
    activation = await projects.activate(str(clone))
    assert set(await harness.contents(activation.tenant)) == {"a.md", "renamed.md"}
    configure(shop, project_name="store")
    renamed = await projects.activate(str(shop))
    assert set(await harness.contents(renamed.tenant)) == {"a.md", "b.md"}
    assert await harness.embedded() == embedded
    await projects.aclose()


async def test_what_was_deleted_while_its_branch_changed_does_not_come_back(harness: SyncHarness, shop: Path) -> None:
    projects = Projects(harness.indexer, harness.documents, watch=ManualWatch())
    main = await projects.activate(str(shop))
    (shop / ".git" / "HEAD").write_text("ref: refs/heads/next\n")
    change = asyncio.create_task(projects.checked_out(main))
    await projects.delete_documents("shop", None, main.tenant.path_hash)
    await asyncio.wait({change})
    await projects.delete_documents("shop", None, main.tenant.path_hash)
    assert await projects.tenants.known() == ()
    await projects.aclose()
