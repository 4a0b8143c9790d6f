// Watches the pools through the same routes as any other client: a stream of the figures that are shown.

import { Cluster } from "./cluster.js";
import { at, setText } from "./dom.js";
import { count } from "./figures.js";
import { PoolDetails } from "./pool_details.js";
import { PoolTable } from "./pool_table.js";
import { showLink } from "./rows.js";
import { Refused } from "./server.js";
import { forgetToken, hasToken, keepToken } from "./token.js";
import { TokenForm } from "./token_form.js";
import { Watch } from "./watch.js";

const MAX_ROWS = 50;
const UNKNOWN_TOKEN = "The server does not know this token. It may have been revoked.";
const TOO_FEW_RIGHTS =
  "This token has too few rights: the dashboard shows the pools of all tenants, so it takes one that may read and " +
  "has no tenant, or an admin's.";

const table = new PoolTable(at("pools"), choose);
const details = new PoolDetails();
const watch = new Watch(hear, fail);
const form = new TokenForm(trying);
const cluster = new Cluster(showElsewhere);

let figures = null; // as GET /v1/watch says them
let chosen = poolOfAddress();
let firstRow = 0;
let isPaused = false;
let lastHeard = null;
let failure = null;
let isWaiting = false; // for a token
let isEager = false; // to bring whoever chose a pool to what is shown of it

// Following

function follow() {
  const isWatching = !isPaused && !isWaiting && !document.hidden;
  const query = { filter: at("filter").value.trim(), offset: firstRow, limit: MAX_ROWS };
  if (chosen !== null) query.pool = chosen;
  watch.follow(isWatching ? query : null);
  cluster.setWatching(isWatching);
  details.setLive(isWatching && failure === null);
}

function hear(message) {
  figures = message;
  lastHeard = new Date();
  failure = null;
  if (form.isAsking) {
    keepToken();
    form.close();
  }
  if (firstRow >= message.num_matching && firstRow > 0) {
    turnTo(Math.max(0, Math.ceil(message.num_matching / MAX_ROWS) - 1) * MAX_ROWS);
  } else {
    show();
  }
  details.hear(message);
  details.setLive(true);
}

function fail(reason) {
  if (reason instanceof Refused && reason.isOfToken) return askForToken(reason);
  failure = reason;
  details.setLive(false);
  show();
}

/** What was shown goes: whoever reads on may be somebody else. */
function askForToken({ status }) {
  const wrong = status === 403 ? TOO_FEW_RIGHTS : hasToken() ? UNKNOWN_TOKEN : "";
  forgetToken();
  figures = failure = lastHeard = null;
  isWaiting = true;
  follow();
  table.show([], new Map(), null);
  details.show(null, null);
  cluster.forget();
  form.ask(wrong);
  show();
}

function trying() {
  watch.follow(null); // an answer to the token before says nothing of this one
  isWaiting = false;
  follow();
  show();
}

function turnTo(row) {
  firstRow = row;
  follow();
  show();
}

// Showing

function show() {
  showConnection();
  showFailure();
  at("list").hidden = at("pause").hidden = form.isAsking;
  at("forget").hidden = form.isAsking || !hasToken();
  at("metrics").hidden = form.isAsking || hasToken(); // a link sends no token
  if (figures === null) return;
  const known = new Map(figures.pools.map(({ pool, stats }) => [pool, stats]));
  table.show([...known.keys()], known, chosen);
  at("no-pools").hidden = figures.num_matching > 0;
  setText(
    at("no-pools"),
    figures.num_pools ? "No pool has such a name." : "No pools yet: PUT /v1/pools/{name} makes one."
  );
  showPager(figures.num_matching);
  const hasChosen = figures.chosen?.pool === chosen;
  details.show(chosen, hasChosen ? figures.chosen.stats : (known.get(chosen) ?? null));
  showElsewhere();
  if (isEager && !at("details").hidden) {
    isEager = false;
    at("details-title").focus();
  }
}

/** The chosen pool may have moved to another node, or never have been here. */
function showElsewhere() {
  const pool = chosen === null || figures?.chosen?.pool === chosen ? null : cluster.elsewhere(chosen);
  at("elsewhere").hidden = pool === null;
  if (pool === null) return;
  showLink(at("elsewhere"), `${pool.pool} is a pool of ${pool.node}: look at it there`, cluster.dashboardOf(pool));
}

function showConnection() {
  let [state, text] = ["waiting", "Connecting"];
  if (isWaiting) [state, text] = ["waiting", "Token needed"];
  else if (isPaused) [state, text] = ["paused", "Paused"];
  else if (failure) [state, text] = ["failed", "No answer"];
  else if (lastHeard) [state, text] = ["live", "Live"];
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
  const since = lastHeard ? ` Figures are from ${lastHeard.toLocaleTimeString()}.` : "";
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

/** Of #pool=NAME; null for none. */
function poolOfAddress() {
  return new URLSearchParams(location.hash.slice(1)).get("pool");
}

function choose(name) {
  chosen = name;
  isEager = name !== null;
  history.replaceState(null, "", name === null ? location.pathname : `#pool=${encodeURIComponent(name)}`);
  follow();
  show();
}

at("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  at("pause").setAttribute("aria-pressed", String(isPaused));
  follow();
  show();
});
at("forget").addEventListener("click", () => {
  forgetToken();
  location.reload(); // nothing of what it showed is left
});
at("filter").addEventListener("input", () => turnTo(0));
at("previous").addEventListener("click", () => turnTo(firstRow - MAX_ROWS));
at("next").addEventListener("click", () => turnTo(firstRow + MAX_ROWS));
at("close").addEventListener("click", () => {
  const closed = chosen;
  choose(null);
  table.focus(closed);
});
document.addEventListener("visibilitychange", follow);
addEventListener("hashchange", () => choose(poolOfAddress()));
follow();
