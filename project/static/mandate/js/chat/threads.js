// The list of the person's conversations with this agent: search, rename, delete, badges.
import { el, icon, slot } from "../dom.js";
import { exact, refreshTimes, relative } from "../time.js";

const BADGES = {
  running: ["running", "pill-info"],
  waiting: ["waiting for you", "pill-info"],
};

export class Threads {
  constructor(root, { api, base, environment, current, onerased }) {
    this.api = api;
    this.base = base;
    this.environment = environment;
    this.current = current;
    this.onerased = onerased;
    this.list = slot(root, "threads");
    this.none = slot(root, "threads-empty");
    this.search = slot(root, "thread-search");
    this.dialog = document.querySelector("[data-slot=delete-dialog]");
    this.items = [];
    this.next = null;
    this.renaming = false;
    this.search.addEventListener("input", () => this.render());
    document.addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        const drawer = this.search.closest("[popover]");
        if (getComputedStyle(drawer).display === "none") drawer.showPopover();
        this.search.select();
      }
    });
  }

  async refresh() {
    const { items, next } = await this.api.threads();
    this.items = items;
    this.next = next;
    this.render();
  }

  async #older() {
    const { items, next } = await this.api.threads(this.next);
    const known = new Set(this.items.map((thread) => thread.id));
    this.items.push(...items.filter((thread) => !known.has(thread.id)));
    this.next = next;
    this.render();
  }

  render() {
    if (this.renaming) return; // the name that is being typed stays; it renders when done
    const wanted = this.search.value.trim().toLowerCase();
    const shown = this.items.filter((thread) => (thread.title ?? "").toLowerCase().includes(wanted));
    this.list.replaceChildren(...shown.map((thread) => this.#row(thread)));
    if (this.next) {
      const more = el("button", { class: "button button-quiet button-small button-wide", type: "button", onclick: () => this.#older().catch(() => {}) }, "Show older conversations");
      this.list.append(el("li", {}, more));
    }
    this.none.hidden = shown.length > 0;
    this.none.textContent = this.items.length ? "No conversation matches." : "Your conversations with this agent appear here.";
    refreshTimes(this.list);
  }

  #title(thread) {
    return thread.title || "Untitled conversation";
  }

  #row(thread) {
    const when = new Date(thread.active_at);
    const badge = BADGES[thread.state];
    const link = el(
      "a",
      { href: `${this.base}${thread.id}/?environment=${encodeURIComponent(thread.environment)}` },
      el("span", { class: "thread-title" }, this.#title(thread)),
      el("span", { class: "thread-meta" }, el("time", { datetime: thread.active_at, title: exact(when), "data-relative": true }, relative(when)), badge ? el("span", { class: `pill ${badge[1]}` }, badge[0]) : null),
    );
    const menu = el(
      "details",
      { class: "menu" },
      el("summary", { class: "button button-quiet button-icon button-small", "aria-label": `Actions for ${this.#title(thread)}` }, icon("ellipsis")),
      el(
        "div",
        { class: "menu-list" },
        el("button", { type: "button", onclick: () => this.#rename(row, thread) }, icon("pencil"), "Rename"),
        el("button", { type: "button", class: "danger", onclick: () => this.#erase(thread) }, icon("trash-2"), "Delete"),
      ),
    );
    const row = el("li", { class: "thread", "aria-current": thread.id === this.current ? "page" : null }, link, menu);
    return row;
  }

  #rename(row, thread) {
    const input = el("input", { class: "input", value: thread.title ?? "", "aria-label": "Name of the conversation", maxlength: "200" });
    const form = el("form", {}, input);
    let done = false;
    this.renaming = true;
    const finish = async (save) => {
      if (done) return;
      done = true;
      const title = input.value.trim();
      if (save && title && title !== thread.title) {
        try {
          await this.api.rename(thread.id, title);
          // The list may have been read again while the name was typed.
          for (const one of [thread, ...this.items]) if (one.id === thread.id) one.title = title;
        } catch (problem) {
          done = false;
          input.setCustomValidity(problem.message);
          input.reportValidity();
          return;
        }
      }
      this.renaming = false;
      this.render();
    };
    form.addEventListener("submit", (event) => { event.preventDefault(); finish(true); });
    input.addEventListener("input", () => input.setCustomValidity(""));
    input.addEventListener("blur", () => finish(true));
    input.addEventListener("keydown", (event) => { if (event.key === "Escape") finish(false); });
    row.replaceChildren(form);
    input.select();
  }

  #erase(thread) {
    slot(this.dialog, "delete-name").textContent = this.#title(thread);
    this.dialog.returnValue = "";
    this.dialog.addEventListener("close", async () => {
      if (this.dialog.returnValue !== "delete") return;
      try {
        await this.api.erase(thread.id);
      } catch (problem) {
        this.none.hidden = false;
        this.none.textContent = problem.message;
        return;
      }
      if (thread.id === this.current) this.onerased();
      else await this.refresh();
    }, { once: true });
    this.dialog.showModal();
  }
}
