// The chosen pool: its figures, its blocks, its charts, its members, its configuration, and its audit.

import { BlockMap } from "./block_map.js";
import { at, fillList, setText } from "./dom.js";
import { count, eviction, hitRate, percent, plain, words, workers } from "./figures.js";
import { PoolAudit } from "./pool_audit.js";
import { PoolCharts } from "./pool_charts.js";
import { PoolMembers } from "./pool_members.js";
import { readPool } from "./server.js";

const TICK_MS = 1_000;

export class PoolDetails {
  #name = null;
  #made = null; // what tells the pool from a later one of its name
  #isLive = false;
  #map = new BlockMap();
  #charts = new PoolCharts();
  #members = new PoolMembers();
  #audit = new PoolAudit();

  constructor() {
    setInterval(() => this.#tick(), TICK_MS);
  }

  /** A message came, and is shown. */
  hear({ chosen, latency }) {
    if (chosen !== null && chosen.pool !== this.#name) return;
    this.#members.hear(chosen);
    this.#charts.hear(chosen, latency);
  }

  /** Whether messages come, or else what is shown may be old. */
  setLive(isLive) {
    this.#isLive = isLive;
    this.#map.setLive(isLive);
  }

  /** Show the pool of this name with its `stats`; null where there is none, or nothing is known of it. */
  show(name, stats) {
    const shown = stats === null ? null : name;
    at("details").hidden = shown === null;
    if (shown !== this.#name) this.#begin(shown);
    if (shown === null) return;
    fillList(at("tiles"), tiles(stats));
    const counters = Object.entries(stats.counters);
    fillList(
      at("counters"),
      counters.map(([counter, value]) => [words(counter), count(value)])
    );
    this.#describe(stats);
    this.#map.changed(JSON.stringify(stats));
  }

  #begin(name) {
    this.#name = name;
    this.#made = null;
    setText(at("details-title"), name ?? "");
    at("configuration").replaceChildren();
    this.#map.begin(name);
    this.#charts.begin(name);
    this.#audit.begin(name);
    this.#members.hear(null);
  }

  /** The configuration is read once, and again where the pool may be another. */
  async #describe(stats) {
    const made = `${stats.epoch} ${stats.num_blocks}`;
    if (made === this.#made) return;
    this.#made = made;
    const name = this.#name;
    try {
      const pool = await readPool(name);
      if (name === this.#name) fillList(at("configuration"), configuration(pool));
    } catch {
      if (name === this.#name) this.#made = null; // again with the next figures
    }
  }

  #tick() {
    if (this.#name === null || document.hidden) return;
    if (this.#isLive) this.#members.show();
    this.#charts.tick(this.#isLive);
  }
}

function tiles(stats) {
  const entries = [
    ["Usage", percent(stats.usage)],
    ["Held", count(stats.num_held_blocks)],
    ["Free", count(stats.num_free_blocks)],
    ["Cached", count(stats.num_cached_blocks)],
    ["Blocks", count(stats.num_blocks)],
    ["Hit rate", hitRate(stats.hit_rate)],
    ["Eviction", eviction(stats)],
    ["Sequences", count(stats.num_sequences)],
    ["Leases", count(stats.num_leases)],
    ["Workers", workers(stats)],
    ["Epoch", count(stats.epoch)],
  ];
  if (stats.num_host_blocks !== null) {
    entries.push(["Free on the host", `${count(stats.num_free_host_blocks)} of ${count(stats.num_host_blocks)}`]);
  }
  return entries;
}

function configuration({ pool: _, groups, epoch: __, ...options }) {
  const set = Object.entries(options).filter(([, value]) => value !== null);
  return [
    ...set.map(([name, value]) => [words(name), plain(value)]),
    ...groups.map((group, index) => [groups.length === 1 ? "Group" : `Group ${index}`, sizes(group)]),
  ];
}

/** `{kind: "full_attention", block_size: 16}` as "Full attention, block size 16". */
function sizes({ kind, ...rest }) {
  return [words(kind), plain(rest)].join(", ");
}
