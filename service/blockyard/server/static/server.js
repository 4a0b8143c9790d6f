// Reading from the server, by paths below the one that the page is under.

import { EventMessages } from "./event_messages.js";
import { authorization } from "./token.js";

const TIMEOUT_MS = 5_000;

/** The server answered, but not with what was asked for. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `status ${status}`);
    this.status = status;
  }

  /** Whether another token may help. */
  get isOfToken() {
    return this.status === 401 || this.status === 403;
  }
}

async function ask(path, accept, signal) {
  const headers = { Accept: accept, ...authorization() };
  const response = await fetch(path, { headers, cache: "no-store", signal });
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response;
}

async function read(path) {
  const response = await ask(path, "application/json", AbortSignal.timeout(TIMEOUT_MS));
  return response.json();
}

const pool = (name) => `v1/pools/${encodeURIComponent(name)}`;

export const readPool = (name) => read(pool(name));
export const readAudit = (name) => read(`${pool(name)}/audit`);
export const readMap = (name, by) => read(`${pool(name)}/map?by=${by}`);
export const isNode = async () => (await read("dashboard/cluster.json")).is_node;
export const readCluster = () => read("v1/cluster");
export const readCharts = () => read("dashboard/charts.json");

/** The stream at `path`, as it comes: a list of messages each time, empty where it was but a sign of life. */
export async function* readStream(path, signal) {
  const { body } = await ask(path, "text/event-stream", signal);
  const pieces = body.pipeThrough(new TextDecoderStream()).getReader();
  const messages = new EventMessages();
  for (let piece = await pieces.read(); !piece.done; piece = await pieces.read()) {
    yield messages.read(piece.value);
  }
}
