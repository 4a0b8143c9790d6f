// Asks for a token where the server wants one.

import { at, setText } from "./dom.js";
import { tryToken } from "./token.js";

export class TokenForm {
  /** `onToken` is called once there is a token to try. */
  constructor(onToken) {
    at("unencrypted").hidden = isSecureContext;
    at("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (tryToken(at("token").value.trim())) onToken();
      else this.ask("This is no token: one has letters, digits and underscores.");
    });
  }

  get isAsking() {
    return !at("sign-in").hidden;
  }

  /** Ask; `why` says what was wrong with the one before, empty if there was none. */
  ask(why) {
    at("sign-in").hidden = false;
    setText(at("token-wrong"), why);
    at("token").setAttribute("aria-invalid", String(why !== ""));
    at("token").select();
    at("token").focus();
  }

  /** There is one, and it is right. */
  close() {
    if (!this.isAsking) return;
    at("sign-in").hidden = true;
    at("token").value = "";
    at("pools-title").focus();
  }
}
