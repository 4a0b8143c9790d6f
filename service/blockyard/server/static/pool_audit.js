// Who holds the chosen pool's blocks, recounted from its block tables when asked to.

import { at, make, setFlag, setText } from "./dom.js";
import { count } from "./figures.js";
import { showUnder } from "./rows.js";
import { readAudit, Refused } from "./server.js";

export class PoolAudit {
  #name = null;

  constructor() {
    at("recount").addEventListener("click", () => this.#recount());
  }

  /** Of the pool of this name, from now on. */
  begin(name) {
    this.#name = name;
    this.#clear();
  }

  #clear() {
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
      if (name === this.#name) this.#show(audit);
    } catch (error) {
      if (name === this.#name) {
        this.#clear();
        this.#say(error instanceof Refused ? error.message : "The server did not answer.", true);
      }
    }
    at("recount").disabled = false;
  }

  #show(audit) {
    this.#say(verdict(audit), !audit.ok);
    at("problems").hidden = audit.problems.length === 0;
    at("problems").replaceChildren(...audit.problems.map((problem) => make("li", problem)));
    at("holders").hidden = audit.holders.length === 0;
    at("holders").tBodies[0].replaceChildren(...audit.holders.map(holderRow));
  }
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
  const name = make("td");
  showUnder(name, holder.holder, holder.tenant);
  return make("tr", [
    name,
    make("td", holder.lease_id.slice(0, 8), { title: holder.lease_id }),
    make("td", count(holder.num_sequences), { class: "number" }),
    make("td", count(holder.num_blocks), { class: "number" }),
  ]);
}
