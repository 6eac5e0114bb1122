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
  /** `submit(resume)` resolves when the decisions are taken, or throws a Problem. */
  constructor({ cards, submit, onend = () => {}, link = () => null }) {
    this.cards = cards;
    this.submit = submit;
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
    this.bar.hidden = true;
    sent.forEach((card) => card.busy());
    try {
      await this.submit(sent.map((card) => card.resume()));
      sent.forEach((card) => card.settleDecided(this.link(card)));
    } catch (problem) {
      this.#refused(sent, problem);
    }
    this.#count();
    this.#ended();
  }

  #refused(sent, problem) {
    const named = problem.extra?.interrupt_id ?? problem.extra?.approval_id;
    for (const card of sent) {
      const mine = !named || named === card.interrupt.id;
      if (problem.status === 409 && mine) card.settle(endedText(problem), { tone: "info", mark: "info", pill: "ended", link: this.link(card) });
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
