/** Notices over the picture: messages in its place, toasts, and the progress bar. */

import { element, found } from "./element";

const TOAST_MS = 6000;
/** Shorter waits show no progress bar. */
const BUSY_MS = 250;

export const lineOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));

export class Notices {
  readonly #message = found("message");
  readonly #toast = found("toast");
  readonly #progress = found("progress");
  #toastTimer = 0;
  #busyTimer = 0;

  /** Show a message in place of the picture; null removes it. */
  message(head: string | null, text = ""): void {
    this.#message.hidden = head === null;
    this.#message.replaceChildren(
      ...(head === null ? [] : [element("h2", {}, head), element("p", {}, text)]),
    );
  }

  /** Show a line for a few seconds. */
  toast(text: string): void {
    this.#toast.textContent = text;
    this.#toast.hidden = false;
    clearTimeout(this.#toastTimer);
    this.#toastTimer = setTimeout(() => (this.#toast.hidden = true), TOAST_MS);
  }

  busy(isBusy: boolean): void {
    if (isBusy) {
      this.#busyTimer ||= setTimeout(() => (this.#progress.hidden = false), BUSY_MS);
      return;
    }
    clearTimeout(this.#busyTimer);
    this.#busyTimer = 0;
    this.#progress.hidden = true;
  }
}
