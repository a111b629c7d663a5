"""What is particular to the memory inside a process."""

from pathlib import Path

import pytest

from rag_context.client import AsyncClient, BadRequestError, ServerBusyError, ServerError, open_context
from rag_context.errors import ConfigurationError
from rag_context.logs import REQUEST_ID
from rag_context.server.direct_calls import DirectCalls
from rag_context.settings.sections import Settings, VocabularySettings
from tests.server.stub_service import StubService, as_service


async def test_the_configured_vocabulary_is_accepted(tmp_path: Path) -> None:
    words = VocabularySettings(content_types=("ticket",), categories=("billing",))
    async with open_context(Settings(data_dir=tmp_path, vocabulary=words)) as context:
        await context.index("The invoice was paid twice.", content_type="ticket", session_id="t-1", source="desk")
        assert (await context.search("invoice", content_type="ticket", category="billing")).fallback_level == 1
        with pytest.raises(BadRequestError, match="ticket"):
            await context.search("invoice", content_type="letter")


async def test_two_of_them_share_a_directory_as_two_processes_would(tmp_path: Path) -> None:
    async with open_context(data_dir=tmp_path) as one, open_context(Settings(), data_dir=tmp_path) as two:
        receipt = await one.index("Barn owls hunt voles.", content_type="chat", session_id="s", source="talk")
        assert (await two.get(receipt.document_id)).content == "Barn owls hunt voles."


async def test_a_configuration_that_cannot_work_is_reported_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="file"):
        async with open_context(data_dir=tmp_path / "file"):
            pass


async def test_what_was_kept_is_there_the_next_time(tmp_path: Path) -> None:
    async with open_context(data_dir=tmp_path) as context:
        await context.index("Barn owls hunt voles.", content_type="chat", session_id="s", source="talk")
    async with open_context(data_dir=tmp_path) as context:
        assert (await context.search("owls")).results[0].content == "Barn owls hunt voles."


async def test_a_failure_of_the_program_is_an_error_of_the_server_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stub = StubService(failure=ZeroDivisionError("secret state"))
    transport = DirectCalls(as_service(stub), Settings())
    async with AsyncClient(transport=transport) as memory:
        with pytest.raises(ServerError) as failed:
            await memory.get("d1", request_id="r-7")
    assert "secret" not in str(failed.value)
    assert failed.value.request_id == "r-7"
    assert "ZeroDivisionError" in caplog.text


async def test_a_busy_memory_says_when_to_come_back() -> None:
    stub = StubService(level=4, retry_after_s=42.0)
    async with AsyncClient(transport=DirectCalls(as_service(stub), Settings())) as memory:
        with pytest.raises(ServerBusyError) as failed:
            await memory.search("valves", strict=True)
    assert (failed.value.status, failed.value.code, failed.value.retry_after_s) == (429, "CIRCUIT_OPEN", 42.0)


class Noting(StubService):
    """Notes the request id that its log lines would have."""

    noted = ""

    async def _behave(self) -> None:
        self.noted = str(REQUEST_ID.get())


async def test_a_call_is_logged_with_its_request_id_and_the_caller_keeps_its_own() -> None:
    stub, before = Noting(), REQUEST_ID.get()
    async with AsyncClient(transport=DirectCalls(as_service(stub), Settings())) as memory:
        await memory.get("d1", request_id="r-8")
    assert (stub.noted, REQUEST_ID.get()) == ("r-8", before)
