// How figures read.

export const count = new Intl.NumberFormat("en").format;

/** A share of 0 to 1. "0 %" and "100 %" are said of exactly these. */
export function percent(share) {
  if (share === 0) return "0 %";
  if (share === 1) return "100 %";
  if (share < 0.001) return "< 0.1 %";
  if (share > 0.999) return "> 99.9 %";
  return `${(share * 100).toFixed(1)} %`;
}

/** Nothing asked for is not the same as nothing found. */
export function hitRate(rate) {
  return rate === null || rate === undefined ? "no queries yet" : percent(rate);
}

/** "lru", or "adaptive, weight 0.5": what use counts for against recency at the moment. */
export function eviction({ eviction: policy, eviction_weight: weight }) {
  return weight === null ? policy : `${policy}, weight ${plain(weight)}`;
}

/** "2, 1 lost": how many there are, and how many of them have fallen silent. */
export function workers({ num_workers: all, num_lost_workers: lost }) {
  return lost ? `${count(all)}, ${count(lost)} lost` : count(all);
}

/** `num_hit_tokens` as "Hit tokens". */
export function words(name) {
  const text = name.replace(/^num_/, "").replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** An option's value; those of an object that are set as "hash form int64, needs token ids no". */
export function plain(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return typeof value === "number" ? count(value) : String(value);
  const set = Object.entries(value).filter(([, part]) => part !== null);
  return set.map(([name, part]) => `${words(name).toLowerCase()} ${plain(part)}`).join(", ");
}

/** Milliseconds as "850 ms", "12 s", "3 min" or "2 h". */
export function duration(ms) {
  if (ms < 1_000) return `${Math.round(Math.max(ms, 0) / 10) * 10} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

/** A latency in milliseconds, to two digits that matter. */
export const milliseconds = (ms) => `${Number(ms.toPrecision(2))} ms`;

/** A rate: small ones with a decimal. */
export const rate = (value) => (value > 0 && value < 10 ? value.toFixed(1) : count(Math.round(value)));

/** "20 of 35 leases: those with the most blocks", or "3 leases". */
export function partOf(numShown, numAll, noun, which) {
  if (numAll === 0) return `No ${noun}s.`;
  const all = `${count(numAll)} ${noun}${numAll === 1 ? "" : "s"}`;
  return numShown < numAll ? `${count(numShown)} of ${all}: ${which}` : all;
}
