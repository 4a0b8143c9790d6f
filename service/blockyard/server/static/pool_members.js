// Who holds the chosen pool's blocks, what is pinned, and which workers hold its memory.

import { at, setText } from "./dom.js";
import { count, duration, partOf } from "./figures.js";
import { PoolPins } from "./pool_pins.js";
import { PoolTenants } from "./pool_tenants.js";
import { Rows } from "./rows.js";

export class PoolMembers {
  #chosen = null; // as GET /v1/watch says it
  #heardAt = 0;
  #leases = new Rows(at("leases"), (lease) => lease.lease_id, [
    {
      text: (lease) => lease.holder,
      under: (lease) => lease.tenant,
      title: (lease) => `${lease.holder}, lease ${lease.lease_id}`,
    },
    { text: (lease) => lease.lease_id.slice(0, 8), title: (lease) => lease.lease_id },
    { text: (lease) => count(lease.num_sequences), isNumber: true },
    { text: (lease) => count(lease.num_blocks), isNumber: true },
    { text: (lease) => this.#expiry(lease), isNumber: true },
  ]);
  #pins = new PoolPins((pin) => this.#expiry(pin));
  #tenants = new PoolTenants();
  #workers = new Rows(at("workers"), (worker) => worker.worker_id, [
    { text: (worker) => worker.worker_id, title: (worker) => worker.worker_id },
    { text: (worker) => count(worker.rank), isNumber: true },
    { text: (worker) => worker.device, title: (worker) => worker.device },
    { text: (worker) => worker.state, mark: (worker) => worker.state },
    { text: (worker) => duration(worker.silent_ms + this.#age()), isNumber: true },
  ]);

  /** `chosen` was just told; null: the pool is gone, or another. */
  hear(chosen) {
    this.#chosen = chosen;
    this.#heardAt = performance.now();
    this.show();
  }

  /** Show what was told, by the time that has passed since. */
  show() {
    const { leases = [], workers = [], stats } = this.#chosen ?? {};
    this.#tenants.show(this.#chosen);
    this.#pins.show(this.#chosen);
    this.#leases.show(leases);
    this.#workers.show(workers);
    setText(at("leases-note"), partOf(leases.length, stats?.num_leases ?? 0, "lease", "those with the most blocks"));
    setText(at("workers-note"), partOf(workers.length, stats?.num_workers ?? 0, "worker", "lost ones first"));
  }

  #age() {
    return performance.now() - this.#heardAt;
  }

  #expiry(entry) {
    const left = entry.expires_in_ms - this.#age();
    return left > 0 ? `in ${duration(left)}` : "now";
  }
}
