// Light and dark, and paper: says which colours hold now, and tells the charts when they change.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element } = parts;
  const STORED = "nearsure-theme";
  const root = document.documentElement;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const onPaper = window.matchMedia("print");
  const listeners = new Set();

  function current() {
    const chosen = root.getAttribute("data-theme");
    if (chosen === "light" || chosen === "dark") return chosen;
    return prefersDark.matches ? "dark" : "light";
  }

  // A file opened from disk may have no storage: the choice then lasts as long as the page.
  function remember(theme) {
    try {
      window.localStorage.setItem(STORED, theme);
    } catch (error) {
      return;
    }
  }

  function recall() {
    try {
      const theme = window.localStorage.getItem(STORED);
      if (theme === "light" || theme === "dark") root.setAttribute("data-theme", theme);
    } catch (error) {
      return;
    }
  }

  function toggle() {
    const next = current() === "dark" ? "light" : "dark";
    root.setAttribute("data-theme", next);
    remember(next);
  }

  // `whenTakenDown` collects what is to be undone when the button goes.
  function button(whenTakenDown) {
    const made = element("button", {
      type: "button", class: "button theme-toggle", "data-theme-toggle": true, onclick: toggle,
    });
    const name = () => {
      const other = current() === "dark" ? "light" : "dark";
      made.textContent = (other === "dark" ? "\u263e " : "\u2600 ") + other;
      made.setAttribute("aria-label", "Switch to " + other + " colours");
    };
    name();
    const forget = onChange(name);
    if (whenTakenDown) whenTakenDown.push(forget);
    return made;
  }

  // The state of the page's own look; `printing` is set before the browser lays out the paper.
  function printing() {
    return root.hasAttribute("data-print");
  }

  function palette() {
    const style = window.getComputedStyle(root);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    return {
      ink: colour("ink"),
      muted: colour("muted"),
      line: colour("line"),
      surface: colour("surface"),
      right: colour("right"),
      wrong: colour("wrong"),
      marker: colour("marker"),
      band: colour("band"),
      series: [1, 2, 3, 4, 5, 6].map((place) => colour("series-" + place)),
      font: style.getPropertyValue("--font").trim(),
    };
  }

  let shown = null;
  function tell() {
    const now = current() + (printing() ? " print" : "");
    if (now === shown) return;
    shown = now;
    for (const listener of listeners) listener();
  }

  function setPrinting(isPrinting) {
    root.toggleAttribute("data-print", isPrinting);
    tell();
  }

  function onChange(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  recall();
  shown = current();
  new MutationObserver(tell).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  prefersDark.addEventListener("change", tell);
  onPaper.addEventListener("change", (event) => setPrinting(event.matches));
  window.addEventListener("beforeprint", () => setPrinting(true));
  window.addEventListener("afterprint", () => setPrinting(false));

  parts.theme = { current, toggle, button, printing, palette, onChange };
})();
