using System;
using System.Collections.Generic;
using System.Globalization;
using System.Runtime.Serialization;
using System.Threading.Tasks;

#if P4NTHE0N
namespace P4NTHE0N.C0MMON.Interfaces
#else
namespace RagContext
#endif
{
    /// <summary>The memory that agents share: search it, add to it, ask how it is.</summary>
    public interface IRagContext
    {
        /// <summary>Finds the passages that answer a question. A degraded server answers too; see
        /// <see cref="RagSearchResult.FallbackLevel"/>.</summary>
        /// <param name="query">The question, 1 to 1000 characters.</param>
        /// <param name="options">Filters and limit; null: five results, no filter.</param>
        /// <param name="agent">Who asks, for the statistics.</param>
        Task<RagSearchResult> SearchAsync(string query, RagSearchOptions options = null, string agent = null);

        /// <summary>Keeps a document. The same text again changes nothing.</summary>
        Task<RagIndexResult> IndexAsync(RagDocument document, string agent = null);

        /// <summary>Says how the system is.</summary>
        Task<RagHealthStatus> GetHealthAsync();

        /// <summary>Sums up the searches of the last hour, day, week or month: the shortest that covers the span.</summary>
        Task<RagStats> GetStatsAsync(TimeSpan timeRange);

        /// <summary>Finds at most three passages; a complete answer is remembered for five minutes.</summary>
        Task<RagSearchResult> SearchFastAsync(string query, string game = null, string agent = null);
    }

    /// <summary>What a search is narrowed to. A null narrows nothing.</summary>
    public class RagSearchOptions
    {
        /// <summary>Most results, 1 to 20.</summary>
        public int Limit { get; set; } = 5;
        public string Category { get; set; }
        public string SessionId { get; set; }
        /// <summary>chat, decision, code or documentation.</summary>
        public string ContentType { get; set; }
        public string Game { get; set; }
        /// <summary>Only documents that carry all of these.</summary>
        public List<string> Tags { get; set; }
        /// <summary>Only documents of this source; ending in * it is a prefix.</summary>
        public string Source { get; set; }
        /// <summary>Least relevance of a result, 0 to 1; null: the model's own threshold.</summary>
        public double? MinScore { get; set; }
    }

    /// <summary>A document to keep.</summary>
    [DataContract]
    public class RagDocument
    {
        [DataMember(Name = "content")] public string Content { get; set; }
        /// <summary>chat, decision, code or documentation.</summary>
        [DataMember(Name = "contentType")] public string ContentType { get; set; }
        [DataMember(Name = "sessionId")] public string SessionId { get; set; }
        [DataMember(Name = "source")] public string Source { get; set; }
        /// <summary>When it was said or written; null: the server takes what the content says, else now.</summary>
        public DateTimeOffset? OccurredAt { get; set; }
        [DataMember(Name = "metadata", EmitDefaultValue = false)] public RagDocumentMetadata Metadata { get; set; }
    }

    /// <summary>What is said about a document.</summary>
    [DataContract]
    public class RagDocumentMetadata
    {
        [DataMember(Name = "agent", EmitDefaultValue = false)] public string Agent { get; set; }
        [DataMember(Name = "tags", EmitDefaultValue = false)] public List<string> Tags { get; set; }
        [DataMember(Name = "category", EmitDefaultValue = false)] public string Category { get; set; }
        [DataMember(Name = "game", EmitDefaultValue = false)] public string Game { get; set; }
        [DataMember(Name = "decisionId", EmitDefaultValue = false)] public string DecisionId { get; set; }
    }

    /// <summary>The answer, with a label that says how it was obtained.</summary>
    [DataContract]
    public class RagSearchResult
    {
        [DataMember(Name = "results")] public List<RagResultItem> Results { get; set; } = new List<RagResultItem>();
        /// <summary>Milliseconds.</summary>
        [DataMember(Name = "latency")] public double Latency { get; set; }
        [DataMember(Name = "fallback")] public bool Fallback { get; set; }
        /// <summary>1: vectors and keywords, 2: keyword search, 3: nothing could be searched, 4: circuit breaker open.</summary>
        [DataMember(Name = "fallbackLevel")] public int FallbackLevel { get; set; }
        [DataMember(Name = "circuitBreakerOpen")] public bool CircuitBreakerOpen { get; set; }
        [DataMember(Name = "totalIndexed")] public int TotalIndexed { get; set; }
        /// <summary>Why the answer may be less than it could be; null where it is whole.</summary>
        [DataMember(Name = "warning")] public string Warning { get; set; }
        /// <summary>True where the answer was remembered.</summary>
        [DataMember(Name = "cached")] public bool Cached { get; set; }
        [DataMember(Name = "requestId")] public string RequestId { get; set; }
    }

    /// <summary>One passage.</summary>
    [DataContract]
    public class RagResultItem
    {
        [DataMember(Name = "content")] public string Content { get; set; } = string.Empty;
        /// <summary>Relevance, 0 to 1, comparable between questions.</summary>
        [DataMember(Name = "score")] public double Score { get; set; }
        [DataMember(Name = "source")] public string Source { get; set; } = string.Empty;
        [DataMember(Name = "metadata")] public RagResultMetadata Metadata { get; set; }
        [DataMember(Name = "documentId")] public string DocumentId { get; set; }
        [DataMember(Name = "chunkId")] public string ChunkId { get; set; }
        [DataMember(Name = "title")] public string Title { get; set; }
        [DataMember(Name = "contentType")] public string ContentType { get; set; }
        [DataMember(Name = "sessionId")] public string SessionId { get; set; }
        [DataMember(Name = "timestamp")] private string timestamp = null;
        [DataMember(Name = "occurredAt")] private string occurredAt = null;
        /// <summary>A later passage that says nearly the same and gives another value; null without one.</summary>
        [DataMember(Name = "newerVersion")] public RagNewerVersion NewerVersion { get; set; }

        /// <summary>When the content was indexed, in UTC.</summary>
        public DateTime Timestamp { get { return Utc(timestamp); } set { timestamp = Text(value); } }

        /// <summary>When it was said or written, in UTC.</summary>
        public DateTime OccurredAt { get { return Utc(occurredAt); } set { occurredAt = Text(value); } }

        private static string Text(DateTime moment)
        {
            return moment.ToUniversalTime().ToString("o", CultureInfo.InvariantCulture);
        }

        private static DateTime Utc(string text)
        {
            return text == null
                ? default(DateTime)
                : DateTime.Parse(text, CultureInfo.InvariantCulture, DateTimeStyles.AdjustToUniversal);
        }
    }

    /// <summary>The passage of a later statement.</summary>
    [DataContract]
    public class RagNewerVersion
    {
        [DataMember(Name = "documentId")] public string DocumentId { get; set; }
        [DataMember(Name = "chunkId")] public string ChunkId { get; set; }
    }

    /// <summary>What the writer said about a passage's document.</summary>
    [DataContract]
    public class RagResultMetadata
    {
        [DataMember(Name = "agent")] public string Agent { get; set; }
        [DataMember(Name = "tags")] public List<string> Tags { get; set; }
        [DataMember(Name = "category")] public string Category { get; set; }
        [DataMember(Name = "game")] public string Game { get; set; }
        [DataMember(Name = "decisionId")] public string DecisionId { get; set; }
    }

    /// <summary>What became of a document.</summary>
    [DataContract]
    public class RagIndexResult
    {
        [DataMember(Name = "success")] public bool Success { get; set; }
        [DataMember(Name = "chunksIndexed")] public int ChunksIndexed { get; set; }
        [DataMember(Name = "vectorIds")] public List<string> VectorIds { get; set; } = new List<string>();
        [DataMember(Name = "latencyMs")] public double LatencyMs { get; set; }
        [DataMember(Name = "documentId")] public string DocumentId { get; set; } = string.Empty;
        /// <summary>indexed, unchanged, replaced, or pending: keyword search finds it now, vector search later.</summary>
        [DataMember(Name = "status")] public string Status { get; set; }
        [DataMember(Name = "warning")] public string Warning { get; set; }
    }

    /// <summary>How the system is. Each status is healthy, degraded or unavailable, and speaks for whichever backend
    /// holds the role: vectors, embedding model, documents.</summary>
    [DataContract]
    public class RagHealthStatus
    {
        [DataMember(Name = "healthy")] public bool Healthy { get; set; }
        [DataMember(Name = "qdrantStatus")] public string QdrantStatus { get; set; } = "unavailable";
        [DataMember(Name = "lmStudioStatus")] public string LmStudioStatus { get; set; } = "unavailable";
        [DataMember(Name = "mongoStatus")] public string MongoStatus { get; set; } = "unavailable";
        [DataMember(Name = "latency")] public double Latency { get; set; }
        [DataMember(Name = "indexedDocuments")] public int IndexedDocuments { get; set; }
        [DataMember(Name = "circuitBreakerOpen")] public bool CircuitBreakerOpen { get; set; }
        [DataMember(Name = "pendingDocuments")] public int PendingDocuments { get; set; }
        [DataMember(Name = "version")] public string Version { get; set; }
    }

    /// <summary>What the searches of a span of time add up to; rates are 0 to 1, latencies in milliseconds.</summary>
    [DataContract]
    public class RagStats
    {
        [DataMember(Name = "totalDocuments")] public int TotalDocuments { get; set; }
        [DataMember(Name = "totalQueries")] public int TotalQueries { get; set; }
        [DataMember(Name = "avgLatency")] public double AvgLatency { get; set; }
        [DataMember(Name = "p95Latency")] public double P95Latency { get; set; }
        [DataMember(Name = "p99Latency")] public double P99Latency { get; set; }
        [DataMember(Name = "cacheHitRate")] public double CacheHitRate { get; set; }
        [DataMember(Name = "fallbackRate")] public double FallbackRate { get; set; }
        [DataMember(Name = "queriesByAgent")]
        public Dictionary<string, int> QueriesByAgent { get; set; } = new Dictionary<string, int>();
    }
}
