// The token that requests are sent with. It stays in this tab, and is gone when that is closed.

const KEY = "blockyard-token";
const TOKEN = /^[\x21-\x7e]+$/; // what a header can carry

const storage = openStorage();
let token = storage?.getItem(KEY) ?? null;

/** Null in a browser that is told to let pages keep nothing: a token then lasts until the page is loaded anew. */
function openStorage() {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}

export const hasToken = () => token !== null;

export const authorization = () => (token === null ? {} : { Authorization: `Bearer ${token}` });

/** Try `text`, and forget what was used before; whether it can be a token at all. */
export function tryToken(text) {
  forgetToken();
  if (TOKEN.test(text)) token = text;
  return token !== null;
}

/** The token is right: a page that is loaded anew need not ask for it. */
export function keepToken() {
  if (token !== null) storage?.setItem(KEY, token);
}

export function forgetToken() {
  token = null;
  storage?.removeItem(KEY);
}
