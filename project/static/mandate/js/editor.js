// The agent page: size against the limit, and nothing typed is lost on the way out.

const form = document.querySelector("[data-editor]");
const text = form.elements.namedItem("instructions");
const size = form.querySelector("[data-size]");
const limit = Number(size.dataset.limit);
const encoder = new TextEncoder();
let dirty = false;

function measure() {
  const bytes = encoder.encode(text.value).length;
  size.textContent = `${bytes.toLocaleString("en")} of ${limit.toLocaleString("en")} bytes`;
  size.classList.toggle("field-error", bytes > limit);
}
text.addEventListener("input", measure);
measure();

form.addEventListener("input", (event) => {
  if (event.target.type !== "search") dirty = true;
});
// The tool search is not part of the draft: it must not save it.
for (const field of form.querySelectorAll("input[type=search]")) {
  for (const kind of ["input", "change"]) field.addEventListener(kind, (event) => event.stopPropagation());
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });
}
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.target === form || form.contains(event.target)) dirty = !event.detail.successful;
});
form.addEventListener("submit", () => { dirty = false; });
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-discard]")) dirty = false;
});
window.addEventListener("beforeunload", (event) => {
  if (dirty) event.preventDefault();
});

// Publish freezes the saved draft, so what is typed is saved before the dialog opens.
document.addEventListener("htmx:confirm", (event) => {
  if (!event.target.closest?.("[data-after-save]") || !dirty) return;
  event.preventDefault();
  const saved = (done) => {
    if (done.target !== form) return;
    document.removeEventListener("htmx:afterRequest", saved);
    if (done.detail.successful) event.detail.issueRequest(true);
  };
  document.addEventListener("htmx:afterRequest", saved);
  form.requestSubmit();
});
