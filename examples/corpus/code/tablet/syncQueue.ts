/** Changes made on a tablet while it has no network, kept in IndexedDB and sent in order once it is back. */

export interface Change {
  /** Made on the tablet, so that the server can tell a repeated change from a new one. */
  id: string;
  kind: "arrival" | "departure" | "move";
  berth: string;
  at: string;
}

export interface Store {
  oldest(): Promise<Change | undefined>;
  add(change: Change): Promise<void>;
  remove(id: string): Promise<void>;
}

export class SyncQueue {
  private draining = false;

  constructor(
    private readonly store: Store,
    private readonly send: (change: Change) => Promise<Response>,
  ) {}

  async enqueue(change: Change): Promise<void> {
    await this.store.add(change);
    await this.drain();
  }

  /** Send what waits, the oldest first; stop at the first failure and try again when the browser is online. */
  async drain(): Promise<void> {
    if (this.draining || !navigator.onLine) return;
    this.draining = true;
    try {
      for (let change = await this.store.oldest(); change; change = await this.store.oldest()) {
        const answer = await this.send(change);
        if (!answer.ok && answer.status !== 409) return;
        await this.store.remove(change.id);
      }
    } catch {
      // No network: the "online" event calls drain again.
    } finally {
      this.draining = false;
    }
  }
}
