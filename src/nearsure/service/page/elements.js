// Elements without innerHTML: whatever comes from the gallery is text, never markup.

export const byId = (id) => document.getElementById(id);

/** element("p", { class: "note", on: { click } }, "text", child): null children are left out. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (value === true) {
      made.setAttribute(name, "");
    } else {
      made.setAttribute(name, String(value));
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A bar without text: the number beside it holds the value for screen readers. */
export function meter(share, kind = "") {
  const fill = element("span", { class: "meter-fill" });
  fill.hidden = !(share > 0);
  fill.style.inlineSize = `${100 * Math.min(1, Math.max(0, share))}%`;
  return element("span", { class: `meter ${kind}`.trim(), "aria-hidden": "true" }, fill);
}

/** A name that may break behind its separators; the report's own way. */
export const breakable = (name) => window.nearsureReport.breakable(String(name));

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;

/** A target as it was given: 99.5% is not 100%. */
export const targetPercent = (share) => `${Number((100 * share).toFixed(2))}%`;

/** Percent that never rounds to certainty: 99.96% is not 100%. */
export function confidencePercent(share) {
  if (share <= 0 || share >= 1) return percent(share);
  if (share < 0.001) return "<0.1%";
  if (share > 0.999) return ">99.9%";
  return percent(share, share > 0.99 || share < 0.01 ? 1 : 0);
}

/** Two decimals where they are exact, more where they are not; what is less than 1 never reads 1. */
export function shortThreshold(threshold) {
  const exact = [2, 3, 4].find((digits) => Math.abs(Number(threshold.toFixed(digits)) - threshold) < 1e-9);
  let digits = exact ?? 3;
  while (digits < 6 && threshold < 1 && Number(threshold.toFixed(digits)) >= 1) digits += 1;
  return threshold.toFixed(digits);
}

/** The lines of a text that hold something. */
export const linesOf = (text) => text.split(/\r?\n/).map((line) => line.trim()).filter((line) => line !== "");

export const count = (number) => Number(number).toLocaleString("en");

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function distance(squared) {
  if (squared === 0) return "0";
  return squared >= 1e5 || squared < 1e-3 ? squared.toExponential(2) : String(Number(squared.toPrecision(4)));
}

/** Long names begin alike and end differently, so the middle is left out. */
export function shortName(name, longest = 32) {
  const letters = [...String(name)];
  const kept = Math.floor((longest - 1) / 2);
  return letters.length <= longest ? String(name) : `${letters.slice(0, kept).join("")}…${letters.slice(-kept).join("")}`;
}

let fading = null;

/** For screen readers; the page itself shows it already. */
export function announce(sentence) {
  byId("spoken").textContent = sentence;
}

/** Shows a message at the foot of the page: for some seconds, or as long as it can be undone. */
export function notify(sentence, undo = null) {
  byId("status-text").textContent = sentence;
  byId("status").dataset.shown = "yes";
  clearTimeout(fading);
  if (undo === null) fading = setTimeout(() => { byId("status").dataset.shown = "no"; }, 8000);
  const button = byId("status-undo");
  const heldFocus = document.activeElement === button;
  button.hidden = undo === null;
  button.onclick = undo;
  if (heldFocus && button.hidden) document.querySelector('[role="tab"][aria-selected="true"]').focus();
}

/** Clears the message, and its undo. */
export function clearMessage() {
  clearTimeout(fading);
  byId("status").dataset.shown = "no";
  byId("status-text").textContent = "";
  byId("status-undo").hidden = true;
}

/** Shows what went wrong, and perhaps a button to try again; null hides it. */
export function showProblem(problem, again = null) {
  const place = byId("problem");
  place.hidden = problem === null;
  byId("problem-text").textContent = problem === null ? "" : problem.message || String(problem);
  byId("problem-again").hidden = again === null;
  byId("problem-again").onclick = again;
}

/** A button that retries what failed; once it is hidden, the focus moves to its goal. */
export function offerAgain(id, work, goal) {
  byId(id).addEventListener("click", async () => {
    await attempt(work, byId(id));
    if (byId(id).hidden) byId(goal).focus();
  });
}

/** Runs what a button starts: the button is busy meanwhile, and a failure is shown. */
export async function attempt(work, button = null) {
  showProblem(null);
  button?.setAttribute("aria-busy", "true");
  try {
    return await work();
  } catch (problem) {
    if (problem.name !== "AbortError") showProblem(problem);
    return undefined;
  } finally {
    button?.removeAttribute("aria-busy");
  }
}
