// The chosen pool's tenants: what each holds, beside what it is guaranteed and may hold at most.

import { at, make, setFlag, setText } from "./dom.js";
import { count, partOf } from "./figures.js";

class Row {
  constructor(name) {
    this.fill = make("div");
    this.guaranteed = make("i");
    this.bar = make("div", [this.fill, this.guaranteed], {
      class: "bar",
      role: "meter",
      "aria-label": `Blocks held by ${name || "no tenant"}`,
      "aria-valuemin": "0",
    });
    this.held = make("span");
    this.numbers = ["guaranteed", "max", "waiting"].map(() => make("td", "", { class: "number" }));
    const title = make("th", name || "no tenant", { scope: "row", title: name || "Leases of no tenant" });
    setFlag(title, "none", name === "");
    const held = make("td", make("div", [this.bar, this.held], { class: "usage" }), { class: "held" });
    this.element = make("tr", [title, held, ...this.numbers]);
  }

  /** `numUsable`: blocks of the pool that can be held, which fill the bar of a tenant without a bound. */
  show(tenant, numUsable) {
    const { num_held_blocks: held, guaranteed_blocks: guaranteed, max_blocks: max, num_waiting: waiting } = tenant;
    const most = Math.max(Math.min(max ?? numUsable, numUsable), 1);
    const words = `${count(held)} of ${count(most)}${guaranteed ? `, ${count(guaranteed)} guaranteed` : ""}`;
    this.bar.setAttribute("aria-valuemax", String(most));
    this.bar.setAttribute("aria-valuenow", String(Math.min(held, most)));
    this.bar.setAttribute("aria-valuetext", words);
    this.bar.title = words;
    this.fill.style.width = `${Math.min(held / most, 1) * 100}%`;
    this.guaranteed.style.left = `${(guaranteed / most) * 100}%`;
    this.guaranteed.hidden = guaranteed === 0;
    setFlag(this.bar, "high", max !== null && held >= max);
    setText(this.held, count(held));
    const texts = [count(guaranteed), max === null ? "none" : count(max), count(waiting)];
    texts.forEach((text, index) => setText(this.numbers[index], text));
    const last = this.numbers.at(-1);
    const isBelow = waiting > 0 && held < guaranteed;
    setFlag(last, "waits", waiting > 0);
    setFlag(last, "below", isBelow);
    last.title = isBelow ? "Calls wait, and it holds less than it is guaranteed." : "";
  }
}

export class PoolTenants {
  #rows = new Map();

  /** Show those of `chosen`, as GET /v1/watch says it; nothing where no tenant has a name. */
  show(chosen) {
    const { tenants: told = [], num_tenants: numNamed = 0, stats } = chosen ?? {};
    const named = told.filter((tenant) => tenant.tenant !== "");
    const tenants = [...named, ...told.filter((tenant) => tenant.tenant === "")];
    at("tenants-panel").hidden = tenants.length === 0;
    const note = partOf(named.length, numNamed, "tenant", "those that wait, or hold the most");
    setText(at("tenants-note"), `${note}.`);
    at("tenants-mark").hidden = named.every((tenant) => tenant.guaranteed_blocks === 0);
    const body = at("tenants").tBodies[0];
    const wanted = new Set(tenants.map((tenant) => tenant.tenant));
    for (const [name, row] of this.#rows) {
      if (wanted.has(name)) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
    tenants.forEach((tenant, index) => {
      if (!this.#rows.has(tenant.tenant)) this.#rows.set(tenant.tenant, new Row(tenant.tenant));
      const row = this.#rows.get(tenant.tenant);
      if (body.children[index] !== row.element) body.insertBefore(row.element, body.children[index] ?? null);
      row.show(tenant, stats.num_blocks - 1);
    });
  }
}
