using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using P4NTHE0N.C0MMON.Interfaces;

/// <summary>What a program does with the client that has tests of its own: a fake of the interface with every record.</summary>
public class FakeContext : IRagContext
{
    public readonly List<RagDocument> Documents = new List<RagDocument>();
    public int Down;
    public int AtOnce;
    public int Most;

    public Task<RagSearchResult> SearchAsync(string query, RagSearchOptions options = null, string agent = null)
    {
        var moment = new DateTime(2026, 3, 1, 12, 0, 0, DateTimeKind.Utc);
        return Task.FromResult(new RagSearchResult
        {
            Results = new List<RagResultItem>
            {
                new RagResultItem
                {
                    Content = "text", Score = 0.9, Source = "s", Timestamp = moment, OccurredAt = moment,
                    Metadata = new RagResultMetadata { Agent = "a", Tags = new List<string> { "t" } },
                    NewerVersion = new RagNewerVersion { DocumentId = "d", ChunkId = "c" }
                }
            },
            FallbackLevel = 1
        });
    }

    public async Task<RagIndexResult> IndexAsync(RagDocument document, string agent = null)
    {
        lock (Documents) Most = Math.Max(Most, ++AtOnce);
        await Task.Delay(5);
        lock (Documents)
        {
            AtOnce--;
            if (document.Content == "refused") throw new RagContextException("refused", null) { StatusCode = 400 };
            if (Down-- > 0) throw new RagContextException("down", null);
            Documents.Add(document);
        }
        return new RagIndexResult { Success = true, ChunksIndexed = 1 };
    }

    public Task<RagHealthStatus> GetHealthAsync() { return Task.FromResult(new RagHealthStatus { Healthy = true }); }

    public Task<RagStats> GetStatsAsync(TimeSpan timeRange) { return Task.FromResult(new RagStats { TotalQueries = 1 }); }

    public Task<RagSearchResult> SearchFastAsync(string query, string game = null, string agent = null)
    {
        return SearchAsync(query, null, agent);
    }
}

public static class Consumer
{
    public static void Main()
    {
        var fake = new FakeContext { Down = 1 };
        Console.WriteLine(fake.SearchAsync("q").Result.Results[0].Timestamp.ToString("u"));
        var failures = new List<string>();
        var indexer = new RagContextIndexer(fake, 50, (document, error) =>
        {
            lock (failures) failures.Add(document.Content + ": " + (error == null ? "no time" : error.Message));
        });
        for (var number = 0; number < 30; number++) indexer.QueueChatSession("chat " + number % 3, "text " + number, "opus");
        indexer.QueueDecision("D-7", "one file", "architecture");
        indexer.QueueCodeDocumentation("src/a.cs", "of a file");
        indexer.QueueCodeDocumentation("src/b.cs", "refused");
        Console.WriteLine("all kept: {0}", indexer.CloseAsync().Result);
        Console.WriteLine("{0} indexed, {1} failed, {2} wait", indexer.Indexed, indexer.Failed, indexer.Waiting);
        Console.WriteLine("at most five at once: {0}", fake.Most <= 5 && fake.Most > 1);
        var ordered = fake.Documents.Where(each => each.SessionId == "chat 1").Select(each => each.Content);
        Console.WriteLine(string.Join(", ", ordered));
        var decision = fake.Documents.Single(each => each.ContentType == "decision");
        Console.WriteLine("{0} {1}", decision.Source, decision.Metadata.DecisionId);
        Console.WriteLine(fake.Documents.Single(each => each.ContentType == "code").SessionId);
        Console.WriteLine(string.Join(", ", failures));
        Full();
        Late();
    }

    private static void Full()
    {
        var indexer = new RagContextIndexer(new FakeContext(), 1);
        indexer.QueueDecision("D-1", "one");
        try
        {
            indexer.QueueDecision("D-2", "two");
        }
        catch (InvalidOperationException error)
        {
            Console.WriteLine(error.Message);
        }
        indexer.Dispose();
        Console.WriteLine("{0} indexed", indexer.Indexed);
    }

    private static void Late()
    {
        var lost = 0;
        var down = new FakeContext { Down = int.MaxValue };
        var indexer = new RagContextIndexer(down, 10, (document, error) => Interlocked.Increment(ref lost));
        indexer.QueueDecision("D-1", "one");
        indexer.QueueDecision("D-1", "two");
        Console.WriteLine("all kept: {0}, {1} reported", indexer.CloseAsync(TimeSpan.FromMilliseconds(50)).Result, lost);
    }
}
