/** The address bar: the part of the url after # holds everything that is shown. */

import { formatHash, parseHash, type State } from "./state";

/** Browsers limit how often a page may replace its address; dragging changes it in every frame. */
const WRITE_MS = 200;

export class AddressBar {
  #timer = 0;

  read(): State {
    return parseHash(location.hash);
  }

  /** Write the state soon; of several calls in a row the last one counts. */
  writeSoon(state: State): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.write(state), WRITE_MS);
  }

  /** Write the state in place of the current history entry. */
  write(state: State): void {
    clearTimeout(this.#timer);
    const hash = formatHash(state);
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname);
  }

  /** Write the state as a new history entry. */
  push(state: State): void {
    clearTimeout(this.#timer);
    history.pushState(null, "", formatHash(state));
  }

  /** Call `changed` when the user goes back, forward, or edits the address. */
  listen(changed: (state: State) => void): void {
    addEventListener("popstate", () => changed(this.read()));
  }
}
