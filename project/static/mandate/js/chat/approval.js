// One approval card, filled from an AG-UI interrupt or hydrated from the server's markup.
import { el, icon, pretty, slot, visible } from "../dom.js";
import { countdown, exact } from "../time.js";
import { lineDiff } from "./diff.js";

const KEYS = { a: "approve", e: "edit", d: "deny" };

function make() {
  return document.getElementById("approval-card").content.firstElementChild.cloneNode(true);
}

const SIGNS = { same: "  ", added: "+ ", removed: "- " };

/** Lines that show what an edit changes. A comma that only follows the layout is no change. */
function diffLines(before, after) {
  const lines = (value) => pretty(value).replace(/,$/gm, "");
  return lineDiff(lines(before), lines(after));
}

function diffNodes(lines) {
  return lines.map(({ kind, line }) => el("span", { class: kind }, SIGNS[kind] + line));
}

function clock(date) {
  return `expires in ${countdown(date)}`;
}

/** JSON types that a schema allows; one that may also be null counts as what else it is. */
function typesOf(about) {
  const several = about?.anyOf ?? about?.oneOf ?? [about];
  return several.flatMap((one) => one?.type ?? []).filter((type) => type !== "null");
}

function kindOf(about) {
  if (Array.isArray(about?.enum)) return `one of ${about.enum.map((one) => visible(JSON.stringify(one))).join(", ")}`;
  return visible(typesOf(about).join(" or "));
}

/** Something of the right type to start from. */
function firstValue(about) {
  if (about?.default !== undefined && about.default !== null) return about.default;
  if (about?.enum?.length) return about.enum[0];
  return { string: "", number: 0, integer: 0, boolean: false, array: [], object: {} }[typesOf(about)[0]] ?? null;
}

export class ApprovalCard extends EventTarget {
  /** Events: "decide" (this.decision is set), "undo", "expire". */
  constructor(interrupt, root = make()) {
    super();
    this.interrupt = interrupt;
    this.root = root;
    this.decision = null;
    this.mode = "ask";
    this.expires = interrupt.expiresAt ? new Date(interrupt.expiresAt) : null;
    this.call = interrupt.metadata ?? {};
    this.#fill();
    this.#listen();
    this.tick();
  }

  get open() {
    return this.root.dataset.state === "open";
  }

  get settled() {
    return this.root.dataset.state === "settled";
  }

