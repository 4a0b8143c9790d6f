// The pools of a cluster: who owns each, who is to take it over, and how far behind this node is.

import { at, setText } from "./dom.js";
import { count, partOf } from "./figures.js";
import { Rows } from "./rows.js";

const MAX_ROWS = 100;

export class ClusterPools {
  #report = null;
  #rows = new Rows(at("cluster-pools"), (pool) => pool.pool, [
    { text: (pool) => pool.pool, title: (pool) => pool.pool, link: (pool) => dashboardOf(pool, this.#report) },
    { text: (pool) => pool.node ?? "none", mark: (pool) => (pool.node === null ? "lost" : "") },
    { text: (pool) => pool.standby ?? "none" },
    { text: (pool) => count(pool.ownership), isNumber: true },
    { text: (pool) => (pool.lag === null ? "-" : count(pool.lag)), isNumber: true },
  ]);

  constructor() {
    at("cluster-filter").addEventListener("input", () => this.#show());
  }

  show(report) {
    this.#report = report;
    this.#show();
  }

  #show() {
    const part = at("cluster-filter").value.trim().toLowerCase();
    const pools = this.#report.pools.filter((pool) => pool.pool.toLowerCase().includes(part));
    const shown = [...pools.filter((pool) => pool.node === null), ...pools.filter((pool) => pool.node !== null)];
    this.#rows.show(shown.slice(0, MAX_ROWS));
    const numShown = Math.min(shown.length, MAX_ROWS);
    setText(at("cluster-pools-note"), partOf(numShown, pools.length, "pool", "those without an owner first"));
  }
}

/** Where a pool of `report` is to be looked at: at its owner; null while it has none. */
export function dashboardOf(pool, report) {
  if (pool.url === null) return null;
  const place = `#pool=${encodeURIComponent(pool.pool)}`;
  return pool.node === report.node ? place : `${pool.url}/dashboard${place}`;
}
