// Tool calls: one collapsed line each; neighbours fold into one.
import { el, icon, pretty, visible } from "../dom.js";
import { exact, relative } from "../time.js";

const STATES = {
  running: ["loader-circle", "running", "info"],
  waiting: ["hourglass", "waiting for you", "info"],
  done: ["check", "done", "good"],
  failed: ["circle-alert", "failed", "danger"],
  denied: ["ban", "denied", ""],
  stopped: ["circle-stop", "stopped", ""],
  expired: ["clock", "expired", ""],
  void: ["ban", "not run", ""],
  unknown: ["circle-dashed", "outcome unknown", "caution"],
};

function readable(text) {
  try {
    return pretty(JSON.parse(text));
  } catch {
    return visible(text);
  }
}

function seconds(from, to) {
  return from && to && to >= from ? `${((to - from) / 1000).toFixed(1)} s` : "";
}

/** "orders__refund_order" is tool refund_order of connector orders. */
export function toolLabel(name) {
  const cut = name.indexOf("__");
  return cut < 0 ? ["", name] : [name.slice(0, cut), name.slice(cut + 2)];
}

export class ToolLine {
  constructor(id, name) {
    this.id = id;
    this.name = name;
    this.text = "";
    this.started = null;
    const [from, tool] = toolLabel(name);
    this.label = el("span", { class: "tool-name mono" }, tool, from ? el("span", { class: "tool-from" }, ` in ${from}`) : null);
    this.mark = el("span", { class: "tool-state" });
    this.decision = el("span", { class: "tool-record", hidden: true });
    this.argsTitle = el("h4", {}, "Arguments");
    this.args = el("pre", { tabindex: "0", "aria-label": "Arguments" });
    this.result = el("pre", { tabindex: "0", "aria-label": "Result" });
    this.resultPart = el("div", { hidden: true }, el("h4", {}, "Result"), this.result);
    this.root = el(
      "details",
      { class: "tool", "data-tool": name },
      el("summary", {}, icon("chevron-right", "chevron"), icon("wrench"), this.label, this.mark, this.decision),
      el("div", { class: "tool-detail" }, el("div", {}, this.argsTitle, this.args), this.resultPart),
    );
    this.onstate = () => {};
    this.setState("running");
  }

  setState(state, duration = "") {
    this.state = state;
    const [name, text, tone] = STATES[state];
    this.mark.className = `tool-state ${tone}`;
    this.mark.replaceChildren(icon(name, state === "running" ? "spin" : ""), duration ? `${text} · ${duration}` : text);
    this.root.dataset.state = state;
    this.onstate();
  }

  start(timestamp) {
    this.text = "";
    this.started = timestamp;
    this.setState("running");
  }

  addArguments(delta) {
    this.text += delta;
    this.args.textContent = visible(this.text);
  }

  endArguments() {
    this.args.textContent = readable(this.text || "{}");
  }

  showResult(content) {
    this.result.textContent = readable(content);
    this.resultPart.hidden = false;
  }

  finish(content, at) {
    this.showResult(content);
    this.setState("done", seconds(this.started, at));
  }

  /** A decision that was taken before this page was opened: whose, when, and what it changed. */
  record({ state, edited, reason, decidedAt }) {
    if (!decidedAt) return;
    const what = state === "denied" ? "denied this" : edited ? "approved this with edited arguments" : "approved this";
    const at = new Date(decidedAt);
    this.decision.replaceChildren(
      `You ${what}`, " · ", el("time", { datetime: decidedAt, title: exact(at), "data-relative": true }, relative(at)),
      ...(reason ? [` · ${visible(reason)}`] : []),
    );
    this.decision.hidden = false;
  }

  /** What the server knows of the call; it wins over what the stream told. */
  load({ function: { arguments: text }, state, seconds: duration, edited }) {
    this.text = text;
    this.args.textContent = readable(text || "{}");
    const notes = [edited ? "edited" : "", duration === undefined ? "" : `${duration.toFixed(1)} s`];
    if (edited) this.argsTitle.textContent = "Arguments that ran, as edited";
    this.setState(state in STATES ? state : "unknown", notes.filter(Boolean).join(" · "));
  }
}

/** Neighbouring calls: alone a plain line, together one line that opens. */
export class ToolGroup {
  constructor() {
    this.lines = [];
    this.root = el("div", { class: "tools" });
    this.title = el("span", { class: "tool-name" });
    this.mark = el("span", { class: "tool-state" });
  }

  add(line) {
    this.lines.push(line);
    line.onstate = () => this.#summarise();
    if (this.lines.length === 2) {
      const summary = el("summary", {}, icon("chevron-right", "chevron"), icon("layers"), this.title, this.mark);
      const folded = el("details", { class: "tools" }, summary, this.lines[0].root);
      this.root.replaceWith(folded);
      this.root = folded;
    }
    this.root.append(line.root);
    this.#summarise();
  }

  #summarise() {
    if (this.lines.length < 2) return;
    const order = ["waiting", "running", "failed", "unknown", "denied", "expired", "void", "stopped", "done"];
    const state = order.find((one) => this.lines.some((line) => line.state === one));
    const [name, text, tone] = STATES[state];
    const count = this.lines.filter((line) => line.state === state).length;
    this.title.textContent = `${this.lines.length} tool calls`;
    this.mark.className = `tool-state ${tone}`;
    this.mark.replaceChildren(
      icon(name, state === "running" ? "spin" : ""),
      count === this.lines.length ? text : `${count} ${text}`,
    );
  }
}
