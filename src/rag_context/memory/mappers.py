"""Maps wire models to the domain and back: requests to queries and documents, answers and receipts to responses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from rag_context.api import search, stored_documents, wire
from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse, MessageTimeFields
from rag_context.api.maintenance import RecentSearch, StatsBucket, StatsResponse, TimeSpan
from rag_context.domain import documents, journal, own_words, provenance, quoted_text, reports
from rag_context.domain.search import Filter, Passage
from rag_context.errors import ConflictError, InvalidInputError
from rag_context.ingest.redaction import Redactor
from rag_context.ingest.submissions import Outcome, Receipt, Submission
from rag_context.ports.models import Tokenizer
from rag_context.search import query as queries
from rag_context.search.question_rules import with_windows
from rag_context.search.question_times import Window, merged

UNKNOWN_AGENT = "unknown"

_BULK_STATUS: dict[Outcome, Literal["indexed", "unchanged", "replaced", "deferred", "forgotten"]] = {
    Outcome.INDEXED: "indexed", Outcome.UNCHANGED: "unchanged", Outcome.REPLACED: "replaced",
    Outcome.PENDING: "deferred", Outcome.FORGOTTEN: "forgotten",
}  # fmt: skip


def query_of(
    request: search.SearchRequest, default_min_score: float | None, now: datetime, redactor: Redactor
) -> queries.Query:
    """The query of a search request, whose relative times count from its `asOf`, else from now."""
    min_score = default_min_score if request.min_score is None else request.min_score
    query = queries.Query(
        request.query, request.limit, filter_of(request, redactor), queries.Mode(request.mode), min_score
    )
    return with_windows(query, request.as_of or now)


def filter_of(request: search.SearchRequest | stored_documents.ListRequest, redactor: Redactor) -> Filter:
    """The filter of a request, whose values are redacted as stored ones are."""
    source = request.source
    # On the wire a source that ends in * is a prefix; in the domain that is a field of its own.
    is_prefix = source is not None and source.endswith("*")
    where = Filter(
        tenant=tenant_of(request),
        content_type=request.content_type,
        session_id=request.session_id,
        source=None if is_prefix else source,
        source_prefix=source[:-1] if source is not None and is_prefix else None,
        agents=tuple(dict.fromkeys(request.agents or ())),
        tags=tuple(dict.fromkeys(request.tags or ())),
        since=request.since,
        until=documents.end_of(request.until, request.as_of),
        origins=documents.Origin(request.min_trust).and_above()
        if request.min_trust not in (None, documents.Origin.UNKNOWN)
        else (),
        **wire.filter_values(request),
    )
    return redactor.where(where)


def tenant_of(request: wire.TenantRequest | IndexRequest) -> documents.Tenant:
    return documents.Tenant(request.project or "", request.branch or "", request.path_hash or "")


def document_input(request: IndexRequest) -> documents.DocumentInput:
    metadata = request.metadata.to_metadata() if request.metadata is not None else documents.Metadata()
    if metadata.agent is None and request.agent is not None:
        metadata = replace(metadata, agent=request.agent)
    from_file = isinstance(request, BulkLine) and request.from_file
    return documents.DocumentInput(
        content=request.content,
        content_type=request.content_type,
        session_id=request.session_id,
        source=request.source,
        metadata=metadata,
        tenant=tenant_of(request),
        channel=documents.Channel.FILE if from_file else documents.Channel.TOOL,
        occurred_at=request.occurred_at,
        message_times=_message_times(request.message_times or ()) if isinstance(request, BulkLine) else (),
        origin=documents.Origin(request.origin)
        if isinstance(request, BulkLine) and request.origin is not None
        else None,
    )


def submission(request: IndexRequest) -> Submission:
    revision = journal.Revision(
        supersedes=tuple(request.supersedes or ()),
        reason=request.reason,
        expires_at=request.expires_at,
        pinned=request.pinned,
        is_forced=request.force or False,
    )
    if isinstance(request, BulkLine):
        return Submission(document_input(request), tuple(request.like or ()), request.defer_vectors, revision)
    return Submission(document_input(request), revision=revision)


def _message_times(times: Sequence[MessageTimeFields]) -> tuple[documents.MessageTime, ...]:
    """In the order of the text, one for each place."""
    by_start = {each.start: each.at for each in times}
    return tuple(documents.MessageTime(start, by_start[start]) for start in sorted(by_start))


def search_response(
    answer: queries.Answer,
    windows: Sequence[Window],
    *,
    request_id: str,
    latency_ms: float,
    explain: bool,
    breaker_open: bool,
    superseded: Mapping[str, journal.Link],
) -> search.SearchResponse:
    """The response to a search; `superseded`: what is known of documents whose place was taken, by id."""
    return search.SearchResponse(
        results=[
            _result(result, superseded.get(result.passage.document_id), explain=explain) for result in answer.results
        ],
        latency=round(latency_ms, 3),
        fallback=answer.level > 1,
        fallback_level=int(answer.level),
        circuit_breaker_open=breaker_open,
        total_indexed=answer.total_indexed,
        request_id=request_id,
        legs={name: _leg(leg, cached=answer.cached) for name, leg in answer.legs.items()},
        warning=answer.warning,
        cached=answer.cached or None,
        no_answer=answer.unanswerable or None,
        other_speaker=answer.other_speaker,
        interpreted=_interpreted(windows),
        standing=[_standing(each) for each in answer.standing] or None,
    )


def _standing(standing: queries.Standing) -> search.StandingInstruction:
    passage = standing.passage
    text = passage.chunk.text
    return search.StandingInstruction(
        content=own_words.shown(text[provenance.text_start(text) :].lstrip("\r\n")),
        score=round(standing.score, 4),
        source=passage.source,
        occurred_at=passage.occurred_at,
        document_id=passage.document_id,
        chunk_id=passage.chunk.id,
        session_id=passage.session_id,
        tags=list(passage.metadata.tags) or None,
    )


def _interpreted(windows: Sequence[Window]) -> search.Interpreted | None:
    window = merged(windows) if windows else None
    if window is None:
        return None
    time_range = search.TimeRange(since=window.since, until=window.until)
    return search.Interpreted(time_range=time_range, phrase=window.phrase, every_year=window.yearly or None)


def within_token_budget(
    response: search.SearchResponse, max_tokens: int, tokenizer: Tokenizer
) -> search.SearchResponse:
    """The response with only the first results whose passages fit the budget, and the number that were omitted.

    What is left is for the first standing instructions, then for the context around passages, the best result's first.
    """
    kept, left = _fitting([result.content for result in response.results], max_tokens, tokenizer)
    standing = response.standing or []
    listed, left = _fitting([each.content for each in standing], left, tokenizer)
    results: list[search.SearchResult] = []
    for result in response.results[:kept]:
        context = result.context
        texts = (context.before, context.after) if context is not None else ()
        size = sum(tokenizer.count([text for text in texts if text]))
        results.append(result if size <= left else result.model_copy(update={"context": None}))
        left -= size if size <= left else 0
    omitted = len(response.results) - kept
    return response.model_copy(update={"results": results, "standing": standing[:listed] or None, "omitted": omitted})


def _fitting(texts: Sequence[str], budget: int, tokenizer: Tokenizer) -> tuple[int, int]:
    """How many of the first texts fit into `budget` tokens, and how many tokens are left."""
    fitting = 0
    for size in tokenizer.count(texts):
        if size > budget:
            break
        budget -= size
        fitting += 1
    return fitting, budget


def _leg(leg: queries.RetrieverReport, *, cached: bool) -> search.LegReport:
    """The report on a retriever; an answer from the cache ran none."""
    if cached:
        return search.LegReport(
            status=queries.RetrieverStatus.SKIPPED.value, latency_ms=0.0, detail="answered from the cache"
        )
    return search.LegReport(status=leg.status.value, latency_ms=round(leg.latency_ms, 3), detail=leg.detail)


def _result(result: queries.Result, link: journal.Link | None, *, explain: bool) -> search.SearchResult:
    passage = result.passage
    span, newer = passage.chunk.span, result.newer
    before, after = (each.chunk.text if each is not None else None for each in (result.before, result.after))
    return search.SearchResult(
        content=passage.chunk.text,
        score=round(result.ranked.score, 4),
        document_id=passage.document_id,
        chunk_id=passage.chunk.id,
        heading=span.heading or None,
        start_line=span.start_line,
        end_line=span.end_line,
        context=search.Surroundings(before=before, after=after) if before or after else None,
        instruction_like=(
            passage.chunk.origin is not documents.Origin.OWNER
            and quoted_text.reads_like_instruction(passage.chunk.text)
        )
        or None,
        newer_version=None
        if newer is None
        else search.NewerVersion(document_id=newer.document_id, chunk_id=newer.chunk.id, occurred_at=newer.occurred_at),
        superseded_by=None if link is None else link.place.superseded_by,
        reason=None if link is None else link.reason,
        explain=_explain(result) if explain else None,
        **{**document_fields(passage), "title": passage.title or None},
    )


def document_fields(document: documents.Document | documents.Listing | Passage) -> dict[str, Any]:
    """What every answer says of a document, by the names of its fields."""
    metadata = wire.metadata_json(document.metadata)
    origin = document.chunk.origin if isinstance(document, Passage) else document.origin
    return {**document.described(), "occurred_at": document.occurred_at, "origin": origin.value, "metadata": metadata}


def _explain(result: queries.Result) -> search.Explain:
    candidate = result.ranked.candidate
    legs = {}
    if result.vector_rank is not None and candidate.cosine is not None:
        legs["vector"] = search.LegScore(rank=result.vector_rank, score=candidate.cosine)
    if result.text_rank is not None:
        legs["text"] = search.LegScore(rank=result.text_rank, score=candidate.bm25)
    signals = {"bm25": candidate.bm25, "idfShare": candidate.share}
    if candidate.cosine is not None:
        signals["cosine"] = candidate.cosine
    if result.rerank_score is not None:
        signals["rerank"] = result.rerank_score
    ranked = result.ranked
    by_speaker = (ranked.fused - ranked.by_time) * (1.0 - 1.0 / ranked.boost)
    boosts = {name: gain for name, gain in (("speaker", by_speaker), ("time", ranked.by_time)) if gain}
    return search.Explain(legs=legs, fused=ranked.fused, boosts=boosts, signals=signals)


def search_record(
    request: search.SearchRequest, answer: queries.Answer, *, request_id: str, latency_ms: float, timestamp: datetime
) -> reports.SearchRecord:
    spent = {} if answer.cached else queries.latencies_of_parts(answer.legs)
    return reports.SearchRecord(
        timestamp=timestamp,
        request_id=request_id,
        query=request.query,
        results_count=len(answer.results),
        latency_ms=latency_ms,
        embedding_latency_ms=spent.get("embedding"),
        vector_latency_ms=spent.get("vector"),
        text_latency_ms=spent.get("text"),
        level=int(answer.level),
        cache_hit=answer.cached,
        agent=request.agent or UNKNOWN_AGENT,
        content_type=request.content_type,
        error=answer.error or (reports.UNANSWERED if answer.unanswerable else None),
        **wire.filter_values(request),
    )


def _recent_search(record: reports.SearchRecord) -> RecentSearch:
    return RecentSearch(
        at=record.timestamp,
        query=record.query,
        agent=record.agent,
        results=record.results_count,
        level=record.level,
        latency=round(record.latency_ms, 3),
        answered=record.results_count > 0 and record.error is None,
    )


def stats_response(
    summary: reports.SearchSummary,
    documents: int,
    periods: reports.Periods | None,
    origins: Mapping[str, int] | None,
    embedding_cache: tuple[int, int],
    recent: Sequence[reports.SearchRecord] | None,
) -> StatsResponse:
    """The statistics of a time range, the number and times of the documents now, and hits and misses of the cache."""
    return StatsResponse(
        total_documents=documents,
        occurred=_span(periods.occurred) if periods is not None else None,
        indexed=_span(periods.indexed) if periods is not None else None,
        passages_by_origin=None if origins is None else dict(origins),
        total_queries=summary.queries,
        avg_latency=round(summary.average_ms, 3),
        p95_latency=round(summary.p95_ms, 3),
        p99_latency=round(summary.p99_ms, 3),
        cache_hit_rate=summary.cache_hit_rate,
        fallback_rate=summary.fallback_rate,
        queries_by_agent=dict(summary.by_agent),
        queries_by_level={str(level): count for level, count in summary.by_level.items()},
        queries_with_vectors_incomplete=summary.vectors_incomplete,
        embedding_cache_hits=embedding_cache[0],
        embedding_cache_misses=embedding_cache[1],
        timeline=[
            StatsBucket(
                start=bucket.start,
                queries=bucket.queries,
                avg_latency=round(bucket.average_ms, 3),
                p95_latency=round(bucket.p95_ms, 3),
                fallbacks=bucket.fallbacks,
            )
            for bucket in summary.timeline
        ],
        recent=None if recent is None else list(map(_recent_search, recent)),
        **{f"queries_by_{name}": dict(counts) for name, counts in summary.by_field.items()},
    )


def _span(period: reports.Period) -> TimeSpan:
    return TimeSpan(first=period.first, last=period.last)


def index_response(receipt: Receipt, latency_ms: float) -> IndexResponse:
    return IndexResponse(
        success=True,
        chunks_indexed=len(receipt.chunk_ids),
        vector_ids=[] if receipt.pending else list(receipt.chunk_ids),
        latency_ms=round(latency_ms, 3),
        document_id=receipt.document_id,
        status=receipt.outcome.value,
        warning=receipt.warning,
        redactions=dict(receipt.redactions) or None,
        duplicates_of=list(receipt.duplicates_of) or None,
    )


def bulk_receipt(receipt: Receipt, source: str) -> BulkReceipt:
    return BulkReceipt(
        status=_BULK_STATUS[receipt.outcome],
        source=source,
        document_id=receipt.document_id,
        content_hash=receipt.content_hash,
        chunks_indexed=len(receipt.chunk_ids),
        reason=receipt.warning if receipt.outcome in {Outcome.PENDING, Outcome.FORGOTTEN} else None,
        redactions=dict(receipt.redactions) or None,
        duplicates_of=list(receipt.duplicates_of) or None,
    )


def bulk_result(result: Receipt | Exception, source: str) -> BulkReceipt | Exception:
    """The receipt for a document that was stored or is invalid; any other error stays one."""
    if isinstance(result, InvalidInputError | ConflictError):
        return BulkReceipt(status="rejected", source=source, reason=str(result))
    return result if isinstance(result, Exception) else bulk_receipt(result, source)
