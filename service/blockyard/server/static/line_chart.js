// A chart of lines over time, and under its title the latest values in words, which are its legend, too.

import { at, make, setText } from "./dom.js";

const WINDOW_MS = 600_000;
const FIRST_WINDOW_MS = 60_000;
const HEADROOM = 1.1;

export class LineChart {
  #id;
  #axis;
  #series;
  #words = [];
  #nothing = make("li", "no calls in the last seconds");

  /**
   * In the elements `id`-chart and `id`-words. `axis` has what plotly shall know of the vertical axis. Each of
   * `series` has a `label`, its `lines` of a sample's values, and the `text` of a sample, null for not there.
   */
  constructor(id, axis, series) {
    this.#id = id;
    this.#axis = axis;
    this.#series = series;
    series.forEach(({ label }, index) => {
      const value = make("b");
      const item = make("li", [make("i", [], { class: `line-${index + 1}`, "aria-hidden": "true" }), `${label} `, value]);
      at(`${id}-words`).append(item);
      this.#words.push({ item, value });
    });
    at(`${id}-words`).append(this.#nothing);
  }

  /** Say the values of `sample`; null says nothing. */
  say(sample) {
    const isKnown = sample !== null && sample.usage !== null;
    const texts = this.#series.map(({ text }) => (isKnown ? text(sample) : null));
    texts.forEach((text, index) => {
      const { item, value } = this.#words[index];
      item.hidden = text === null;
      setText(value, text ?? "");
    });
    this.#nothing.hidden = !isKnown || texts.some((text) => text !== null);
  }

  /** Draw `samples`, at least one; nothing where `plotly` is null. */
  draw(samples, plotly) {
    const chart = at(`${this.#id}-chart`);
    chart.hidden = plotly === null;
    if (plotly === null) return;
    plotly.react(chart, this.#traces(samples), this.#layout(samples, chart), {
      displayModeBar: false,
      scrollZoom: false,
      doubleClick: false,
    });
  }

  #traces(samples) {
    const x = samples.map(({ at }) => localTime(at));
    return this.#series.flatMap(({ label, lines }, index) =>
      lines.map(({ of, name = label, dash = "solid" }) => ({
        name,
        x,
        y: samples.map(of),
        mode: "lines",
        line: { color: style(`--line-${index + 1}`), width: dash === "solid" ? 2 : 1.5, dash },
      }))
    );
  }

  #layout(samples, { clientWidth: width, clientHeight: height }) {
    const end = samples.at(-1).at;
    const begin = Math.max(end - WINDOW_MS, Math.min(samples[0].at, end - FIRST_WINDOW_MS));
    const quiet = { color: style("--quiet"), gridcolor: style("--line"), zeroline: false, fixedrange: true };
    return {
      width,
      height,
      margin: { l: 52, r: 12, t: 8, b: 30 },
      showlegend: false,
      dragmode: false,
      hovermode: "x unified",
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: style("--quiet") },
      hoverlabel: { bgcolor: style("--surface"), bordercolor: style("--edge"), font: { color: style("--text") } },
      xaxis: {
        ...quiet,
        type: "date",
        range: [localTime(begin), localTime(end)],
        tickformat: "%H:%M:%S",
        hoverformat: "%H:%M:%S",
        nticks: Math.max(2, Math.floor(width / 90)),
        showgrid: false,
        ticklabelstandoff: 6,
      },
      yaxis: { ...quiet, range: [0, this.#top(samples)], nticks: 5, ...this.#axis },
    };
  }

  #top(samples) {
    const values = this.#series.flatMap(({ lines }) => lines.flatMap(({ of }) => samples.map(of)));
    return HEADROOM * (Math.max(0, ...values.filter((value) => value !== null)) || 1);
  }
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** plotly shows times as they are written: here by the clock on the wall. */
function localTime(time) {
  const date = new Date(time);
  return new Date(time - date.getTimezoneOffset() * 60_000).toISOString().slice(0, -1);
}
