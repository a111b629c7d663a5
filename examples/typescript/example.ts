// Stores a decision and finds it again. With Node 22.18 or later: node example.ts [URL]

import { RagContext, RagContextError } from "./rag-context.ts";

const memory = new RagContext(process.argv[2], { apiKey: process.env.RAG_CONTEXT_API_KEY });

try {
  const receipt = await memory.index({
    content: "We keep everything in one SQLite file: nothing to operate, one file to back up.",
    contentType: "decision",
    sessionId: "typescript-example",
    source: "adr-7",
    metadata: { tags: ["storage"], agent: "designer" },
  });
  console.log(`kept: ${receipt.status}, ${receipt.chunksIndexed} chunk`);

  const answer = await memory.search("where is the data kept?", { limit: 3, tags: ["storage"] });
  for (const result of answer.results) console.log(`found: ${result.content} [${result.source}]`);
  if (answer.warning) console.log(`level ${answer.fallbackLevel}: ${answer.warning}`);

  await memory.search("");
} catch (error) {
  if (!(error instanceof RagContextError)) throw error;
  console.log(`refused: ${error.message} (${error.status ?? "no answer"})`);
}
