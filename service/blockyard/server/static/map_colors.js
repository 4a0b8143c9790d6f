// The colours of a block map. A lease keeps its own for as long as the pool is shown.

const STATES = ["--map-null", "--map-free", "--map-cached", "--map-held", "--map-held-cached"];
const LEASES = ["--map-null", "--map-free", "--map-idle", "--map-several", "--map-others"];
const GOLDEN_ANGLE = 137.508; // neighbours in the order of leases are far from each other in hue
const FIRST_HUE = 195;

export class MapColors {
  #places = new Map(); // by lease id, in the order in which they were seen

  /** Colours by code, for a `legend` as the server says it. */
  of(legend, by) {
    const style = getComputedStyle(document.documentElement);
    const named = (by === "lease" ? LEASES : STATES).map((name) => style.getPropertyValue(name).trim());
    const lightness = style.getPropertyValue("--map-lightness").split(",").map(Number);
    return legend.map((entry) => (entry.lease_id === null ? named[entry.code] : this.#lease(entry.lease_id, lightness)));
  }

  #lease(id, lightness) {
    if (!this.#places.has(id)) this.#places.set(id, this.#places.size);
    const place = this.#places.get(id);
    const hue = (FIRST_HUE + place * GOLDEN_ANGLE) % 360;
    return `oklch(${lightness[place % lightness.length]} 0.13 ${hue.toFixed(1)})`;
  }
}
