// Charts of the chosen pool over the time that the page has watched it. The library that draws them is large,
// and is loaded once a pool is chosen; until then, and without it, the latest values stand under each title.

import { loadPlotly } from "./chart_library.js";
import { at, setText } from "./dom.js";
import { hitRate, milliseconds, percent, rate } from "./figures.js";
import { History } from "./history.js";
import { LineChart } from "./line_chart.js";

const CALLS = ["step", "allocate", "commit", "free", "lookup"];

export class PoolCharts {
  #history = new History();
  #isWanted = false;
  #plotly = null;
  #charts = [
    new LineChart("usage", { range: [0, 1], tickformat: ".0%" }, [
      { label: "Usage", lines: [{ of: (sample) => sample.usage }], text: (sample) => percent(sample.usage) },
      { label: "Hit rate", lines: [{ of: (sample) => sample.hitRate }], text: (sample) => hitRate(sample.hitRate) },
    ]),
    new LineChart("rates", {}, [
      rateSeries("Sequences admitted", "admitted"),
      rateSeries("Allocations refused", "refused"),
      rateSeries("Blocks evicted", "evicted"),
    ]),
    new LineChart("latency", { ticksuffix: " ms" }, CALLS.map(callSeries)),
  ];

  constructor() {
    const seen = new ResizeObserver(() => this.#draw());
    seen.observe(at("charts"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  /** Of another pool from now on; null for none. */
  begin(name) {
    this.#history = new History();
    if (name !== null) this.#load();
  }

  /** A message came. */
  hear(chosen, latency) {
    if (chosen === null) return;
    this.#history.hear(Date.now(), chosen.stats, latency);
    for (const chart of this.#charts) chart.say(this.#history.latest);
  }

  /** A second has passed, in which messages came or would have come, if it is `live`. */
  tick(isLive) {
    if (isLive) this.#history.sample(Date.now());
    else this.#history.pause(Date.now());
    for (const chart of this.#charts) chart.say(this.#history.latest);
    this.#draw();
  }

  async #load() {
    if (this.#isWanted) return;
    this.#isWanted = true;
    try {
      const { plotly, extra } = await loadPlotly();
      this.#plotly = plotly;
      if (plotly === null) this.#sayWithout(`Charts need plotly: pip install '${extra}' brings it.`);
    } catch {
      this.#isWanted = false; // again with the next pool
      this.#sayWithout("The library that draws the charts could not be loaded.");
    }
    this.#draw();
  }

  #sayWithout(reason) {
    at("no-charts").hidden = false;
    setText(at("no-charts"), reason);
  }

  #draw() {
    const { samples } = this.#history;
    const isSeen = samples.length > 0 && !document.hidden && at("charts").clientWidth > 0;
    if (isSeen) for (const chart of this.#charts) chart.draw(samples, this.#plotly);
  }
}

function rateSeries(label, name) {
  const text = (sample) => (sample[name] === null ? "not known yet" : rate(sample[name]));
  return { label, lines: [{ of: (sample) => sample[name] }], text };
}

/** Half of the calls took no longer than the dotted line, 99 of 100 no longer than the other. */
function callSeries(call) {
  const lines = [
    { of: (sample) => sample.latency.get(call)?.p99_ms ?? null, name: `${call} p99` },
    { of: (sample) => sample.latency.get(call)?.p50_ms ?? null, name: `${call} p50`, dash: "dot" },
  ];
  const text = (sample) => {
    const known = sample.latency.get(call);
    return known ? `p50 ${milliseconds(known.p50_ms)}, p99 ${milliseconds(known.p99_ms)}` : null;
  };
  return { label: call, lines, text };
}
