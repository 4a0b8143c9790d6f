// The chosen pool: its configuration, its counters, and who holds its blocks when asked to count.

import { at, fillList, make, setFlag, setText } from "./dom.js";
import { count, plain, words } from "./figures.js";
import { readAudit, Refused } from "./server.js";

export class PoolDetails {
  #name = null;

  constructor() {
    at("recount").addEventListener("click", () => this.#recount());
  }

  /** Show `pool` as the server describes it, with its `figures` if they are known; null shows nothing. */
  show(pool, figures) {
    at("details").hidden = pool === null;
    const name = pool?.pool ?? null;
    if (name !== this.#name) this.#clearHolders();
    this.#name = name;
    if (pool === null) return;
    setText(at("details-title"), name);
    fillList(at("configuration"), configuration(pool));
    const counters = Object.entries(figures?.counters ?? {});
    fillList(
      at("counters"),
      counters.map(([counter, value]) => [words(counter), count(value)])
    );
  }

  #clearHolders() {
    this.#say("");
    at("holders").hidden = true;
    at("problems").hidden = true;
  }

  #say(verdict, isBad = false) {
    setFlag(at("verdict"), "bad", isBad);
    setText(at("verdict"), verdict);
  }

  async #recount() {
    const name = this.#name;
    at("recount").disabled = true;
    this.#say("Counting");
    try {
      const audit = await readAudit(name);
      if (name === this.#name) this.#showAudit(audit);
    } catch (error) {
      if (name === this.#name) {
        this.#clearHolders();
        this.#say(error instanceof Refused ? error.message : "The server did not answer.", true);
      }
    }
    at("recount").disabled = false;
  }

  #showAudit(audit) {
    this.#say(verdict(audit), !audit.ok);
    at("problems").hidden = audit.problems.length === 0;
    at("problems").replaceChildren(...audit.problems.map((problem) => make("li", problem)));
    at("holders").hidden = audit.holders.length === 0;
    at("holders").tBodies[0].replaceChildren(...audit.holders.map(holderRow));
  }
}

function configuration({ pool: _, groups, ...options }) {
  const set = Object.entries(options).filter(([, value]) => value !== null);
  return [
    ...set.map(([name, value]) => [words(name), plain(value)]),
    ...groups.map((group, index) => [groups.length === 1 ? "Group" : `Group ${index}`, sizes(group)]),
  ];
}

/** `{kind: "full_attention", block_size: 16}` as "Full attention, block size 16". */
function sizes({ kind, ...rest }) {
  const named = Object.entries(rest).map(([name, value]) => `${words(name).toLowerCase()} ${plain(value)}`);
  return [words(kind), ...named].join(", ");
}

function verdict(audit) {
  const states = [
    [audit.num_free_blocks, "free"],
    [audit.num_held_blocks, "held"],
    [audit.num_null_blocks, "null"],
  ];
  const sum = states.map(([number, state]) => `${count(number)} ${state}`).join(" + ");
  const when = new Date().toLocaleTimeString();
  const holders = audit.holders.length ? "" : " Nobody holds any.";
  return `${audit.ok ? "Adds up" : "Does not add up"} at ${when}: ${sum} = ${count(audit.num_blocks)} blocks.${holders}`;
}

function holderRow(holder) {
  const lease = make("code", holder.lease_id.slice(0, 8), { title: holder.lease_id });
  return make("tr", [
    make("td", holder.holder),
    make("td", lease),
    make("td", count(holder.num_sequences), { class: "number" }),
    make("td", count(holder.num_blocks), { class: "number" }),
  ]);
}
