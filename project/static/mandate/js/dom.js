// The few ways in which pages make elements. Text is always a text node, never markup.

/** el("p", {class: "soft", onclick: fn}, "text", child) */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A copy of one icon of the page's <template id="icons">. */
export function icon(name, extra = "") {
  const node = document.getElementById("icons").content.querySelector(`[data-icon="${name}"]`).cloneNode(true);
  if (extra) node.setAttribute("class", extra);
  return node;
}

export function slot(root, name) {
  return root.querySelector(`[data-slot="${name}"]`);
}

/** Put markup that the server has written or sanitised into `node`. The only place that parses markup. */
export function setSanitisedHtml(node, html) {
  node.innerHTML = html;
}

// Characters that change how neighbouring text looks, or show nothing at all. In an argument that
// a person approves they must be seen, so they are written out as JSON escapes.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

export function visible(text) {
  return text.replace(HIDDEN, (character) => [...character.split("")].map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}

export function pretty(value) {
  return visible(JSON.stringify(value, null, 2) ?? "");
}

/** Copy `text`, and say so on the button for two seconds. */
export async function copyFrom(button, text) {
  const label = button.querySelector("span") ?? button;
  const before = label.textContent;
  try {
    await navigator.clipboard.writeText(text);
    label.textContent = "Copied";
  } catch {
    label.textContent = "Copying is blocked";
  }
  setTimeout(() => { label.textContent = before; }, 2000);
}
