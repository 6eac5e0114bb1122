// The cards of one interrupted run: decided one by one, submitted together.
import { el } from "../dom.js";

// What ended an approval, by the reason that the server gives.
const ENDED = {
  unpublished: "The agent was unpublished, which ended this request. Nothing was done.",
  suspended: "The agent was suspended, which ended this request. Nothing was done.",
  grant_revoked: "The agent lost a permission, which ended this request. Nothing was done.",
  tool_changed: "The tool changed, which ended this request. Nothing was done.",
  tool_gone: "The tool is gone, which ended this request. Nothing was done.",
  tool_withdrawn: "The tool was withdrawn, which ended this request. Nothing was done.",
  superseded: "The conversation went on without this request. Nothing was done.",
  cancelled: "The run was stopped, which ended this request. Nothing was done.",
  run_ended: "The run ended, and this request with it. Nothing was done.",
};

/** How a decision or an end that the server knows of shows on a card. */
function outcomeOf({ state, edited, reason, endedBy }) {
  if (state === "denied") {
    return [`You already denied this in another window.${reason ? ` Reason: ${reason}` : ""}`, { tone: "danger", mark: "ban", pill: "denied", pillTone: "pill-danger" }];
  }
  if (state === "expired") return ["This request expired. Nothing was done.", { mark: "clock", pill: "expired" }];
  if (state === "void") return [ENDED[endedBy] ?? "The request ended. Nothing was done.", {}];
  const unsure = state === "uncertain" ? " Whether the call was carried out is not known." : "";
  const how = edited ? " with edited arguments" : "";
  return [`You already approved this${how} in another window.${unsure}`, { tone: "good", mark: "circle-check", pill: "approved", pillTone: "pill-good" }];
}

/** What a card says after the server refused a decision with 409: who or what was first. */
function endedText({ extra, code, message }) {
  if (code === "approval_expired") return "It expired before your decision arrived. Nothing was done.";
  if (code === "approval_already_decided") {
    if (extra.reason) return ENDED[extra.reason] ?? `${message} Nothing was done.`;
    if (extra.state === "denied") return "You already denied this in another window.";
    return "You already approved this in another window.";
  }
  return message;
}

/** What a card says when its decision was not taken and may be changed. */
function refusedText({ code, extra, message }) {
  if (code !== "arguments_invalid" || !extra.rule) return message;
  const where = extra.path ? `“${extra.path.slice(1)}”` : "The whole";
  return `${message}: ${where} breaks its rule ${extra.rule} ${extra.expected ?? ""}`.trim();
}

export class Decisions {
  /**
   * `submit(resume)` resolves when the decisions are taken, or throws a Problem.
   * `thread()` resolves to the conversation as the server has it.
   */
  constructor({ cards, submit, thread, onend = () => {}, link = () => null }) {
    this.cards = cards;
    this.submit = submit;
    this.thread = thread;
    this.onend = onend;
    this.link = link;
    this.text = el("span", { class: "grow" });
    this.button = el("button", { class: "button button-primary", type: "button", onclick: () => this.#send() });
    this.bar = el("div", { class: "approval-submit", hidden: true }, this.text, this.button);
    for (const card of cards) {
      card.addEventListener("decide", () => this.#decided(card));
      card.addEventListener("undo", () => { this.#count(); card.root.focus(); });
      card.addEventListener("expire", () => { this.#count(); this.#ended(); });
    }
    this.timer = setInterval(() => this.cards.forEach((card) => card.tick()), 1000);
    this.#count();
  }

  get alive() {
    return this.cards.filter((card) => !card.settled);
  }

  stop() {
    clearInterval(this.timer);
  }

  /** Ended by something else than a decision of this page: a stop, an unpublish, a message. */
  settleAll(text) {
    for (const card of this.alive) card.settle(text);
    this.#count();
    this.#ended();
  }

  /** Ended by a suspension of the agent. */
  settleSuspended() {
    if (this.alive.length) this.settleAll(ENDED.suspended);
  }

  /** Settle what the server says has ended meanwhile. True when it could be asked. */
  async sync() {
    let thread;
    try {
      thread = await this.thread();
    } catch {
      return false;
    }
    const open = new Set(thread.interrupts.map((interrupt) => interrupt.id));
    const ended = new Map(thread.approvals.map((approval) => [approval.id, approval]));
    for (const card of this.alive) {
      const { id } = card.interrupt;
      if (open.has(id) || !ended.has(id)) continue;
      const [text, look] = outcomeOf(ended.get(id));
      card.settle(text, { ...look, link: this.link(card) });
    }
    return true;
  }

  /** The same, for somebody who is not deciding right now. */
  async refresh() {
    if (!this.alive.length || this.alive.some((card) => card.root.dataset.state === "busy")) return;
    await this.sync();
    this.#count();
    this.#ended();
  }

  #decided(card) {
    if (this.alive.length === 1) {
      this.#send();
      return;
    }
    card.hold();
    this.#count();
    const next = this.alive.find((one) => !one.decision);
    (next ? next.root : this.button).focus();
  }

  #count() {
    const alive = this.alive;
    const done = alive.filter((card) => card.decision).length;
    this.bar.hidden = alive.length < 2 && !(alive.length === 1 && done === 1 && this.cards.length > 1);
    this.text.textContent = `${done} of ${alive.length} decided. They are sent together.`;
    this.button.textContent = alive.length === 1 ? "Submit decision" : `Submit ${alive.length} decisions`;
    this.button.disabled = done < alive.length;
  }

  async #send() {
    const sent = this.alive;
    // The button that was pressed is about to go: a card that stays takes the focus.
    if (this.bar.contains(document.activeElement)) sent[0].root.focus({ preventScroll: true });
    this.bar.hidden = true;
    sent.forEach((card) => card.busy());
    try {
      await this.submit(sent.map((card) => card.resume()));
      sent.forEach((card) => card.settleDecided(this.link(card)));
    } catch (problem) {
      await this.#refused(sent, problem);
    }
    this.#count();
    this.#ended();
  }

  /** One refusal concerns one card or all; the server says what became of each. */
  async #refused(sent, problem) {
    const asked = problem.status >= 400 && problem.status !== 422 && await this.sync();
    const named = problem.extra?.interrupt_id ?? problem.extra?.approval_id;
    for (const card of sent.filter((one) => !one.settled)) {
      const mine = !named || named === card.interrupt.id;
      if (problem.status === 409 && mine && !asked) card.settle(endedText(problem), { link: this.link(card) });
      else if (mine) card.problem(refusedText(problem));
      else card.hold();
    }
    sent.find((card) => card.open)?.root.focus();
  }

  #ended() {
    if (this.alive.length) return;
    this.stop();
    this.onend();
  }
}
