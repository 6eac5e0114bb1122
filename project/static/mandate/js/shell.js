// What every page has: theme switch, dialogs that arrive by htmx, notices, relative times.
import { refreshTimes } from "./time.js";

function themeSwitch(root) {
  const paint = () => {
    const chosen = document.documentElement.dataset.theme ?? "system";
    for (const button of root.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.value === chosen));
    }
  };
  root.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    try {
      if (button.value === "system") localStorage.removeItem("mandate.theme");
      else localStorage.setItem("mandate.theme", button.value);
    } catch {
      // storage is closed to us: the choice holds for this page
    }
    if (button.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = button.value;
    paint();
  });
  root.hidden = false;
  paint();
}

for (const root of document.querySelectorAll("[data-theme-switch]")) themeSwitch(root);

document.addEventListener("click", (event) => {
  const dismiss = event.target.closest("[data-dismiss]");
  if (dismiss) dismiss.closest(".notice").remove();
  const close = event.target.closest("[data-close]");
  if (close) {
    event.preventDefault();
    close.closest("dialog").close();
  }
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

const dialog = document.getElementById("dialog");
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target === dialog && !dialog.open) dialog.showModal();
  refreshTimes();
  const alert = document.querySelector("#save [role=alert]");
  if (event.detail.target.id === "save" && alert) alert.scrollIntoView({ block: "nearest" });
});
dialog?.addEventListener("close", () => dialog.replaceChildren());

/** A failed request is told where the person looks, with its code. */
function tell(text) {
  const template = document.getElementById("notice-danger");
  const notice = template.content.firstElementChild.cloneNode(true);
  notice.querySelector("[data-slot=text]").textContent = text;
  const open = dialog?.open ? dialog.querySelector(".dialog-body") : null;
  (open ?? document.querySelector(".notices"))?.prepend(notice);
}
/** What asks by itself, unasked, does not complain either. */
const isQuiet = (event) => event.target.matches(".rail-count");
document.addEventListener("mandate:refused", (event) => tell(event.detail.text));
document.addEventListener("htmx:responseError", (event) => {
  const { status } = event.detail.xhr;
  if (event.detail.xhr.getResponseHeader("HX-Trigger")) return; // it says more itself
  if (isQuiet(event)) return;
  if (status === 401 || status === 403) tell("Your session does not allow this. Reload and sign in again.");
  else tell(`The server refused the request (${status}). Nothing was changed.`);
});
document.addEventListener("htmx:sendError", (event) => isQuiet(event) || tell("The server cannot be reached. What you typed is still here."));

// A list filter works without JavaScript too; with it, rows are hidden as one types.
for (const input of document.querySelectorAll("[data-filter]")) {
  const rows = [...document.querySelectorAll(input.dataset.filter)];
  const none = document.getElementById(input.dataset.none ?? "");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    if (none) none.hidden = rows.some((row) => !row.hidden);
  });
  input.closest("[hidden]")?.removeAttribute("hidden");
}

refreshTimes();
setInterval(refreshTimes, 30_000);
