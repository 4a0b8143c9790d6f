// The map of the chosen pool's blocks: read when its figures have changed and it is in view, so seldom that it
// takes a tenth of the time at most.

import { at, make } from "./dom.js";
import { count } from "./figures.js";
import { MapColors } from "./map_colors.js";
import { MapCursor } from "./map_cursor.js";
import { gridFor } from "./map_grid.js";
import { paint, pixelsOf } from "./map_painting.js";
import { readMap } from "./server.js";

const MAX_SHARE = 0.1;
const PACE_MS = 250;
const MAX_PACE_MS = 3_000; // a page that was busy with something else is not to wait for long
const MAX_HEIGHT = 240;
const MAX_NAMED = 12; // entries of the legend

export class BlockMap {
  #name = null;
  #isLive = false;
  #isInView = false;
  #isReading = false;
  #known = null; // what the figures were for the map that is shown
  #wanted = null; // what they are
  #timer = 0;
  #dueAt = 0;
  #map = null; // as the server says it, its codes unpacked
  #colors = new MapColors();
  #cursor = new MapCursor();

  constructor() {
    new IntersectionObserver(([seen]) => {
      this.#isInView = seen.isIntersecting;
      this.#plan();
    }).observe(at("map-frame"));
    new ResizeObserver(() => this.#paint()).observe(at("map-frame"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
    for (const choice of document.getElementsByName("by")) {
      choice.addEventListener("change", () => {
        this.#known = null;
        this.#dueAt = 0;
        this.#plan();
      });
    }
  }

  /** Of another pool from now on; null for none. */
  begin(name) {
    this.#name = name;
    this.#known = this.#wanted = this.#map = null;
    this.#dueAt = 0;
    this.#colors = new MapColors();
    this.#cursor.begin();
    at("legend").replaceChildren();
    at("map").setAttribute("aria-label", "Being read");
    at("map").height = 0;
  }

  /** Whether figures come. */
  setLive(isLive) {
    this.#isLive = isLive;
    this.#plan();
  }

  /** The pool's figures are `figures` now, in any form that can be compared. */
  changed(figures) {
    this.#wanted = figures;
    this.#plan();
  }

  #plan() {
    clearTimeout(this.#timer);
    const isDue = this.#isLive && this.#isInView && this.#wanted !== this.#known && !document.hidden;
    if (this.#name === null || this.#isReading || !isDue) return;
    this.#timer = setTimeout(() => this.#read(), Math.max(0, this.#dueAt - performance.now()));
  }

  async #read() {
    const [name, figures, by] = [this.#name, this.#wanted, chosenBy()];
    const started = performance.now();
    this.#isReading = true;
    try {
      const map = await readMap(name, by);
      const codes = await unpacked(map.codes);
      if (name === this.#name && by === chosenBy()) {
        this.#map = { ...map, codes };
        this.#known = figures;
        this.#paint();
      }
    } catch {
      if (name === this.#name) at("map").setAttribute("aria-label", "The map could not be read");
    }
    this.#isReading = false;
    const took = performance.now() - started;
    const pause = Math.min(took / MAX_SHARE - took, MAX_PACE_MS);
    this.#dueAt = performance.now() + Math.max(PACE_MS, pause);
    this.#plan();
  }

  #paint() {
    const width = at("map-frame").clientWidth;
    if (this.#map === null || width === 0) return;
    const { codes, legend, by } = this.#map;
    const grid = gridFor(codes.length, width, MAX_HEIGHT);
    const colors = this.#colors.of(legend, by);
    const canvas = at("map");
    const scale = Math.round(grid.size * devicePixelRatio) / grid.size; // cells of whole pixels
    canvas.width = grid.columns * grid.size * scale;
    canvas.height = grid.rows * grid.size * scale;
    canvas.style.width = `${grid.columns * grid.size}px`;
    canvas.style.height = `${grid.rows * grid.size}px`;
    const byCode = new Uint32Array(256);
    pixelsOf(colors).forEach((pixel, index) => (byCode[legend[index].code] = pixel));
    paint(canvas.getContext("2d"), codes, grid, byCode, scale);
    this.#describe(legend, by, grid);
    this.#showLegend(legend, colors);
    this.#cursor.show(this.#map, grid);
  }

  #describe(legend, by, grid) {
    const parts = legend.filter((entry) => entry.num_blocks > 0).slice(0, MAX_NAMED);
    const text = parts.map((entry) => `${count(entry.num_blocks)} ${entry.label}`).join(", ");
    const cells = grid.run === 1 ? "" : `, ${count(grid.run)} in a cell`;
    at("map").setAttribute("aria-label", `Blocks of ${this.#name} by ${by}${cells}: ${text}`);
  }

  #showLegend(legend, colors) {
    const shown = legend.map((entry, index) => ({ ...entry, color: colors[index] }));
    const there = shown.filter((entry) => entry.num_blocks > 0 || (entry.code > 0 && this.#map.by === "state"));
    const items = there.slice(0, MAX_NAMED).map((entry) => {
      const swatch = make("i", [], { "aria-hidden": "true" });
      swatch.style.background = entry.color;
      const title = entry.lease_id === null ? entry.label : `${entry.label}, lease ${entry.lease_id}`;
      return make("li", [swatch, make("span", entry.label), make("b", count(entry.num_blocks))], { title });
    });
    const rest = there.slice(MAX_NAMED);
    if (rest.length) {
      const sum = rest.reduce((total, entry) => total + entry.num_blocks, 0);
      items.push(make("li", [`and ${count(rest.length)} more leases `, make("b", count(sum))]));
    }
    at("legend").replaceChildren(...items);
  }
}

const chosenBy = () => document.querySelector("input[name=by]:checked").value;

/** The bytes in base64 of zlib. */
async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
