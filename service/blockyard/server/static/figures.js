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

/** "2, 1 lost": how many there are, and how many of them have fallen silent. */
export function workers({ num_workers: all, num_lost_workers: lost }) {
  return lost ? `${count(all)}, ${count(lost)} lost` : count(all);
}

/** `num_hit_tokens` as "Hit tokens". */
export function words(name) {
  const text = name.replace(/^num_/, "").replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function plain(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? count(value) : String(value);
}
