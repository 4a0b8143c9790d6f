// The stream of figures. It is opened anew whenever something else is asked for, when it breaks, and when it
// has said nothing for so long that it may have died without a word.

import { readStream } from "./server.js";

const RETRY_MS = 1_000;
const MAX_SILENCE_MS = 45_000;

export class Watch {
  #onFigures;
  #onFailure;
  #path = null;
  #connection = null; // aborts the stream that is open
  #timer = 0;

  /** `onFigures` is told each message, `onFailure` why there is none. */
  constructor(onFigures, onFailure) {
    this.#onFigures = onFigures;
    this.#onFailure = onFailure;
  }

  /** Follow what `query` asks for; null follows nothing. */
  follow(query) {
    const path = query === null ? null : `v1/watch?${new URLSearchParams(query)}`;
    if (path === this.#path) return;
    this.#path = path;
    this.#open();
  }

  #open() {
    this.#connection?.abort();
    this.#connection = null;
    clearTimeout(this.#timer);
    if (this.#path === null) return;
    this.#connection = new AbortController();
    this.#wait(MAX_SILENCE_MS);
    this.#listen(this.#connection);
  }

  #wait(time) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open(), time);
  }

  async #listen(connection) {
    const stream = readStream(this.#path, connection.signal);
    for (;;) {
      let failure = null;
      const heard = await stream.next().catch((error) => {
        failure = error;
        return { done: true };
      });
      if (connection !== this.#connection) return;
      if (heard.done) return this.#end(failure);
      this.#wait(MAX_SILENCE_MS);
      for (const { event, data } of heard.value) {
        if (event === "figures" && connection === this.#connection) this.#onFigures(JSON.parse(data));
      }
    }
  }

  /** What is wrong with a server that ended its stream in order is seen at the next try. */
  #end(failure) {
    this.#wait(RETRY_MS);
    if (failure !== null) this.#onFailure(failure);
  }
}
