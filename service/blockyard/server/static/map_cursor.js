// The cursor over a block map, moved by a pointer or by keys, and what lies under it in words.

import { at, setText } from "./dom.js";
import { count } from "./figures.js";
import { blocksOf } from "./map_grid.js";

const HINT = "Point at the map, or move over it with the arrow keys, to see what lies there.";
const MAX_PARTS = 6;
const PAGE_ROWS = 10;

export class MapCursor {
  #map = null;
  #grid = null;
  #cell = null; // under the cursor; null while there is none

  constructor() {
    const canvas = at("map");
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerdown", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => {
      if (document.activeElement !== canvas) this.#move(null);
    });
    canvas.addEventListener("focus", () => {
      if (canvas.matches(":focus-visible")) this.#go(this.#cell ?? 0);
    });
    canvas.addEventListener("blur", () => this.#move(null));
    canvas.addEventListener("keydown", (event) => this.#press(event));
  }

  /** Over another pool from now on. */
  begin() {
    this.#map = this.#grid = null;
    this.#move(null);
    setText(at("map-said"), "");
  }

  /** Over `map` in `grid` from now on: the cursor stays where it is, if that is still there. */
  show(map, grid) {
    const block = this.#cell === null ? null : this.#cell * this.#grid.run;
    this.#map = map;
    this.#grid = grid;
    this.#move(block === null || block >= map.codes.length ? null : Math.floor(block / grid.run));
  }

  #point({ offsetX, offsetY }) {
    if (this.#grid === null) return;
    const { size, columns, numCells } = this.#grid;
    const column = Math.floor(offsetX / size);
    const cell = Math.floor(offsetY / size) * columns + column;
    this.#move(column >= 0 && column < columns && cell >= 0 && cell < numCells ? cell : null);
  }

  #press(event) {
    if (this.#grid === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const { columns, numCells } = this.#grid;
    const steps = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -columns,
      ArrowDown: columns,
      PageUp: -PAGE_ROWS * columns,
      PageDown: PAGE_ROWS * columns,
      Home: -numCells,
      End: numCells,
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.#go(Math.min(Math.max((this.#cell ?? 0) + steps[event.key], 0), numCells - 1));
  }

  /** By keys: then it is said aloud as well. */
  #go(cell) {
    this.#move(cell);
    if (this.#map !== null) setText(at("map-said"), at("map-words").textContent);
  }

  #move(cell) {
    this.#cell = cell;
    const cursor = at("map-cursor");
    cursor.hidden = cell === null || this.#grid === null;
    setText(at("map-words"), cursor.hidden ? HINT : this.#words());
    if (cursor.hidden) return;
    const { size, columns } = this.#grid;
    cursor.style.width = cursor.style.height = `${size + 3}px`;
    cursor.style.left = `${(cell % columns) * size - 2}px`;
    cursor.style.top = `${Math.floor(cell / columns) * size - 2}px`;
  }

  /** "Blocks 4,096 to 4,111: 10 held, 6 free". */
  #words() {
    const { codes, legend } = this.#map;
    const [first, last] = blocksOf(this.#cell, this.#grid, codes.length);
    const numbers = new Map();
    for (const code of codes.subarray(first, last + 1)) numbers.set(code, (numbers.get(code) ?? 0) + 1);
    const labels = new Map(legend.map((entry) => [entry.code, nameOf(entry)]));
    if (first === last) return `Block ${count(first)}: ${labels.get(codes[first])}`;
    const parts = [...numbers].sort(([, one], [, other]) => other - one);
    const text = parts.slice(0, MAX_PARTS).map(([code, number]) => `${count(number)} ${labels.get(code)}`);
    if (parts.length > MAX_PARTS) text.push(`${parts.length - MAX_PARTS} more kinds`);
    return `Blocks ${count(first)} to ${count(last)}: ${text.join(", ")}`;
  }
}

function nameOf({ label, lease_id: lease }) {
  return lease === null ? label : `${label} (lease ${lease.slice(0, 8)})`;
}
