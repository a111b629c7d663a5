using System;
using System.Collections.Generic;
using System.Security.Cryptography;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

#if P4NTHE0N
namespace P4NTHE0N.C0MMON.Interfaces
#else
namespace RagContext
#endif
{
    /// <summary>Indexes documents in the background: queue a text and go on. Safe for many threads.</summary>
    /// <remarks>Five documents are indexed at once, those of one source in their order. A server that is away is tried
    /// again for about two minutes. What could not be kept is counted and passed to the callback.</remarks>
    public class RagContextIndexer : IDisposable
    {
        private const int Lanes = 5;
        private const int Tries = 10;
        private static readonly TimeSpan FirstWait = TimeSpan.FromMilliseconds(500);
        private static readonly TimeSpan LongestWait = TimeSpan.FromSeconds(30);
        private static readonly Guid NamespaceUrl = new Guid("6ba7b811-9dad-11d1-80b4-00c04fd430c8");

        private readonly IRagContext context;
        private readonly int capacity;
        private readonly Action<RagDocument, Exception> onFailure;
        private readonly CancellationTokenSource stop = new CancellationTokenSource();
        private readonly Task[] lanes = new Task[Lanes];
        private int waiting;
        private int indexed;
        private int failed;
        private bool closed;

        /// <param name="context">Where documents go.</param>
        /// <param name="capacity">Most documents that wait.</param>
        /// <param name="onFailure">Called with each document that is not known to be kept. The exception is null where
        /// there was no time left for it.</param>
        public RagContextIndexer(
            IRagContext context, int capacity = 1000, Action<RagDocument, Exception> onFailure = null)
        {
            if (context == null) throw new ArgumentNullException(nameof(context));
            if (capacity < 1) throw new ArgumentOutOfRangeException(nameof(capacity));
            this.context = context;
            this.capacity = capacity;
            this.onFailure = onFailure;
            for (var lane = 0; lane < Lanes; lane++) lanes[lane] = Task.FromResult(true);
        }

        /// <summary>Documents that are queued or being indexed.</summary>
        public int Waiting { get { return Volatile.Read(ref waiting); } }
        /// <summary>Documents that are kept.</summary>
        public int Indexed { get { return Volatile.Read(ref indexed); } }
        /// <summary>Documents that could not be kept, or for which there was no time left.</summary>
        public int Failed { get { return Volatile.Read(ref failed); } }

        /// <summary>Queues a chat. Throws as <see cref="Queue"/> does.</summary>
        public void QueueChatSession(string sessionId, string content, string agent = null)
        {
            Queue(Document("chat", sessionId, content, new RagDocumentMetadata { Agent = agent }), agent);
        }

        /// <summary>Queues a decision; a later one of the same id replaces it.</summary>
        public void QueueDecision(string decisionId, string content, string category = null)
        {
            var metadata = new RagDocumentMetadata { Category = category, DecisionId = decisionId };
            Queue(Document("decision", decisionId, content, metadata));
        }

        /// <summary>Queues what is said of a file; later words on the same file replace it.</summary>
        public void QueueCodeDocumentation(string filePath, string content)
        {
            var document = Document("code", NamedId(filePath).ToString(), content, null);
            document.Source = filePath;
            Queue(document);
        }

        /// <summary>Queues a document.</summary>
        /// <exception cref="InvalidOperationException">Too many wait, or this was closed: it was not taken.</exception>
        public void Queue(RagDocument document, string agent = null)
        {
            if (document == null) throw new ArgumentNullException(nameof(document));
            var key = document.ContentType + "\n" + document.SessionId + "\n" + document.Source;
            var lane = (key.GetHashCode() & int.MaxValue) % Lanes;
            lock (lanes)
            {
                if (closed) throw new InvalidOperationException("The indexer was closed.");
                if (waiting >= capacity) throw new InvalidOperationException(capacity + " documents wait already.");
                Interlocked.Increment(ref waiting);
                lanes[lane] = IndexAfterAsync(lanes[lane], document, agent);
            }
        }

        /// <summary>Takes no more documents and works the queue off.</summary>
        /// <param name="timeout">How long; null: 30 seconds. What is left then is given up and reported.</param>
        /// <returns>Whether all that was queued is kept.</returns>
        public async Task<bool> CloseAsync(TimeSpan? timeout = null)
        {
            Task all;
            lock (lanes)
            {
                closed = true;
                all = Task.WhenAll(lanes);
            }
            await Task.WhenAny(all, Task.Delay(timeout ?? TimeSpan.FromSeconds(30))).ConfigureAwait(false);
            stop.Cancel();
            await all.ConfigureAwait(false);
            return Failed == 0;
        }

        /// <summary>Closes it, and waits for the queue as <see cref="CloseAsync"/> does.</summary>
        public void Dispose()
        {
            CloseAsync().GetAwaiter().GetResult();
        }

        private async Task IndexAfterAsync(Task before, RagDocument document, string agent)
        {
            // To another thread at once: whoever queues a document does not wait for the context.
            await Task.Yield();
            await before.ConfigureAwait(false);
            Exception error = null;
            var kept = false;
            try
            {
                kept = !stop.IsCancellationRequested && await KeepAsync(document, agent).ConfigureAwait(false);
            }
            catch (OperationCanceledException)
            {
                // There was no time left for another try.
            }
            catch (Exception failure)
            {
                error = failure;
            }
            if (kept) Interlocked.Increment(ref indexed);
            else Interlocked.Increment(ref failed);
            Interlocked.Decrement(ref waiting);
            if (!kept) Report(document, error);
        }

        private async Task<bool> KeepAsync(RagDocument document, string agent)
        {
            var wait = FirstWait;
            for (var attempt = 1; ; attempt++)
            {
                try
                {
                    // Abandoned at the end: a call under way may still be kept, but nothing waits for it.
                    var call = context.IndexAsync(document, agent);
                    var ended = await Task.WhenAny(call, Task.Delay(-1, stop.Token)).ConfigureAwait(false);
                    if (ended != call) throw new OperationCanceledException();
                    return (await call.ConfigureAwait(false)).Success;
                }
                catch (RagContextException error)
                {
                    var mayHelp = error.StatusCode == null || error.StatusCode == 429 || error.StatusCode == 503;
                    if (!mayHelp || attempt == Tries) throw;
                }
                await Task.Delay(wait, stop.Token).ConfigureAwait(false);
                wait = wait + wait < LongestWait ? wait + wait : LongestWait;
            }
        }

        private void Report(RagDocument document, Exception error)
        {
            if (onFailure == null) return;
            try
            {
                onFailure(document, error);
            }
            catch (Exception)
            {
                // The callback's own mistake must not end the lane.
            }
        }

        private static RagDocument Document(string type, string id, string content, RagDocumentMetadata metadata)
        {
            return new RagDocument
            {
                Content = content,
                ContentType = type,
                SessionId = id,
                Source = "h0und://" + type + "/" + id,
                Metadata = metadata
            };
        }

        /// <summary>The name-based UUID (RFC 9562, version 5) of an address, as the Python client computes it.</summary>
        private static Guid NamedId(string name)
        {
            var space = InNetworkOrder(NamespaceUrl.ToByteArray());
            var bytes = new List<byte>(space);
            bytes.AddRange(Encoding.UTF8.GetBytes(name));
            byte[] hash;
            using (var sha1 = SHA1.Create()) hash = sha1.ComputeHash(bytes.ToArray());
            Array.Resize(ref hash, 16);
            hash[6] = (byte)((hash[6] & 0x0F) | 0x50);
            hash[8] = (byte)((hash[8] & 0x3F) | 0x80);
            return new Guid(InNetworkOrder(hash));
        }

        private static byte[] InNetworkOrder(byte[] bytes)
        {
            Array.Reverse(bytes, 0, 4);
            Array.Reverse(bytes, 4, 2);
            Array.Reverse(bytes, 6, 2);
            return bytes;
        }
    }
}
