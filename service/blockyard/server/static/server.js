// Reading from the server, by paths below the one that the page is under.

const TIMEOUT_MS = 5_000;

/** The server answered, but not with what was asked for. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `status ${status}`);
    this.status = status;
  }
}

async function read(path) {
  const response = await fetch(path, {
    headers: { Accept: "application/json" },
    cache: "no-store",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response.json();
}

const pool = (name) => `v1/pools/${encodeURIComponent(name)}`;

export const readPool = (name) => read(pool(name));
export const readAudit = (name) => read(`${pool(name)}/audit`);
export const readMap = (name, by) => read(`${pool(name)}/map?by=${by}`);
export const readCharts = () => read("dashboard/charts.json");

/** Why `path`, a stream, does not open: a `Refused`, or what kept the server from answering; null if it does. */
export async function whyNot(path) {
  const asking = new AbortController();
  const timer = setTimeout(() => asking.abort(), TIMEOUT_MS);
  try {
    const response = await fetch(path, { cache: "no-store", signal: asking.signal });
    return response.ok ? null : new Refused(response.status, await response.json().catch(() => ({})));
  } catch (error) {
    return error;
  } finally {
    clearTimeout(timer);
    asking.abort();
  }
}
