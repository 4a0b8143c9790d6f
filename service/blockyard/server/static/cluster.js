// The cluster that the server is a node of, if it is: asked for once a second, as GET /v1/cluster tells it.

import { ClusterNodes } from "./cluster_nodes.js";
import { ClusterPools, dashboardOf } from "./cluster_pools.js";
import { at, setText } from "./dom.js";
import { isNode, readCluster } from "./server.js";

const EVERY_MS = 1_000;

export class Cluster {
  #nodes = new ClusterNodes();
  #pools = new ClusterPools();
  #isWatching = false;
  #isNode = null; // whether the server is one; null: nobody has said
  #round = 0; // what was asked before the last change is not shown
  #timer = 0;
  #report = null;
  #onReport;

  /** `onReport` is called whenever `elsewhere` may say something else. */
  constructor(onReport) {
    this.#onReport = onReport;
  }

  /** Whether to ask. */
  setWatching(isWatching) {
    if (isWatching === this.#isWatching) return;
    this.#isWatching = isWatching;
    this.#round += 1;
    clearTimeout(this.#timer);
    if (isWatching) this.#ask(this.#round);
  }

  /** What was shown goes, also what is known of the server. */
  forget() {
    this.#isNode = null;
    this.#show(null);
  }

  /** The pool of this name where another node owns it; else null. */
  elsewhere(name) {
    const pool = this.#report?.pools.find((each) => each.pool === name);
    return pool && pool.node !== null && pool.node !== this.#report.node ? pool : null;
  }

  /** Where a pool is to be looked at. */
  dashboardOf(pool) {
    return dashboardOf(pool, this.#report);
  }

  async #ask(round) {
    const report = await this.#read().catch(() => undefined); // what is wrong, the stream of figures tells
    if (round !== this.#round) return;
    if (report === undefined) at("cluster").toggleAttribute("data-old", true);
    else this.#show(report);
    if (this.#isNode !== false) this.#timer = setTimeout(() => this.#ask(round), EVERY_MS);
  }

  async #read() {
    this.#isNode ??= await isNode();
    return this.#isNode ? readCluster() : null;
  }

  #show(report) {
    this.#report = report;
    at("cluster").hidden = report === null;
    at("cluster").toggleAttribute("data-old", false);
    showBanner(report);
    setText(at("pools-title"), report === null ? "Pools" : "Pools of this node");
    if (report !== null) {
      setText(at("cluster-title"), `Cluster ${report.cluster}`);
      setText(at("cluster-note"), `${report.node}: ${standing(report)}`);
      this.#nodes.show(report);
      this.#pools.show(report);
    }
    this.#onReport();
  }
}

function showBanner(report) {
  const text = report === null ? "" : warning(report);
  at("fenced").hidden = text === "";
  setText(at("fenced"), text);
}

/** Why the node does not answer for its pools, or soon will not; empty where all is well. */
function warning({ node, is_connected: isConnected, lease_left_ms: left }) {
  if (left <= 0) {
    const why = isConnected ? "until it has a new one" : "until it reaches NATS again";
    return `${node} has no lease: it answers for no pool ${why}. Meanwhile another node may take them over.`;
  }
  if (!isConnected) return `${node} does not reach NATS: once its lease runs out, it answers for no pool.`;
  return "";
}

function standing({ is_connected: isConnected, lease_left_ms: left }) {
  const nats = isConnected ? "connected to NATS" : "not connected to NATS";
  return left > 0 ? `${nats}, lease for ${(left / 1_000).toFixed(1)} s` : `${nats}, no lease`;
}
