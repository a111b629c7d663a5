using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Net;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

#if P4NTHE0N
namespace P4NTHE0N.C0MMON.Interfaces
#else
namespace RagContext
#endif
{
    /// <summary>A call that failed: what the server said, or that it did not answer.</summary>
    public class RagContextException : Exception
    {
        public RagContextException(string message, Exception cause) : base(message, cause) { }

        /// <summary>HTTP status; null where there was no answer.</summary>
        public int? StatusCode { get; set; }
        /// <summary>The server's word for programs, such as INVALID_INPUT.</summary>
        public string Code { get; set; }
        /// <summary>The id of the call in the server's logs.</summary>
        public string RequestId { get; set; }
        /// <summary>Every field at fault, as "field: message".</summary>
        public IList<string> Details { get; set; } = new List<string>();
    }

    /// <summary>The memory of a server, over HTTP. Safe for many threads; keep one for the life of the program.</summary>
    /// <remarks>A connection that fails, and the answers 429 and 503, are tried again up to three times in all: every
    /// write is one that may be repeated, because the same document gets the same id.</remarks>
    public class RagContextService : IRagContext, IDisposable
    {
        private const int Tries = 3;
        private const int FastLimit = 3;
        private const int FastCapacity = 1000;
        private static readonly TimeSpan LongestWait = TimeSpan.FromSeconds(5);
        private static readonly TimeSpan FastTtl = TimeSpan.FromMinutes(5);
        private static readonly DataContractJsonSerializerSettings Json =
            new DataContractJsonSerializerSettings { UseSimpleDictionaryFormat = true };

        private readonly HttpClient http;
        private readonly string baseUrl;
        private readonly string site;
        private readonly string apiKey;
        private readonly Dictionary<Tuple<string, string>, Remembered> fast =
            new Dictionary<Tuple<string, string>, Remembered>();
        private int writes;
        private readonly System.Diagnostics.Stopwatch clock = System.Diagnostics.Stopwatch.StartNew();

        /// <param name="baseUrl">The server's address.</param>
        /// <param name="apiKey">The key to send; null: none.</param>
        public RagContextService(string baseUrl = "http://localhost:3000", string apiKey = null)
            : this(new HttpClient { Timeout = TimeSpan.FromSeconds(30) }, baseUrl, apiKey) { }

        /// <param name="http">The connections, disposed with this.</param>
        /// <exception cref="UriFormatException">The address is none.</exception>
        public RagContextService(HttpClient http, string baseUrl = "http://localhost:3000", string apiKey = null)
        {
            this.http = http;
            this.baseUrl = baseUrl.TrimEnd('/');
            site = new Uri(baseUrl).GetComponents(UriComponents.SchemeAndServer, UriFormat.UriEscaped);
            this.apiKey = apiKey;
        }

        public Task<RagSearchResult> SearchAsync(string query, RagSearchOptions options = null, string agent = null)
        {
            var asked = options ?? new RagSearchOptions();
            return RunAsync<SearchRequest, RagSearchResult>("rag_context_search", new SearchRequest
            {
                Query = query,
                Limit = asked.Limit,
                Category = asked.Category,
                SessionId = asked.SessionId,
                ContentType = asked.ContentType,
                Game = asked.Game,
                Tags = asked.Tags,
                Source = asked.Source,
                MinScore = asked.MinScore,
                Agent = agent
            });
        }

        public async Task<RagIndexResult> IndexAsync(RagDocument document, string agent = null)
        {
            if (document == null) throw new ArgumentNullException(nameof(document));
            try
            {
                return await RunAsync<IndexRequest, RagIndexResult>("rag_context_index", new IndexRequest
                {
                    Content = document.Content,
                    ContentType = document.ContentType,
                    SessionId = document.SessionId,
                    Source = document.Source,
                    Metadata = document.Metadata,
                    OccurredAt = document.OccurredAt.HasValue
                        ? document.OccurredAt.Value.ToString("o", CultureInfo.InvariantCulture)
                        : null,
                    Agent = agent
                }).ConfigureAwait(false);
            }
            finally
            {
                // Also when it failed: the server may have kept the document all the same.
                lock (fast)
                {
                    writes++;
                    fast.Clear();
                }
            }
        }

        public Task<RagHealthStatus> GetHealthAsync()
        {
            return RunAsync<NoArguments, RagHealthStatus>("rag_context_health", new NoArguments());
        }

        public Task<RagStats> GetStatsAsync(TimeSpan timeRange)
        {
            var hours = timeRange.TotalHours;
            var range = hours <= 1 ? "1h" : hours <= 24 ? "24h" : hours <= 168 ? "7d" : "30d";
            return RunAsync<StatsRequest, RagStats>("rag_context_stats", new StatsRequest { TimeRange = range });
        }

        public async Task<RagSearchResult> SearchFastAsync(string query, string game = null, string agent = null)
        {
            var key = Tuple.Create(query, game);
            int before;
            lock (fast)
            {
                before = writes;
                Remembered known;
                if (fast.TryGetValue(key, out known) && clock.Elapsed < known.Until) return Copy(known.Result, true);
            }
            var options = new RagSearchOptions { Limit = FastLimit, Game = game };
            var result = await SearchAsync(query, options, agent).ConfigureAwait(false);
            if (result.FallbackLevel == 1 && result.Warning == null)
            {
                lock (fast)
                {
                    // A write has overtaken it.
                    if (before != writes) return result;
                    if (fast.Count >= FastCapacity) fast.Clear();
                    fast[key] = new Remembered { Result = Copy(result, result.Cached), Until = clock.Elapsed + FastTtl };
                }
            }
            return result;
        }

        public void Dispose()
        {
            http.Dispose();
        }

        private async Task<TAnswer> RunAsync<TRequest, TAnswer>(string tool, TRequest request)
        {
            var body = Write(request);
            var requestId = Guid.NewGuid().ToString("N");
            for (var attempt = 1; ; attempt++)
            {
                var wait = TimeSpan.FromMilliseconds(100 * Math.Pow(2, attempt - 1));
                try
                {
                    using (var message = Message(tool, body, requestId))
                    using (var reply = await http.SendAsync(message).ConfigureAwait(false))
                    {
                        var bytes = await reply.Content.ReadAsByteArrayAsync().ConfigureAwait(false);
                        if (reply.IsSuccessStatusCode) return Answer<TAnswer>(bytes, reply, requestId);
                        var asked = reply.Headers.RetryAfter == null ? null : reply.Headers.RetryAfter.Delta;
                        if (attempt == Tries || !IsBusy(reply.StatusCode) || asked > LongestWait)
                            throw Refusal(bytes, reply, requestId);
                        wait = asked ?? wait;
                    }
                }
                catch (HttpRequestException error)
                {
                    if (attempt == Tries)
                        throw new RagContextException("No server answers at " + site, error) { RequestId = requestId };
                }
                catch (TaskCanceledException error)
                {
                    throw new RagContextException(site + " did not answer in time", error) { RequestId = requestId };
                }
                await Task.Delay(wait).ConfigureAwait(false);
            }
        }

        private HttpRequestMessage Message(string tool, byte[] body, string requestId)
        {
            var message = new HttpRequestMessage(HttpMethod.Post, baseUrl + "/tools/" + tool);
            message.Content = new ByteArrayContent(body);
            message.Content.Headers.ContentType = new MediaTypeHeaderValue("application/json");
            message.Headers.Add("X-Request-ID", requestId);
            if (apiKey != null) message.Headers.Authorization = new AuthenticationHeaderValue("Bearer", apiKey);
            return message;
        }

        private TAnswer Answer<TAnswer>(byte[] bytes, HttpResponseMessage reply, string requestId)
        {
            try
            {
                var answer = Read<TAnswer>(bytes);
                if (answer == null) throw new SerializationException("null");
                return answer;
            }
            catch (Exception error)
            {
                // Which exception the serializer throws depends on the runtime.
                throw new RagContextException(site + " returned an invalid response", error)
                {
                    StatusCode = (int)reply.StatusCode,
                    RequestId = requestId
                };
            }
        }

        private RagContextException Refusal(byte[] bytes, HttpResponseMessage reply, string requestId)
        {
            ErrorResponse told = null;
            try
            {
                told = Read<ErrorResponse>(bytes);
            }
            catch (Exception)
            {
                // A proxy answered, in a format of its own.
            }
            told = told ?? new ErrorResponse();
            var status = (int)reply.StatusCode;
            var error = new RagContextException(told.Error ?? site + " answered HTTP " + status, null)
            {
                StatusCode = status,
                Code = told.Code,
                RequestId = told.RequestId ?? requestId
            };
            foreach (var detail in told.Details ?? new List<ErrorDetail>())
                error.Details.Add(detail.Field + ": " + detail.Message);
            return error;
        }

        private static bool IsBusy(HttpStatusCode status)
        {
            return status == HttpStatusCode.ServiceUnavailable || (int)status == 429;
        }

        private static RagSearchResult Copy(RagSearchResult result, bool cached)
        {
            return new RagSearchResult
            {
                Results = new List<RagResultItem>(result.Results),
                Latency = result.Latency,
                Fallback = result.Fallback,
                FallbackLevel = result.FallbackLevel,
                CircuitBreakerOpen = result.CircuitBreakerOpen,
                TotalIndexed = result.TotalIndexed,
                Warning = result.Warning,
                Cached = cached,
                RequestId = result.RequestId
            };
        }

        private static byte[] Write<T>(T value)
        {
            using (var stream = new MemoryStream())
            {
                new DataContractJsonSerializer(typeof(T), Json).WriteObject(stream, value);
                return stream.ToArray();
            }
        }

        private static T Read<T>(byte[] bytes)
        {
            using (var stream = new MemoryStream(bytes))
                return (T)new DataContractJsonSerializer(typeof(T), Json).ReadObject(stream);
        }

        private class Remembered
        {
            public RagSearchResult Result;
            public TimeSpan Until;
        }
    }

    [DataContract]
    internal class NoArguments
    {
    }

    [DataContract]
    internal class StatsRequest
    {
        [DataMember(Name = "timeRange")] public string TimeRange { get; set; }
    }

    [DataContract]
    internal class SearchRequest
    {
        [DataMember(Name = "query")] public string Query { get; set; }
        [DataMember(Name = "limit")] public int Limit { get; set; }
        [DataMember(Name = "category", EmitDefaultValue = false)] public string Category { get; set; }
        [DataMember(Name = "sessionId", EmitDefaultValue = false)] public string SessionId { get; set; }
        [DataMember(Name = "contentType", EmitDefaultValue = false)] public string ContentType { get; set; }
        [DataMember(Name = "game", EmitDefaultValue = false)] public string Game { get; set; }
        [DataMember(Name = "tags", EmitDefaultValue = false)] public List<string> Tags { get; set; }
        [DataMember(Name = "source", EmitDefaultValue = false)] public string Source { get; set; }
        [DataMember(Name = "minScore", EmitDefaultValue = false)] public double? MinScore { get; set; }
        [DataMember(Name = "agent", EmitDefaultValue = false)] public string Agent { get; set; }
    }

    [DataContract]
    internal class IndexRequest
    {
        [DataMember(Name = "content")] public string Content { get; set; }
        [DataMember(Name = "contentType")] public string ContentType { get; set; }
        [DataMember(Name = "sessionId")] public string SessionId { get; set; }
        [DataMember(Name = "source")] public string Source { get; set; }
        [DataMember(Name = "occurredAt", EmitDefaultValue = false)] public string OccurredAt { get; set; }
        [DataMember(Name = "metadata", EmitDefaultValue = false)] public RagDocumentMetadata Metadata { get; set; }
        [DataMember(Name = "agent", EmitDefaultValue = false)] public string Agent { get; set; }
    }

    [DataContract]
    internal class ErrorResponse
    {
        [DataMember(Name = "error")] public string Error { get; set; }
        [DataMember(Name = "code")] public string Code { get; set; }
        [DataMember(Name = "requestId")] public string RequestId { get; set; }
        [DataMember(Name = "details")] public List<ErrorDetail> Details { get; set; }
    }

    [DataContract]
    internal class ErrorDetail
    {
        [DataMember(Name = "field")] public string Field { get; set; }
        [DataMember(Name = "message")] public string Message { get; set; }
    }
}
