// Runs before the first paint: a chosen theme replaces the system's.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("mandate.theme");
  } catch {
    return; // storage is closed to us: follow the system
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
