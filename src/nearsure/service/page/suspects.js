// Possibly mislabelled items, each with a button for the label of its neighbours.

import { callUntilMade } from "./api.js";
import { askForLabel, relabelItem, removeItem } from "./changes.js";
import { byId, confidencePercent, count, element, meter, offerAgain, plural } from "./elements.js";
import { picture } from "./pictures.js";
import { emit, on, rememberLabels, session } from "./session.js";

const AT_ONCE = 8;

let suspects = [];
let total = 0;
let estimate = null;
let shown = AT_ONCE;

/** Removes a row, and moves the focus to the next. */
function settle(id) {
  const place = suspects.findIndex((suspect) => suspect.id === id);
  if (place < 0) return;
  const row = byId("suspects").children[place];
  const hadFocus = row?.contains(document.activeElement) || document.activeElement === document.body;
  suspects.splice(place, 1);
  total -= 1;
  draw();
  if (!hadFocus || byId("panel-gallery").hidden) return;
  const next = byId("suspects").children[Math.min(place, byId("suspects").children.length - 1)];
  (next?.querySelector("button:not(:disabled)") ?? byId("suspects-heading")).focus();
}

function actions(suspect) {
  if (!session.model?.writable) return null;
  const { suggested } = suspect;
  const on = (work) => ({ click: (event) => work(event.currentTarget) });
  const about = element("span", { class: "unseen" }, ` (item ${suspect.id})`);
  return element("p", { class: "actions" },
    suggested === null ? null : element("button", { type: "button", class: "main", title: `Relabel to ${suggested}`, on: on((button) => relabelItem(suspect, suggested, button)) }, element("span", { class: "clamped" }, `Relabel to ${suggested}`), about.cloneNode(true)),
    element("button", { type: "button", on: on((button) => askForLabel(suspect, button)) }, "Other label…", about.cloneNode(true)),
    element("button", { type: "button", class: "danger-text", on: on((button) => removeItem(suspect, button)) }, "Remove…", about));
}

function likelihood(words, share, kind) {
  return element("p", { class: "likelihood" },
    element("span", { class: "likelihood-words clamped", title: words }, words), meter(share, kind),
    element("span", { class: "share-number" }, confidencePercent(share)));
}

function row(suspect) {
  const askIt = () => emit("ask-item", suspect);
  return element("li", { class: "suspect", "data-id": suspect.id },
    picture(suspect.id, "", suspect.picture, suspect.text),
    element("div", { class: "suspect-words" },
      element("p", { class: "suspect-title" },
        element("button", { type: "button", class: "link", title: `Ask about item ${suspect.id}`, on: { click: askIt } },
          element("span", { class: "unseen" }, "Ask about item "), String(suspect.id))),
      likelihood(`labelled ${suspect.label}`, suspect.p_own, "other"),
      suspect.suggested === null ? null : likelihood(`looks like ${suspect.suggested}`, suspect.p_suggested, "")),
    actions(suspect));
}

function note() {
  if (suspects.length === 0) return "No label disagrees with its neighbours.";
  const { n_wrong: wrong, n_wrong_low: low, n_wrong_high: high, n_points: size } = estimate;
  const all = total > suspects.length ? ` The ${suspects.length} most suspect are listed.` : "";
  return `About ${plural(wrong, "label")} of ${count(size)} may be wrong, between ${count(low)} and ${count(high)}: look at ${plural(total, "item")}.${all}`;
}

function draw() {
  byId("suspects").replaceChildren(...suspects.slice(0, shown).map(row));
  byId("suspects-note").textContent = note();
  byId("more-suspects").hidden = suspects.length <= shown;
  const tab = byId("suspect-count");
  tab.hidden = total === 0;
  tab.replaceChildren(count(total), element("span", { class: "unseen" }, " doubtful labels"));
}

export async function loadSuspects() {
  try {
    const audit = await callUntilMade("/v1/audit");
    suspects = [...(audit?.suspects ?? [])];
    total = audit?.n_suspects ?? 0;
    estimate = audit;
    rememberLabels(suspects.flatMap((suspect) => [suspect.label, suspect.suggested]).filter((label) => label !== null));
    draw();
    byId("suspects-again").hidden = true;
  } catch (problem) {
    const early = problem.code === "not_fitted_yet";
    byId("suspects-note").textContent = early ? "Doubtful labels are listed as soon as the gallery is fitted." : problem.message;
    byId("suspects-again").hidden = early;
  }
}

export function startSuspects() {
  byId("more-suspects").addEventListener("click", () => {
    const before = shown;
    shown += AT_ONCE;
    draw();
    byId("suspects").children[before]?.querySelector("button").focus();
  });
  offerAgain("suspects-again", loadSuspects, "suspects-heading");
  on("gallery", (change) => {
    if (change.kind === "undo") change.work.push(loadSuspects());
    else settle(change.id);
  });
  on("refitted", loadSuspects);
}
