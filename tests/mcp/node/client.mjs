// The official TypeScript client: lists, indexes, searches, reads; prints what it saw as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [kind, ...where] = process.argv.slice(2);
const transport =
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(where[0]))
    : new StdioClientTransport({ command: where[0], args: where.slice(1), env: process.env, stderr: "ignore" });

const client = new Client({ name: "typescript", version: "1.0.0" });
await client.connect(transport);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
await client.callTool({
  name: "rag_context_index",
  arguments: { content: "Red foxes hunt mice.", contentType: "decision", sessionId: kind, source: `foxes/${kind}` },
});
const progress = [];
const found = await client.callTool(
  { name: "rag_context_search", arguments: { query: "what do foxes hunt", limit: 1 } },
  undefined,
  { onprogress: (step) => progress.push(step) },
);
const wrong = await client.callTool({ name: "rag_context_search", arguments: { query: "", limt: 1 } });
const resources = (await client.listResources()).resources.map((resource) => resource.uri);
const document = await client.readResource({ uri: resources[0] });
const prompt = await client.getPrompt({ name: "recall", arguments: { topic: "foxes" } });
let unknown = null;
try {
  await client.callTool({ name: "rag_context_find", arguments: {} });
} catch (error) {
  unknown = error.code;
}
await client.close();
console.log(
  JSON.stringify({
    tools,
    server: client.getServerVersion(),
    found: JSON.parse(found.content[0].text).results[0].content,
    structured: found.structuredContent?.results[0].content,
    wrong: wrong.isError,
    document: document.contents[0].text,
    prompt: prompt.messages.length,
    unknown,
  }),
);
