// The composer: Enter sends, Shift+Enter makes a line, Esc stops; one message may wait its turn.
import { slot } from "../dom.js";

const LIMIT = 65_536;

export class Composer {
  /** `draftKey()` names where unsent text is kept in this window's storage. */
  constructor(root, { send, stop, draftKey }) {
    this.form = slot(root, "compose");
    this.input = slot(root, "input");
    this.sendButton = slot(root, "send");
    this.stopButton = slot(root, "stop");
    this.queuedBox = slot(root, "queued");
    this.pendingBox = slot(root, "pending");
    this.hint = slot(root, "hint");
    this.plainHint = this.hint.textContent;
    this.onSend = send;
    this.onStop = stop;
    this.draftKey = draftKey;
    this.running = false;
    this.queued = "";
    this.closed = "";
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.#submit(); });
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.input.addEventListener("input", () => { this.#measure(); this.remember(); });
    this.stopButton.addEventListener("click", () => this.onStop());
    this.queuedBox.addEventListener("click", (event) => {
      if (event.target.closest("[data-do=unqueue]")) this.unqueue();
    });
    document.addEventListener("keydown", (event) => {
      const elsewhere = event.target.closest("dialog, [popover], details.menu, textarea, input");
      if (event.key === "Escape" && this.running && !event.defaultPrevented && !elsewhere) this.onStop();
    });
  }

  #key(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "Escape" && this.running) {
      event.preventDefault();
      this.onStop();
    }
  }

  #measure() {
    const bytes = new TextEncoder().encode(this.input.value).length;
    const over = bytes > LIMIT;
    this.hint.textContent = this.closed ? this.closed : over ? `This message has ${bytes.toLocaleString("en")} bytes; the limit is ${LIMIT.toLocaleString("en")}.` : this.plainHint;
    this.hint.classList.toggle("field-error", over);
    this.sendButton.disabled = over || Boolean(this.closed);
    return !over;
  }

  /** Keep what is not sent yet, so that a reload does not lose it. */
  remember() {
    const text = [this.queued, this.input.value].filter(Boolean).join("\n\n");
    try {
      if (text) sessionStorage.setItem(this.draftKey(), text);
      else sessionStorage.removeItem(this.draftKey());
    } catch {
      // storage is closed to us or full: the text lives as long as the page
    }
  }

  restore() {
    try {
      this.input.value = sessionStorage.getItem(this.draftKey()) ?? this.input.value;
    } catch {
      // storage is closed to us
    }
    this.#measure();
  }

  /** Nothing can be said here; `text` tells why. Without text it is open again. */
  close(text = "") {
    this.closed = text;
    this.input.disabled = Boolean(text);
    this.#measure();
  }

  #submit() {
    const text = this.input.value.trim();
    if (!text || this.closed || !this.#measure()) return;
    this.input.value = "";
    this.remember();
    if (this.running) this.#queue(this.queued ? `${this.queued}\n\n${text}` : text);
    else this.onSend(text);
  }

  #queue(text) {
    this.queued = text;
    this.queuedBox.hidden = !text;
    this.remember();
    this.queuedBox.querySelector("span").textContent = text ? `Next: ${text}` : "";
  }

  /** The waiting message goes back to where it was typed. */
  unqueue() {
    if (!this.queued) return;
    this.put(this.queued);
    this.#queue("");
  }

  takeQueued() {
    const text = this.queued;
    this.#queue("");
    return text;
  }

  /** Give text back for editing, before anything typed since. */
  put(text) {
    this.input.value = this.input.value ? `${text}\n\n${this.input.value}` : text;
    this.#measure();
    this.remember();
    this.input.focus();
  }

  setRunning(running) {
    const hadFocus = document.activeElement === this.stopButton || document.activeElement === this.sendButton;
    this.running = running;
    this.sendButton.hidden = running;
    this.stopButton.hidden = !running;
    this.stopButton.disabled = false;
    this.plainHint = running ? "Enter queues the next message, Esc stops" : "Enter sends, Shift+Enter makes a new line";
    this.#measure();
    if (hadFocus) this.input.focus();
  }

  setPending(pending) {
    this.pendingBox.hidden = !pending;
  }
}
