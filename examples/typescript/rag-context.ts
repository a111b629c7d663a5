// A client of rag-context in one file, with nothing but fetch: Node 20 and later, Deno, Bun, browsers.

export interface SearchOptions {
  limit?: number;
  category?: string;
  sessionId?: string;
  contentType?: string;
  game?: string;
  agent?: string;
  tags?: string[];
  /** Exact, or a prefix when it ends in `*`. */
  source?: string;
  /** Bounds of when it was said or written (RFC 3339 with offset). */
  since?: string;
  until?: string;
  minScore?: number;
  mode?: "hybrid" | "vector" | "text";
  maxTokens?: number;
}

export interface SearchResult {
  content: string;
  /** Relevance, 0 to 1, comparable between questions. */
  score: number;
  source: string;
  /** When it was indexed. */
  timestamp: string;
  /** When it was said or written. */
  occurredAt: string;
  metadata: Record<string, unknown>;
  documentId?: string;
  chunkId?: string;
  title?: string;
  contentType?: string;
  sessionId?: string;
  startLine?: number;
  endLine?: number;
  /** A later passage that says nearly the same and gives another value. */
  newerVersion?: { documentId: string; chunkId: string; occurredAt: string };
}

export interface SearchAnswer {
  results: SearchResult[];
  latency: number;
  fallback: boolean;
  /** 1: vectors and keywords, 2: keyword search, 3: nothing could be searched, 4: circuit breaker open. */
  fallbackLevel: 1 | 2 | 3 | 4;
  circuitBreakerOpen: boolean;
  totalIndexed: number;
  requestId: string;
  warning?: string;
}

export interface Document {
  content: string;
  contentType: string;
  sessionId: string;
  source: string;
  metadata?: Record<string, unknown>;
  agent?: string;
  /** When it was said or written (RFC 3339 with offset). */
  occurredAt?: string;
}

export interface Receipt {
  success: boolean;
  status: "indexed" | "unchanged" | "replaced" | "pending";
  documentId: string;
  chunksIndexed: number;
  warning?: string;
  redactions?: Record<string, number>;
}

export interface Health {
  healthy: boolean;
  indexedDocuments: number;
  pendingDocuments: number;
  version: string;
}

export class RagContextError extends Error {
  status: number | undefined;
  code: string | undefined;
  requestId: string;
  details: { field: string; message: string }[];

  constructor(message: string, requestId: string, status?: number, body: Record<string, unknown> = {}) {
    super(message);
    this.name = "RagContextError";
    this.status = status;
    this.code = body.code as string | undefined;
    this.requestId = (body.requestId as string | undefined) ?? requestId;
    this.details = (body.details as { field: string; message: string }[] | undefined) ?? [];
  }
}

const TRIES = 3;
const LONGEST_WAIT_MS = 5000;

export class RagContext {
  #url: string;
  #site: string;
  #headers: Record<string, string>;
  #timeoutMs: number;

  constructor(url = "http://localhost:3000", options: { apiKey?: string | undefined; timeoutMs?: number } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#site = new URL(url).origin;
    this.#headers = { "Content-Type": "application/json" };
    if (options.apiKey) this.#headers.Authorization = `Bearer ${options.apiKey}`;
    this.#timeoutMs = options.timeoutMs ?? 30_000;
  }

  search(query: string, options: SearchOptions = {}): Promise<SearchAnswer> {
    return this.call("rag_context_search", { query, ...options });
  }

  index(document: Document): Promise<Receipt> {
    return this.call("rag_context_index", document);
  }

  health(): Promise<Health> {
    return this.call("rag_context_health", {});
  }

  /** Runs any tool. Every write may be repeated, because the same document gets the same id, so what fails on the
   * way, and the answers 429 and 503, are tried again. */
  async call<Answer>(tool: string, body: object): Promise<Answer> {
    const requestId = crypto.randomUUID();
    const sent = JSON.stringify(body);
    for (let attempt = 1; ; attempt++) {
      let wait = 100 * 2 ** (attempt - 1);
      try {
        const reply = await fetch(`${this.#url}/tools/${encodeURIComponent(tool)}`, {
          method: "POST",
          headers: { ...this.#headers, "X-Request-ID": requestId },
          body: sent,
          signal: AbortSignal.timeout(this.#timeoutMs),
        });
        const told = record(await reply.text());
        if (reply.ok) {
          if (told) return told as Answer;
          throw new RagContextError(`${this.#site} returned an invalid response`, requestId, reply.status);
        }
        const asked = Number(reply.headers.get("Retry-After") ?? Number.NaN) * 1000;
        const busy = reply.status === 429 || reply.status === 503;
        if (!busy || attempt === TRIES || asked > LONGEST_WAIT_MS) {
          const message = (told?.error as string | undefined) ?? `${this.#site} answered HTTP ${reply.status}`;
          throw new RagContextError(message, requestId, reply.status, told);
        }
        if (asked >= 0) wait = asked;
      } catch (error) {
        if (error instanceof RagContextError) throw error;
        const late = error instanceof DOMException && error.name === "TimeoutError";
        if (late || attempt === TRIES) {
          const what = late ? "did not answer in time" : "cannot be reached";
          throw new RagContextError(`${this.#site} ${what}`, requestId);
        }
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

function record(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
