// Possibly mislabelled items, reviewed one after the other: by buttons, or by keys.

import { callUntilMade } from "./api.js";
import { askForLabel, confirmItem, relabelItem, removeItem } from "./changes.js";
import { breakable, byId, confidencePercent, count, element, meter, offerAgain, plural } from "./elements.js";
import { picture } from "./pictures.js";
import { emit, on, rememberLabels, session } from "./session.js";

const AT_ONCE = 8;

let suspects = [];
let total = 0;
let estimate = null;
let shown = AT_ONCE;
let reviewed = 0;
// What was done here, by id: an undo puts the suspect back in its place, and an audit that is older is not believed.
const settled = new Map();

const rows = () => byId("suspects").children;

function focusRow(place) {
  const row = rows()[Math.min(place, rows().length - 1)];
  (row?.querySelector("button:not(:disabled, .link)") ?? row?.querySelector("button") ?? byId("suspects-heading")).focus();
}

/** Removes a row, and moves the focus to the next. */
function settle(id, kind) {
  const place = suspects.findIndex((suspect) => suspect.id === id);
  if (place < 0) return null;
  const hadFocus = rows()[place]?.contains(document.activeElement) || document.activeElement === document.body;
  settled.set(id, { suspect: suspects[place], place, kind });
  suspects.splice(place, 1);
  total -= 1;
  reviewed += 1;
  draw();
  if (hadFocus && !byId("panel-gallery").hidden) focusRow(place);
  // Those behind the ones that were listed.
  return suspects.length === 0 && total > 0 ? loadSuspects() : null;
}

function unsettle(id) {
  const { suspect, place } = settled.get(id);
  settled.delete(id);
  suspects.splice(place, 0, suspect);
  total += 1;
  reviewed -= 1;
  draw();
}

/** The ways to settle a suspect: name, key, whether it can be done, what it does. */
const WAYS = [
  { words: () => "Label is correct", key: "c", work: (suspect, button) => confirmItem(suspect, button) },
  {
    words: (suspect) => `Relabel to ${suspect.suggested}`, key: "r", can: (suspect) => suspect.suggested !== null,
    work: (suspect, button) => relabelItem(suspect, suspect.suggested, button),
  },
  { words: () => "Other label…", key: "o", work: (suspect, button) => askForLabel(suspect, button) },
  { words: () => "Remove", key: "x", danger: true, work: (suspect, button) => removeItem(suspect, button, false) },
];

function actions(suspect) {
  if (!session.model?.writable) return null;
  const button = ({ words, key, danger, work }) => element("button",
    { type: "button", class: danger ? "danger-text" : null, title: words(suspect), "aria-keyshortcuts": key.toUpperCase(), "data-key": key, on: { click: (event) => work(suspect, event.currentTarget) } },
    element("span", { class: "clamped" }, ...breakable(words(suspect))), element("span", { class: "unseen" }, ` (item ${suspect.id})`));
  return element("p", { class: "actions" }, ...WAYS.filter(({ can }) => can?.(suspect) ?? true).map(button));
}

function likelihood(words, share, kind) {
  return element("p", { class: "likelihood" },
    element("span", { class: "likelihood-words clamped", title: words }, ...breakable(words)), meter(share, kind),
    element("span", { class: "share-number" }, confidencePercent(share)));
}

function row(suspect) {
  const askIt = () => emit("ask-item", suspect);
  return element("li", { class: "suspect", "data-id": suspect.id },
    picture(suspect.id, "", suspect.picture, suspect.text),
    element("div", { class: "suspect-words" },
      element("p", { class: "suspect-title" },
        element("button", { type: "button", class: "link", title: `Ask about item ${suspect.id}`, on: { click: askIt } },
          element("span", { class: "unseen" }, "Ask about item "), ...breakable(suspect.id))),
      likelihood(`labelled ${suspect.label}`, suspect.p_own, "other"),
      suspect.suggested === null ? null : likelihood(`looks like ${suspect.suggested}`, suspect.p_suggested, "")),
    actions(suspect));
}

function note() {
  if (suspects.length === 0) return reviewed > 0 ? "All doubtful labels are reviewed." : "No label disagrees with its neighbours.";
  const { n_wrong: wrong, n_wrong_low: low, n_wrong_high: high, n_points: size } = estimate;
  const all = total > suspects.length ? ` The ${suspects.length} most suspect are listed.` : "";
  return `About ${plural(wrong, "label")} of ${count(size)} may be wrong, between ${count(low)} and ${count(high)}: look at ${plural(total, "item")}.${all}`;
}

function draw() {
  byId("suspects").replaceChildren(...suspects.slice(0, shown).map(row));
  byId("suspects-note").textContent = note();
  byId("more-suspects").hidden = suspects.length <= shown;
  const all = reviewed + total;
  byId("review").hidden = all === 0 || !session.model?.writable;
  byId("review-progress").textContent = `${count(reviewed)} of ${count(all)} reviewed`;
  byId("review-bar").max = Math.max(1, all);
  byId("review-bar").value = reviewed;
  const tab = byId("suspect-count");
  tab.hidden = total === 0;
  tab.replaceChildren(count(total), element("span", { class: "unseen" }, " doubtful labels"));
}

export async function loadSuspects() {
  try {
    const audit = await callUntilMade("/v1/audit");
    // Another label is another question.
    const isSettled = (one) => settled.get(one.id)?.suspect.label === one.label;
    const old = audit.suspects.filter(isSettled);
    suspects = audit.suspects.filter((one) => !isSettled(one));
    for (const { id } of suspects) settled.delete(id);
    total = audit.n_suspects - old.length;
    estimate = audit;
    // Confirmed ones are counted by an audit that knows of them.
    const uncounted = [...settled].filter(([id, { kind }]) => kind !== "confirm" || old.some((one) => one.id === id));
    reviewed = audit.n_confirmed + uncounted.length;
    rememberLabels(suspects.flatMap((suspect) => [suspect.label, suspect.suggested]).filter((label) => label !== null));
    draw();
    byId("suspects-again").hidden = true;
  } catch (problem) {
    const early = problem.code === "not_fitted_yet";
    byId("suspects-note").textContent = early ? "Doubtful labels are listed as soon as the gallery is fitted." : problem.message;
    byId("suspects-again").hidden = early;
  }
}

/** Keys of a review, while the focus is in its card: letters elsewhere are left to the browser. */
function press(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, dialog")) return;
  const key = event.key.toLowerCase();
  const place = Math.max(0, [...rows()].indexOf(event.target.closest(".suspect")));
  const step = { j: 1, k: -1 }[key];
  const button = key === "u" ? byId("status-undo") : rows()[place]?.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (step !== undefined) focusRow(Math.max(0, place + (event.target.closest(".suspect") ? step : 0)));
  else if (button && !button.hidden) button.click();
  else return;
  event.preventDefault();
}

export function startSuspects() {
  byId("suspects-card").addEventListener("keydown", press);
  byId("more-suspects").addEventListener("click", () => {
    const before = shown;
    shown += AT_ONCE;
    draw();
    rows()[before]?.querySelector("button").focus();
  });
  offerAgain("suspects-again", loadSuspects, "suspects-heading");
  on("gallery", (change) => {
    if (change.kind !== "undo") change.work.push(settle(change.id, change.kind));
    else if (settled.has(change.id)) unsettle(change.id);
  });
  on("refitted", loadSuspects);
}
