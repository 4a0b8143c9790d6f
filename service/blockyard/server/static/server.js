// Reading from the server, by paths below the one that the page is under.

const TIMEOUT_MS = 5_000;

/** The server answered, but not with what was asked for. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `status ${status}`);
    this.status = status;
  }
}

export async function read(path) {
  const response = await fetch(path, {
    headers: { Accept: "application/json" },
    cache: "no-store",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response.json();
}

export const readPools = async () => (await read("v1/pools")).pools;
export const readAudit = (name) => read(`v1/pools/${encodeURIComponent(name)}/audit`);

/** A pool's figures; null if it is gone. */
export async function readFigures(name) {
  try {
    return await read(`v1/pools/${encodeURIComponent(name)}/stats`);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}
