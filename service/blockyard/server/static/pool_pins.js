// The chosen pool's pins: what is kept, and for how long.

import { at, setText } from "./dom.js";
import { count, partOf } from "./figures.js";
import { Rows } from "./rows.js";

export class PoolPins {
  #rows;

  /** `expiry` says of an entry, in words, when it ends. */
  constructor(expiry) {
    this.#rows = new Rows(at("pins"), (pin) => pin.pin_id, [
      { text: (pin) => pin.pin_id.slice(0, 8), under: (pin) => pin.tenant, title: (pin) => pin.pin_id },
      { text: (pin) => (pin.hard ? "hard" : "soft") },
      { text: (pin) => count(pin.num_tokens), isNumber: true },
      { text: (pin) => (pin.hard ? count(pin.num_held_blocks) : "none"), isNumber: true },
      { text: expiry, isNumber: true },
    ]);
  }

  /** Show those of `chosen`, as GET /v1/watch says it; nothing where there are none. */
  show(chosen) {
    const { pins = [], stats } = chosen ?? {};
    at("pins-panel").hidden = pins.length === 0;
    this.#rows.show(pins);
    if (pins.length === 0) return;
    const { num_pins: all, num_soft_pinned_blocks: soft, num_hard_pinned_blocks: hard } = stats;
    const told = partOf(pins.length, all, "pin", "those that hold the most, then the longest");
    setText(at("pins-note"), `${told}. ${count(soft)} cached blocks are evicted last, ${count(hard)} are held.`);
  }
}
