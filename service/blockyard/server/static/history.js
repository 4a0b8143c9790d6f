// What the chosen pool's figures were, once a second, for as long as the page watches it: ten minutes at most.

const MAX_SAMPLES = 600;
const RATES = {
  admitted: "num_admitted_sequences",
  refused: "num_refused_allocations",
  evicted: "num_evicted_blocks",
};
const PACE_S = 0.25; // of messages

export class History {
  samples = []; // {at, usage, hitRate, admitted, refused, evicted, latency}, null where it is not known
  #told = null; // the latest message: {at, stats, latency}
  #sampled = null; // the one that the last sample was made of

  /** A message came `at` a time in milliseconds. */
  hear(at, stats, latency) {
    this.#told = { at, stats, latency };
    if (this.samples.length === 0) this.sample(at);
  }

  /** The last sample with what was told since. */
  get latest() {
    const last = this.samples.at(-1) ?? null;
    return last === null || this.#told === null ? last : { ...last, ...measured(this.#told) };
  }

  /** Note what is known at a time in milliseconds. */
  sample(at) {
    if (this.#told === null) return;
    this.samples.push({ at, ...measured(this.#told), ...this.#rates() });
    this.#sampled = this.#told;
    if (this.samples.length > MAX_SAMPLES) this.samples.shift();
  }

  /** From here on nothing is known, until the next message. */
  pause(at) {
    if (this.#told === null) return;
    const unknown = { usage: null, hitRate: null, admitted: null, refused: null, evicted: null };
    this.samples.push({ at, ...unknown, latency: new Map() });
    this.#told = this.#sampled = null;
  }

  #rates() {
    const [now, before] = [this.#told, this.#sampled];
    const last = this.samples.at(-1);
    // Where nothing changed for long nothing was told, either: the change is of the time since the last sample.
    const span = before && Math.max(Math.min(now.at - before.at, now.at - last.at + 1e3 * PACE_S) / 1e3, PACE_S);
    const rate = (counter) => {
      if (before === null) return null;
      const change = now.stats.counters[counter] - before.stats.counters[counter];
      return change < 0 ? null : change / span; // a pool that was made anew counts from 0
    };
    return Object.fromEntries(Object.entries(RATES).map(([name, counter]) => [name, rate(counter)]));
  }
}

function measured({ stats, latency }) {
  const calls = new Map(latency.map((call) => [call.call, call]));
  return { usage: stats.usage, hitRate: stats.hit_rate, latency: calls };
}
