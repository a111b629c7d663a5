using System;
using System.Collections.Generic;
using System.Threading.Tasks;
using RagContext;

/// <summary>Keeps a document, finds it again, and shows what an error looks like. Usage: Program.exe [URL] [KEY]</summary>
public static class Program
{
    public static int Main(string[] arguments)
    {
        try
        {
            var url = arguments.Length > 0 ? arguments[0] : "http://localhost:3000";
            RunAsync(url, arguments.Length > 1 ? arguments[1] : null).GetAwaiter().GetResult();
            return 0;
        }
        catch (RagContextException error)
        {
            Console.Error.WriteLine(error.Message);
            return 1;
        }
    }

    private static async Task RunAsync(string url, string key)
    {
        using (var memory = new RagContextService(url, key))
        {
            var health = await memory.GetHealthAsync();
            Console.WriteLine("healthy: {0}, vectors {1}", health.Healthy, health.QdrantStatus);

            var kept = await memory.IndexAsync(new RagDocument
            {
                Content = "The jackpot of FireKirin is checked every 30 seconds; \"sofort\" heißt ≤ 30 s.",
                ContentType = "decision",
                SessionId = "csharp-example",
                Source = "thresholds",
                Metadata = new RagDocumentMetadata { Game = "FireKirin", Tags = new List<string> { "jackpot" } }
            }, "csharp");
            Console.WriteLine("kept: {0}, {1} chunk", kept.Status, kept.ChunksIndexed);

            var options = new RagSearchOptions { Limit = 1, Tags = new List<string> { "jackpot" } };
            var found = await memory.SearchAsync("how often is the jackpot checked?", options, "csharp");
            foreach (var result in found.Results)
                Console.WriteLine("found: {0} [{1}, {2}]", result.Content, result.Source, result.Metadata.Game);
            Console.WriteLine("level {0}, {1} indexed", found.FallbackLevel, found.TotalIndexed);
            Console.WriteLine("dated: {0}", found.Results[0].Timestamp.Kind == DateTimeKind.Utc
                && DateTime.UtcNow - found.Results[0].Timestamp < TimeSpan.FromMinutes(10));

            var first = await memory.SearchFastAsync("jackpot", "FireKirin", "csharp");
            var again = await memory.SearchFastAsync("jackpot", "FireKirin", "csharp");
            Console.WriteLine("remembered: {0}", again.Cached && again.RequestId == first.RequestId);

            var stats = await memory.GetStatsAsync(TimeSpan.FromMinutes(10));
            Console.WriteLine("asked by csharp: {0}", stats.QueriesByAgent["csharp"]);

            try
            {
                await memory.SearchAsync("");
            }
            catch (RagContextException error)
            {
                Console.WriteLine("refused: {0} ({1} {2}; {3})", error.Message, error.StatusCode, error.Code,
                    string.Join(", ", error.Details));
            }
        }
    }
}
