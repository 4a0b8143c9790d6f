// The nodes of a cluster: a row each, with a cell for each pool, so that one sees pools move.

import { at, make, setFlag, setText } from "./dom.js";
import { count, duration } from "./figures.js";
import { showLink } from "./rows.js";

const MAX_CELLS = 6_000; // of all nodes together, one a pool; beyond, a node shows its own pools alone
const MAX_WORDS = 20; // pools that are named to those who do not see the cells

class Row {
  #cells = new Map(); // by pool

  constructor() {
    this.name = make("th", [], { role: "rowheader", scope: "row" });
    this.state = make("td", "", { role: "cell" });
    this.strip = make("div", [], { class: "strip", role: "img" });
    this.numbers = ["Owned", "Followed", "Heard"].map((column) =>
      make("td", "", { role: "cell", class: "number", "data-column": column })
    );
    const strip = make("td", this.strip, { role: "cell", class: "pools" });
    this.element = make("tr", [this.name, this.state, strip, ...this.numbers], { role: "row" });
  }

  /** `pools`: all that get a cell here, in order. */
  show(node, report, pools) {
    const isAsked = node.node === report.node;
    showLink(this.name, node.node, isAsked ? null : `${node.url}/dashboard`);
    setFlag(this.name, "asked", isAsked);
    this.name.title = isAsked ? `${node.url}, the node of this page` : node.url;
    const state = stateOf(node);
    setText(this.state, state);
    this.state.dataset.mark = state;
    const texts = [count(node.num_owned_pools), count(node.num_followed_pools), `${duration(node.heard_ms_ago)} ago`];
    texts.forEach((text, index) => setText(this.numbers[index], text));
    this.#showStrip(node, report, pools, state);
  }

  #showStrip(node, report, pools, state) {
    const wanted = new Set(pools.map((pool) => pool.pool));
    for (const [name, cell] of this.#cells) {
      if (wanted.has(name)) continue;
      cell.remove();
      this.#cells.delete(name);
    }
    pools.forEach((pool, index) => {
      if (!this.#cells.has(pool.pool)) this.#cells.set(pool.pool, make("i"));
      const cell = this.#cells.get(pool.pool);
      if (this.strip.children[index] !== cell) this.strip.insertBefore(cell, this.strip.children[index] ?? null);
      const role = roleOf(node, pool);
      if (cell.dataset.role === role && cell.dataset.node === state) return;
      cell.dataset.role = role;
      cell.dataset.node = state;
      cell.title = role === "none" ? pool.pool : `${pool.pool}: ${role === "owner" ? "owned" : "held warm"}`;
    });
    const words = ["owner", "standby"].map((role) => named(role, report.pools.filter((pool) => roleOf(node, pool) === role)));
    const text = `Pools of ${node.node}: ${words.join("; ")}`;
    if (this.strip.getAttribute("aria-label") !== text) this.strip.setAttribute("aria-label", text);
  }
}

export class ClusterNodes {
  #rows = new Map();

  show(report) {
    const isAligned = report.nodes.length * report.pools.length <= MAX_CELLS;
    const wanted = new Set(report.nodes.map((node) => node.node));
    for (const [name, row] of this.#rows) {
      if (wanted.has(name)) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
    const body = at("nodes").tBodies[0];
    report.nodes.forEach((node, index) => {
      if (!this.#rows.has(node.node)) this.#rows.set(node.node, new Row());
      const row = this.#rows.get(node.node);
      if (body.children[index] !== row.element) body.insertBefore(row.element, body.children[index] ?? null);
      row.show(node, report, isAligned ? report.pools : report.pools.filter((pool) => roleOf(node, pool) !== "none"));
    });
    at("nodes-keys").hidden = report.pools.length === 0;
  }
}

function stateOf(node) {
  if (!node.is_live) return "lost";
  return node.is_leaving ? "leaving" : "live";
}

function roleOf({ node }, pool) {
  if (pool.node === node) return "owner";
  return pool.standby === node ? "standby" : "none";
}

function named(role, pools) {
  const what = role === "owner" ? "owns" : "holds warm";
  if (pools.length === 0) return `${what} none`;
  const names = pools.slice(0, MAX_WORDS).map((pool) => pool.pool);
  if (pools.length > MAX_WORDS) names.push(`${count(pools.length - MAX_WORDS)} more`);
  return `${what} ${names.join(", ")}`;
}
