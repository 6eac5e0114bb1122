// Relative times. The exact moment stays in the title attribute.

const STEPS = [
  [60, 1, "second"],
  [3600, 60, "minute"],
  [86400, 3600, "hour"],
  [604800, 86400, "day"],
  [2629800, 604800, "week"],
  [31557600, 2629800, "month"],
  [Infinity, 31557600, "year"],
];
const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

export function relative(date, now = Date.now()) {
  const seconds = (date.getTime() - now) / 1000;
  const size = Math.abs(seconds);
  if (size < 10) return "just now";
  const [, unit, name] = STEPS.find(([limit]) => size < limit);
  return words.format(Math.trunc(seconds / unit), name);
}

export function exact(date) {
  return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** Rewrite every <time data-relative> under `root`. */
export function refreshTimes(root = document) {
  for (const node of root.querySelectorAll("time[data-relative]")) {
    const date = new Date(node.dateTime);
    if (!Number.isNaN(date.getTime())) node.textContent = relative(date);
  }
}

/** "14:32" until `date`, or null once it has passed. */
export function countdown(date, now = Date.now()) {
  const seconds = Math.ceil((date.getTime() - now) / 1000);
  if (seconds <= 0) return null;
  const minutes = Math.floor(seconds / 60);
  if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${minutes}:${String(seconds % 60).padStart(2, "0")}`;
}
