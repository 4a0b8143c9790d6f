// plotly, from the server's own Python package of it.

import { make } from "./dom.js";
import { readCharts } from "./server.js";

/** `{plotly, extra}`: the library, null where the server has none, and what to install for it. */
export async function loadPlotly() {
  const { script, style_ids: styles, extra } = await readCharts();
  if (script === null) return { plotly: null, extra };
  // Styles of maps, which nobody draws here, come as <style>, which is not allowed: they seem to be there already.
  document.head.append(...styles.map((id) => make("template", [], { id })));
  await import(new URL(script, document.baseURI));
  return { plotly: window.Plotly, extra };
}
