// What the chosen pool's figures were, once a second, for as long as the page watches it: ten minutes at most.

const MAX_SAMPLES = 600;
const RATES = {
  admitted: "num_admitted_sequences",
  refused: "num_refused_allocations",
  evicted: "num_evicted_blocks",
};
const MIN_SPAN_S = 0.25;
const MAX_SPAN_S = 1.25; // nothing was told for longer where nothing changed: the change is of the last second

export class History {
  samples = []; // {at, usage, hitRate, admitted, refused, evicted, latency}, null where it is not known
  #told = null; // the latest message: {at, stats, latency}
  #sampled = null; // the one that the last sample was made of

  /** A message came `at` a time in milliseconds. */
  hear(at, stats, latency) {
    this.#told = { at, stats, latency };
    if (this.samples.length === 0) this.sample(at);
  }

  /** Note what is known at a time in milliseconds. */
  sample(at) {
    if (this.#told === null) return;
    const { stats, latency } = this.#told;
    this.samples.push({
      at,
      usage: stats.usage,
      hitRate: stats.hit_rate,
      ...this.#rates(),
      latency: new Map(latency.map((call) => [call.call, call])),
    });
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
    const span = before && Math.min(Math.max((now.at - before.at) / 1e3, MIN_SPAN_S), MAX_SPAN_S);
    const rate = (counter) => {
      if (before === null) return null;
      const change = now.stats.counters[counter] - before.stats.counters[counter];
      return change < 0 ? null : change / span; // a pool that was made anew counts from 0
    };
    return Object.fromEntries(Object.entries(RATES).map(([name, counter]) => [name, rate(counter)]));
  }
}
