// The cards of one interrupted run: decided one by one, submitted together.
import { el } from "../dom.js";

const ENDED = {
  person: "Somebody already decided this in another window.",
  expired: "It expired before your decision arrived. Nothing was done.",
  stopped: "The run was stopped before your decision arrived. Nothing was done.",
  contained: "The agent was unpublished before your decision arrived. Nothing was done.",
};

/** What a card says after the server refused a decision with 409. */
function endedText(problem) {
  const { extra, code, message } = problem;
  if (code === "approval_expired") return ENDED.expired;
  return message || ENDED[extra.ended_by] || ENDED.person;
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
      else if (mine) card.problem(problem.message);
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
