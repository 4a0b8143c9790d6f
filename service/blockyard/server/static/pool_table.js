// The table of pools: one row a pool, made once and changed where a figure changes.

import { make, setFlag, setText } from "./dom.js";
import { count, hitRate, percent, workers } from "./figures.js";

const HIGH_USAGE = 0.9;
const NUMBERS = {
  Free: (figures) => count(figures.num_free_blocks),
  Held: (figures) => count(figures.num_held_blocks),
  Cached: (figures) => count(figures.num_cached_blocks),
  "Hit rate": (figures) => hitRate(figures.hit_rate),
  Sequences: (figures) => count(figures.num_sequences),
  Leases: (figures) => count(figures.num_leases),
  Workers: (figures) => workers(figures),
};

class Row {
  constructor(name, onChoose) {
    this.choose = make("button", name, { type: "button", class: "choose", "aria-controls": "details" });
    this.choose.addEventListener("click", () => onChoose(name));
    this.fill = make("div");
    this.bar = make("div", this.fill, {
      class: "bar",
      role: "meter",
      "aria-label": `Usage of ${name}`,
      "aria-valuemin": "0",
      "aria-valuemax": "100",
      "aria-valuenow": "0",
    });
    this.usage = make("span", [], { "aria-hidden": "true" }); // the bar says it
    this.numbers = Object.keys(NUMBERS).map((column) =>
      make("td", "", { role: "cell", class: "number", "data-column": column })
    );
    const usage = make("div", [this.bar, this.usage], { class: "usage" });
    const cells = [make("th", this.choose, { role: "rowheader", scope: "row" }), make("td", usage, { role: "cell" })];
    this.element = make("tr", [...cells, ...this.numbers], { role: "row", "data-pool": name });
  }

  show(figures, isChosen) {
    setFlag(this.element, "chosen", isChosen);
    this.choose.setAttribute("aria-expanded", String(isChosen));
    if (!figures) return;
    const usage = percent(figures.usage);
    this.bar.setAttribute("aria-valuenow", (figures.usage * 100).toFixed(1));
    this.bar.setAttribute("aria-valuetext", usage);
    this.fill.style.width = `${figures.usage * 100}%`;
    setFlag(this.bar, "high", figures.usage >= HIGH_USAGE);
    setText(this.usage, usage);
    setFlag(this.numbers.at(-1), "bad", figures.num_lost_workers > 0);
    Object.values(NUMBERS).forEach((text, index) => setText(this.numbers[index], text(figures)));
  }
}

export class PoolTable {
  #table;
  #onChoose;
  #rows = new Map();

  /** In `table`, a <table> with its head; `onChoose` is told the name of a pool. */
  constructor(table, onChoose) {
    this.#table = table;
    this.#onChoose = onChoose;
  }

  /** Show the pools of `names`, in this order, with what is known of them. */
  show(names, figures, chosen) {
    this.#table.hidden = names.length === 0;
    const body = this.#table.tBodies[0];
    const wanted = new Set(names);
    for (const [name, row] of this.#rows) {
      if (wanted.has(name)) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
    names.forEach((name, index) => {
      if (!this.#rows.has(name)) this.#rows.set(name, new Row(name, this.#onChoose));
      const row = this.#rows.get(name);
      if (body.children[index] !== row.element) body.insertBefore(row.element, body.children[index] ?? null);
      row.show(figures.get(name), name === chosen);
    });
  }

  focus(name) {
    this.#rows.get(name)?.choose.focus();
  }
}
