// The stream of figures. It is opened anew whenever something else is asked for, when it breaks, and when it
// has said nothing for so long that it may have died without a word.

import { whyNot } from "./server.js";

const RETRY_MS = 1_000;
const MAX_SILENCE_MS = 45_000;

export class Watch {
  #onFigures;
  #onFailure;
  #path = null;
  #source = null;
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
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#timer);
    if (this.#path === null) return;
    const source = new EventSource(this.#path);
    this.#source = source;
    this.#wait(MAX_SILENCE_MS);
    source.addEventListener("figures", (event) => {
      if (source !== this.#source) return;
      this.#wait(MAX_SILENCE_MS);
      this.#onFigures(JSON.parse(event.data));
    });
    source.addEventListener("error", () => this.#fail(source));
  }

  #wait(time) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open(), time);
  }

  async #fail(source) {
    source.close(); // it would come back by itself, but not after every failure
    if (source !== this.#source) return;
    const reason = await whyNot(this.#path);
    if (source !== this.#source) return;
    if (reason !== null) this.#onFailure(reason);
    this.#wait(RETRY_MS);
  }
}
