// Watches the pools through the same routes as any other client. With many pools only the rows that are shown
// are read, and polling slows down so that it takes a tenth of the time at most.

import { at, setText } from "./dom.js";
import { count } from "./figures.js";
import { PoolDetails } from "./pool_details.js";
import { PoolTable } from "./pool_table.js";
import { readFigures, readPools, Refused } from "./server.js";

const POLL_MS = 1_000;
const MAX_SHARE = 0.1;
const MAX_ROWS = 50;
const MAX_CALLS = 6;

const table = new PoolTable(at("pools"), choose);
const details = new PoolDetails();

let pools = []; // as GET /v1/pools describes them
const figures = new Map(); // by name, as GET .../stats says them
let chosen = new URLSearchParams(location.hash.slice(1)).get("pool"); // #pool=NAME
let firstRow = 0;
let isPaused = false;
let isPolling = false;
let timer = 0;
let lastReached = null;
let failure = null;

// Polling

async function poll() {
  clearTimeout(timer);
  if (isPolling || isPaused || document.hidden) return;
  isPolling = true;
  const started = performance.now();
  try {
    await readAll();
    lastReached = new Date();
    failure = null;
  } catch (error) {
    failure = error;
  }
  isPolling = false;
  show();
  const took = performance.now() - started;
  timer = setTimeout(poll, Math.max(POLL_MS, failure ? 0 : took / MAX_SHARE - took));
}

async function readAll() {
  pools = await readPools();
  const wanted = new Set(shownNames());
  if (find(chosen)) wanted.add(chosen);
  for (const name of figures.keys()) if (!wanted.has(name)) figures.delete(name);
  const queue = [...wanted];
  const readNext = async () => {
    while (queue.length) {
      const name = queue.shift();
      const read = await readFigures(name);
      if (read) figures.set(name, read);
    }
  };
  await Promise.all(Array.from({ length: MAX_CALLS }, readNext));
}

// Which rows

const find = (name) => pools.find((pool) => pool.pool === name) ?? null;

function matchingNames() {
  const part = at("filter").value.trim().toLowerCase();
  return pools.map((pool) => pool.pool).filter((name) => name.toLowerCase().includes(part));
}

function shownNames() {
  return matchingNames().slice(firstRow, firstRow + MAX_ROWS);
}

function turnTo(row) {
  firstRow = row;
  show();
  poll();
}

// Showing

function show() {
  const numMatching = matchingNames().length;
  if (firstRow >= numMatching) firstRow = Math.max(0, Math.ceil(numMatching / MAX_ROWS) - 1) * MAX_ROWS;
  showConnection();
  showFailure();
  table.show(shownNames(), figures, chosen);
  at("no-pools").hidden = numMatching > 0 || !lastReached;
  setText(
    at("no-pools"),
    pools.length ? "No pool has such a name." : "No pools yet: PUT /v1/pools/{name} makes one."
  );
  showPager(numMatching);
  details.show(find(chosen), figures.get(chosen));
}

function showConnection() {
  let [state, text] = ["waiting", "Connecting"];
  if (isPaused) [state, text] = ["paused", "Paused"];
  else if (failure) [state, text] = ["failed", "No answer"];
  else if (lastReached) [state, text] = ["live", "Live"];
  at("connection").dataset.state = state;
  setText(at("connection"), text);
}

function showFailure() {
  document.body.toggleAttribute("data-stale", failure !== null);
  at("failure").hidden = failure === null;
  if (failure === null) return;
  const what =
    failure instanceof Refused
      ? `The server answers ${failure.status}: ${failure.message}.`
      : "The server cannot be reached.";
  const since = lastReached ? ` Figures are from ${lastReached.toLocaleTimeString()}.` : "";
  setText(at("failure"), `${what}${since} Trying again.`);
}

function showPager(numMatching) {
  const end = Math.min(firstRow + MAX_ROWS, numMatching);
  at("pager").hidden = numMatching <= MAX_ROWS;
  at("previous").disabled = firstRow === 0;
  at("next").disabled = end === numMatching;
  setText(at("range"), `${count(firstRow + 1)} to ${count(end)} of ${count(numMatching)}`);
}

// Listening

function choose(name) {
  chosen = name;
  history.replaceState(null, "", name === null ? location.pathname : `#pool=${encodeURIComponent(name)}`);
  show();
  poll();
  if (name !== null) at("details-title").focus();
}

at("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  at("pause").setAttribute("aria-pressed", String(isPaused));
  show();
  poll();
});
at("filter").addEventListener("input", () => turnTo(0));
at("previous").addEventListener("click", () => turnTo(firstRow - MAX_ROWS));
at("next").addEventListener("click", () => turnTo(firstRow + MAX_ROWS));
at("close").addEventListener("click", () => {
  const closed = chosen;
  choose(null);
  table.focus(closed);
});
document.addEventListener("visibilitychange", poll);
poll();