  #fill() {
    const { call, root } = this;
    const headline = this.interrupt.message || call.tool || "A tool call";
    root.setAttribute("aria-label", `Approval: ${headline}`);
    slot(root, "headline").textContent = visible(headline);
    slot(root, "agent").textContent = call.agent ?? "";
    slot(root, "version").textContent = /^\d+$/.test(call.version ?? "") ? `v${call.version}` : (call.version ?? "");
    const path = call.path ?? [];
    slot(root, "path").textContent = [...(path.length > 1 ? path : []), call.tool ?? ""].join(" → ");
    for (const name of ["agent", "version", "path"]) if (!slot(root, name).textContent) slot(root, name).remove();
    const rows = Object.entries(call.arguments ?? {}).map(([name, value]) => el("div", {}, el("dt", {}, visible(name)), el("dd", {}, pretty(value))));
    slot(root, "arguments").replaceChildren(...(rows.length ? rows : [el("div", { class: "none" }, el("dt", {}, "no arguments"), el("dd", {}, "{}"))]));
    if (this.expires) slot(root, "expiry").title = `Expires ${exact(this.expires)}`;
  }

  #listen() {
    this.root.addEventListener("click", (event) => {
      const button = event.target.closest("[data-do]");
      if (button) this.#act(button.dataset.do);
    });
    this.root.addEventListener("keydown", (event) => {
      const typing = event.target.closest("textarea, input, select, [contenteditable]");
      const plain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey;
      // A key that is held down decides one card, not the next one that gets the focus.
      if (event.repeat) return;
      if (event.key === "Escape" && this.mode !== "ask" && this.open) {
        event.stopPropagation();
        this.#act("back");
      } else if (typing && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.#act(this.mode);
      } else if (!typing && plain && this.open && this.mode === "ask" && KEYS[event.key.toLowerCase()]) {
        event.preventDefault();
        this.#act(KEYS[event.key.toLowerCase()]);
      }
    });
    slot(this.root, "json").addEventListener("input", () => {
      this.#say("problem", "");
      this.#check();
    });
  }

  #button(name) {
    return this.root.querySelector(`[data-do="${name}"]`);
  }

  #act(what) {
    if (what === "undo") {
      this.decision = null;
      this.#reopen();
      this.dispatchEvent(new Event("undo"));
    } else if (!this.open || this.#button(what).hidden) {
      return; // only what the card shows can be done
    } else if (what === "back") {
      this.#show("ask");
      this.root.focus();
    } else if (what === "approve") {
      this.#decide({ approved: true });
    } else if (what !== this.mode) {
      this.#show(what);
    } else if (what === "deny") {
      const reason = slot(this.root, "reason").value.trim();
      this.#decide(reason ? { approved: false, reason } : { approved: false });
    } else {
      const edited = this.#check();
      if (edited) this.#decide({ approved: true, editedArgs: edited });
      else slot(this.root, "json").focus();
    }
  }

  #show(mode) {
    const { root } = this;
    this.mode = mode;
    root.dataset.mode = mode;
    const json = slot(root, "json");
    if (mode === "edit" && !json.value) json.value = pretty(this.call.arguments ?? {});
    slot(root, "edit").hidden = mode !== "edit";
    slot(root, "deny").hidden = mode !== "deny";
    const button = (name) => this.#button(name);
    button("approve").hidden = mode !== "ask";
    button("edit").hidden = mode === "deny";
    button("deny").hidden = mode === "edit";
    button("back").hidden = mode === "ask";
    button("edit").classList.toggle("button-primary", mode === "edit");
    button("edit").firstElementChild.textContent = mode === "edit" ? "Approve edited call" : "Edit and approve";
    button("deny").firstElementChild.textContent = mode === "deny" ? "Deny this call" : "Deny";
    for (const name of ["edit", "deny"]) button(name).querySelector("kbd").hidden = mode === name;
    if (mode === "edit") this.#check();
    if (mode !== "ask") {
      const field = slot(root, mode === "edit" ? "json" : "reason");
      field.focus({ preventScroll: true });
      field.scrollIntoView({ block: "nearest" });
    }
  }

  /** What the tool would also take: fields of its schema that the arguments do not set. */
  #offer(value) {
    const { properties = {}, required = [] } = this.call.schema ?? {};
    const missing = Object.entries(properties).filter(([name]) => !Object.hasOwn(value, name));
    const box = slot(this.root, "fields");
    box.hidden = !missing.length;
    box.querySelector("ul").replaceChildren(...missing.map(([name, about]) => {
      const kind = [kindOf(about), required.includes(name) ? "required" : ""].filter(Boolean).join(", ");
      const add = el("button", { class: "button button-small", type: "button", onclick: () => this.#add(name, about) }, icon("plus"), el("span", {}, "Add ", el("span", { class: "mono" }, visible(name))));
      return el("li", {}, add, el("span", { class: "grow" }, [kind, visible(about?.description ?? "")].filter(Boolean).join(" · ")));
    }));
  }

  /** Put a field into the arguments and select its value, to be typed over. */
  #add(name, about) {
    const json = slot(this.root, "json");
    const value = JSON.parse(json.value);
    const written = JSON.stringify(firstValue(about));
    value[name] = firstValue(about);
    json.value = pretty(value);
    this.#say("problem", "");
    this.#check();
    const start = json.value.length - "\n}".length - written.length;
    const quoted = written.startsWith('"') ? 1 : 0;
    json.focus({ preventScroll: true });
    json.setSelectionRange(start + quoted, start + written.length - quoted);
    json.scrollIntoView({ block: "nearest" });
  }

  /** The edited arguments, or null while they are no JSON object. */
  #check() {
    const json = slot(this.root, "json");
    let value = null;
    let wrong = "";
    try {
      value = JSON.parse(json.value);
      if (value === null || typeof value !== "object" || Array.isArray(value)) wrong = "Arguments are one JSON object: { … }";
    } catch (error) {
      wrong = `This is not JSON yet: ${error.message}`;
    }
    this.#say("json-error", wrong);
    json.setAttribute("aria-invalid", String(Boolean(wrong)));
    const diff = slot(this.root, "diff");
    if (wrong) {
      diff.hidden = true;
      slot(this.root, "fields").hidden = true;
      return null;
    }
    const lines = diffLines(this.call.arguments ?? {}, value);
    diff.hidden = lines.every((one) => one.kind === "same");
    diff.replaceChildren(...diffNodes(lines));
    this.#offer(value);
    return value;
  }

  #say(name, text) {
    const box = slot(this.root, name);
    box.hidden = !text;
    box.querySelector("span").textContent = text;
  }

  #decide(decision) {
    this.problem("");
    this.decision = decision;
    this.dispatchEvent(new Event("decide"));
  }

  resume() {
    return { interruptId: this.interrupt.id, status: "resolved", payload: this.decision };
  }

  get words() {
    if (!this.decision) return "";
    if (!this.decision.approved) return "denied";
    return this.decision.editedArgs ? "approved with edited arguments" : "approved";
  }

  #outcome(tone, mark, ...content) {
    const box = slot(this.root, "outcome");
    box.className = `approval-outcome ${tone}`;
    box.replaceChildren(icon(mark), el("span", { class: "grow" }, ...content));
    box.hidden = false;
    // What had the focus is about to go: the card itself takes it.
    if (this.root.contains(document.activeElement)) this.root.focus({ preventScroll: true });
    slot(this.root, "actions").hidden = true;
    slot(this.root, "edit").hidden = true;
    slot(this.root, "deny").hidden = true;
  }

  #state(text, tone) {
    const pill = slot(this.root, "state");
    pill.className = `pill ${tone}`;
    pill.textContent = text;
  }

  /** Decided, and waiting for the other cards of the run. */
  hold() {
    this.root.dataset.state = "decided";
    this.#state(this.words, "");
    this.#outcome("info", "check", `Your decision: ${this.words}. It is sent with the others. `, el("button", { class: "link-button", type: "button", "data-do": "undo" }, "Change"));
  }

  busy() {
    this.root.dataset.state = "busy";
    this.#outcome("info", "hourglass", "Sending the decision…");
  }

  #reopen() {
    this.root.dataset.state = "open";
    this.#state("pending", "pill-info");
    slot(this.root, "outcome").hidden = true;
    slot(this.root, "actions").hidden = false;
    this.#show(this.mode);
  }

  /** The decision was not taken: say why, and let the person go on. */
  problem(text) {
    if (text) {
      this.decision = null;
      this.#reopen();
    }
    this.#say("problem", text);
  }

  settle(text, { tone = "info", mark = "info", pill = "ended", pillTone = "", link = null } = {}) {
    this.root.dataset.state = "settled";
    slot(this.root, "expiry").hidden = true;
    this.#say("problem", "");
    this.#state(pill, pillTone);
    this.#outcome(tone, mark, text, ...(link ? [" ", link] : []));
  }

  settleDecided(link = null) {
    const good = this.decision.approved;
    const edited = this.decision.editedArgs;
    if (edited) {
      const lines = diffLines(this.call.arguments ?? {}, edited);
      slot(this.root, "arguments").replaceWith(el("div", { class: "diff-lines" }, ...diffNodes(lines)));
    }
    const reason = this.decision.reason ? ` Reason: ${this.decision.reason}` : "";
    this.settle(`You ${edited ? "approved this with edited arguments" : good ? "approved this" : "denied this"}.${reason}`, {
      tone: good ? "good" : "danger",
      mark: good ? "circle-check" : "ban",
      pill: good ? "approved" : "denied",
      pillTone: good ? "pill-good" : "pill-danger",
      link,
    });
  }

  /** Once a second. */
  tick() {
    if (!this.expires || this.settled) return;
    const left = countdown(this.expires);
    if (left === null) {
      if (this.root.dataset.state === "busy") return;
      this.settle("This request expired. Nothing was done.", { mark: "clock", pill: "expired" });
      this.dispatchEvent(new Event("expire"));
      return;
    }
    slot(this.root, "countdown").textContent = clock(this.expires);
    slot(this.root, "expiry").classList.toggle("soon", this.expires - Date.now() < 60_000);
  }
}
