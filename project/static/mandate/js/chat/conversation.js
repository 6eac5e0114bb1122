// The messages on the page, folded from AG-UI events or rebuilt from the server's thread.
// Everything is keyed by its id, so a replayed event changes nothing twice.
import { copyFrom, el, icon, setSanitisedHtml, slot } from "../dom.js";
import { ToolGroup, ToolLine } from "./tools.js";

function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? "").join("");
}

/** Copy buttons and language names on code blocks of sanitised markdown. */
function dressCode(root) {
  for (const pre of root.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    const language = /language-([\w+#.-]+)/.exec(code?.className ?? "")?.[1] ?? "text";
    const copy = el("button", { class: "button button-quiet button-small", type: "button" }, icon("copy"), el("span", {}, "Copy"));
    copy.addEventListener("click", () => copyFrom(copy, pre.textContent));
    pre.tabIndex = 0;
    const block = el("div", { class: "code-block" }, el("div", { class: "code-head" }, language, copy));
    pre.replaceWith(block);
    block.append(pre);
  }
}

class Answer {
  constructor() {
    this.text = "";
    this.body = el("div", { class: "message-body plain" });
    this.foot = el("div", { class: "message-foot", hidden: true });
    this.root = el("article", { class: "message message-assistant", "aria-label": "Answer" }, this.body, this.foot);
    this.html = null;
  }

  restart() {
    this.text = "";
    this.html = null;
    this.body.className = "message-body plain";
    this.body.replaceChildren(document.createTextNode(""));
    this.foot.hidden = true;
  }

  add(delta) {
    this.text += delta;
    this.body.firstChild.appendData(delta);
  }

  showHtml(html) {
    if (this.html === html) return;
    this.html = html;
    this.body.className = "message-body prose";
    setSanitisedHtml(this.body, html);
    dressCode(this.body);
  }

  settle(note = "") {
    const copy = el("button", { class: "button button-quiet button-small", type: "button" }, icon("copy"), el("span", {}, "Copy"));
    copy.addEventListener("click", () => copyFrom(copy, this.text));
    this.foot.replaceChildren(...(this.text ? [copy] : []), ...(note ? [el("span", { class: "pill" }, note)] : []));
    this.foot.hidden = !this.foot.childElementCount;
  }
}

export class Conversation {
  constructor(root) {
    this.list = slot(root, "messages");
    this.scroll = slot(root, "scroll");
    this.jump = slot(root, "jump");
    this.greeting = slot(root, "greeting");
    this.live = slot(root, "live");
    this.thinking = el("p", { class: "thinking", hidden: true }, icon("loader-circle", "spin"), "Working…");
    this.jump.before(this.thinking);
    this.pinned = true;
    this.#reset();
    this.seen = { top: 0, height: 0 };
    this.scroll.addEventListener("scroll", () => this.#scrolled());
    this.jump.addEventListener("click", () => this.toLatest());
    const watch = new ResizeObserver(() => this.#follow());
    watch.observe(this.list);
    watch.observe(this.scroll);
  }

  /** Only a person scrolls up while nothing shrinks; that, and nothing else, lets go of the end. */
  #scrolled() {
    const { scrollTop: top, scrollHeight: height, clientHeight } = this.scroll;
    const rest = height - top - clientHeight;
    if (top < this.seen.top && height >= this.seen.height && rest > 1) this.pinned = false;
    else if (rest < 48 && top >= this.seen.top) this.pinned = true;
    this.seen = { top, height };
    this.jump.hidden = this.pinned;
  }

  #reset() {
    this.answers = new Map();
    this.tools = new Map();
    this.users = new Set();
    this.notes = new Set();
    this.lastUserText = "";
    this.group = null;
    this.last = null;
  }

  #follow() {
    // Who edits or gives a reason keeps the field in view, whatever arrives below.
    const writing = document.activeElement?.closest('.approval[data-state="open"]:is([data-mode="edit"], [data-mode="deny"])');
    if (this.pinned && !writing) {
      this.scroll.scrollTop = this.scroll.scrollHeight;
      this.seen = { top: this.scroll.scrollTop, height: this.scroll.scrollHeight };
    }
    this.jump.hidden = this.pinned;
  }

  toLatest() {
    this.pinned = true;
    this.#follow();
  }

  announce(text) {
    this.live.textContent = text;
  }

  get empty() {
    return !this.users.size && !this.answers.size && !this.tools.size;
  }

  greet() {
    this.greeting.hidden = !this.empty;
  }

  clear() {
    for (const child of [...this.list.children]) {
      if (child !== this.greeting && child !== this.thinking && child !== this.jump) child.remove();
    }
    this.#reset();
  }

  /** Put a node after everything said so far. */
  place(node) {
    this.greeting.hidden = true;
    this.group = null;
    this.thinking.before(node);
  }

  setThinking(on) {
    this.thinking.hidden = !on;
  }

  addUser(id, text) {
    if (this.users.has(id)) return;
    this.users.add(id);
    this.lastUserText = text;
    this.place(el("article", { class: "message message-user", "aria-label": "You" }, text));
  }

  #answer(id) {
    let answer = this.answers.get(id);
    if (!answer) {
      answer = new Answer();
      this.answers.set(id, answer);
      this.place(answer.root);
    }
    this.last = answer;
    return answer;
  }

  #tool(id, name) {
    let line = this.tools.get(id);
    if (!line) {
      line = new ToolLine(id, name);
      this.tools.set(id, line);
      if (!this.group) {
        const group = new ToolGroup();
        this.place(group.root);
        this.group = group;
      }
      this.group.add(line);
    }
    return line;
  }

  /** One event of a run. Terminal events are the session's business. */
  apply(event) {
    const at = event.timestamp ?? null;
    switch (event.type) {
      case "TEXT_MESSAGE_START":
        this.#answer(event.messageId).restart();
        break;
      case "TEXT_MESSAGE_CONTENT":
        this.answers.get(event.messageId)?.add(event.delta);
        this.setThinking(false);
        break;
      case "TEXT_MESSAGE_END":
        this.setThinking(true);
        break;
      case "TOOL_CALL_START":
        this.#tool(event.toolCallId, event.toolCallName).start(at);
        break;
      case "TOOL_CALL_ARGS":
        this.tools.get(event.toolCallId)?.addArguments(event.delta);
        break;
      case "TOOL_CALL_END":
        this.tools.get(event.toolCallId)?.endArguments();
        break;
      case "TOOL_CALL_RESULT":
        this.tools.get(event.toolCallId)?.finish(textOf(event.content), at);
        break;
      default:
    }
  }

  /** Rebuild from the server's messages, oldest first. What is known stays in its place. */
  load(messages, { failed = () => {} } = {}) {
    for (const message of messages) {
      if (message.role === "user") this.addUser(message.id, textOf(message.content));
      else if (message.role === "assistant") this.#loadAnswer(message);
      else if (message.role === "tool") this.tools.get(message.toolCallId)?.showResult(textOf(message.content));
      if (message.error) failed(message.error);
      else if (message.stopped && !this.answers.has(message.id)) this.note(message.id);
    }
    this.greet();
  }

  #loadAnswer(message) {
    const text = textOf(message.content);
    if (text) {
      const answer = this.#answer(message.id);
      if (answer.text !== text) {
        answer.restart();
        answer.add(text);
      }
      if (message.html) answer.showHtml(message.html);
      answer.settle(message.stopped ? "stopped" : "");
    }
    for (const call of message.toolCalls ?? []) this.#tool(call.id, call.function.name).load(call);
  }

  /** Open lines of a run that is over get the state that says what became of them. */
  closeTools(state, waiting = new Set()) {
    for (const line of this.tools.values()) {
      if (line.state !== "running" && line.state !== "waiting") continue;
      line.setState(waiting.has(line.id) ? "waiting" : state);
    }
  }

  /** What was decided earlier stands beside its call. */
  record(approvals) {
    for (const approval of approvals) this.tools.get(approval.toolCallId)?.record(approval);
  }

  resumeTools() {
    for (const line of this.tools.values()) if (line.state === "waiting") line.setState("running");
  }

  settleLast(note = "") {
    this.last?.settle(note);
  }

  /** Says once that the run was stopped, where no answer carries the mark. */
  note(key) {
    if (this.notes.has(key)) return;
    this.notes.add(key);
    this.place(el("p", { class: "thinking" }, icon("circle-stop"), "Stopped."));
  }

  /** An error stands in the thread: plain words, what one can do, and what to tell an operator. */
  error({ message, code, requestId, retry }) {
    const box = el("div", { class: "notice notice-danger", role: "alert" }, icon("circle-alert"));
    const meta = el("p", { class: "problem-meta" }, el("code", {}, code), requestId ? ` · request ${requestId}` : "");
    box.append(el("div", { class: "grow" }, el("p", {}, message), meta));
    if (retry) {
      box.append(el("button", { class: "button button-small", type: "button", onclick: () => { box.remove(); retry(); } }, icon("refresh-cw"), "Try again"));
    }
    this.place(box);
  }
}
