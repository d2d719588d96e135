// Starts the page: the token, the tabs, and the warnings about the fit.

import { forgetToken, hasToken, keepToken, refit } from "./api.js";
import { startAnswer } from "./answer.js";
import { startChanges } from "./changes.js";
import { startCompare } from "./compare.js";
import { attempt, byId, clearMessage, notify, percent, plural, showProblem } from "./elements.js";
import { loadItems, startGallery } from "./gallery.js";
import { startSeveral } from "./several.js";
import { drawOverview, startOverview } from "./overview.js";
import { openReport, startReport } from "./live_report.js";
import { openLabels, startLabels } from "./labels.js";
import { startPromise } from "./promise.js";
import { askAboutItem, startQuestions } from "./questions.js";
import { emit, loadModel, loadReport, on, session } from "./session.js";
import { loadSuspects, startSuspects } from "./suspects.js";
import { startThreshold } from "./threshold.js";

const HEADS = { means: "class means", logistic: "logistic regression" };
const STALE = 0.1;
const SMALLEST_GALLERY = 2;
const tabs = [...document.querySelectorAll('[role="tab"]')];
const panelOf = (tab) => byId(tab.getAttribute("aria-controls"));

function tabNamed(hash) {
  const tab = byId(`tab-${hash.slice(1)}`);
  return tab?.hidden ? null : tab;
}

function openTab(tab) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    panelOf(other).hidden = !chosen;
  }
  history.replaceState(null, "", `#${tab.id.slice("tab-".length)}`);
  if (tab.id === "tab-report") openReport();
  if (tab.id === "tab-gallery") drawOverview();
  if (tab.id === "tab-labels") openLabels();
}

function moveTab(event) {
  const shown = tabs.filter((tab) => !tab.hidden);
  const place = shown.indexOf(event.target);
  const goal = {
    ArrowRight: shown[(place + 1) % shown.length],
    ArrowLeft: shown.at(place - 1),
    Home: shown[0],
    End: shown.at(-1),
  }[event.key];
  if (goal === undefined) return;
  event.preventDefault();
  goal.focus();
  openTab(goal);
}

function showModel(model) {
  const head = model.head === null ? "" : ` with ${HEADS[model.head]}`;
  const fit = model.model === 0 ? "not fitted yet" : `fit ${model.model}${head}`;
  byId("facts").title = model.head_choice ?? "";
  byId("facts").textContent = [
    plural(model.size, "item"),
    // Classes are counted by a fit.
    ...(model.n_classes > 0 ? [plural(model.n_classes, "class", "classes")] : []),
    plural(model.dimension, "dimension"),
    fit,
    ...(model.writable ? [] : ["read only"]),
  ].join(" · ");
  byId("tab-labels").hidden = !model.writable || model.model === 0;
  byId("stale").hidden = model.model !== 0 && model.share_changed <= STALE;
  byId("stale-text").textContent = model.model === 0
    ? unfittedText(model)
    : `${percent(model.share_changed)} of the gallery changed since the last fit. Answers already use the new items, but their confidence was fitted on the old ones.`;
  byId("refit").textContent = model.model === 0 ? "Fit" : "Refit";
  byId("refit").hidden = !model.writable || (model.model === 0 && model.size < SMALLEST_GALLERY);
}

function unfittedText({ size, writable }) {
  const state = size === 0 ? "The gallery is empty" : "Nothing is fitted yet";
  const remedy = writable ? " Add items of two classes or more under Gallery, then fit." : "";
  return `${state}, so no query can be answered.${remedy}`;
}

async function refitGallery() {
  notify("Fitting…");
  try {
    const state = await refit();
    await loadModel();
    session.reportIsOld = true;
    emit("refitted");
    loadReport();
    notify(`Fit ${state.model} is now in use.`);
  } catch (problem) {
    clearMessage();
    throw problem;
  }
  // The button that had the focus is hidden now.
  if (byId("stale").hidden) byId("main").focus({ preventScroll: true });
}

function showTokenForm() {
  byId("token-form").hidden = false;
  byId("tabs").hidden = true;
  byId("facts").textContent = "";
  byId("stale").hidden = true;
  byId("promise").hidden = true;
  byId("leave").hidden = true;
  for (const tab of tabs) panelOf(tab).hidden = true;
  byId("token").focus();
}

/** Shows the gallery, or the form that asks for a token. */
async function open() {
  try {
    await loadModel();
  } catch (problem) {
    if (problem.status === 401) showTokenForm();
    throw problem;
  }
  showProblem(null);
  byId("token-form").hidden = true;
  byId("tabs").hidden = false;
  byId("leave").hidden = !hasToken();
  openTab(tabNamed(location.hash) ?? tabs[0]);
  loadReport();
  loadSuspects();
  await loadItems();
}

async function openWithToken(event) {
  event.preventDefault();
  byId("token-problem").textContent = "";
  keepToken(byId("token").value.trim());
  try {
    await open();
    byId("token").value = "";
    tabs.find((tab) => tab.tabIndex === 0).focus();
  } catch (problem) {
    // A busy service has not checked the token.
    if (problem.status === 401) forgetToken();
    byId("token-problem").textContent = problem.message;
  }
}

// The report has a light and a dark theme; its button switches the whole page.
const theme = window.nearsureReport?.theme;
if (theme) byId("theme-place").append(theme.button());

for (const tab of tabs) {
  tab.addEventListener("click", () => openTab(tab));
  tab.addEventListener("keydown", moveTab);
}
byId("token-form").addEventListener("submit", openWithToken);
byId("leave").addEventListener("click", () => {
  forgetToken();
  location.reload();
});
byId("problem-close").addEventListener("click", () => {
  showProblem(null);
  byId("main").focus();
});
byId("refit").addEventListener("click", (event) => attempt(refitGallery, event.target));
addEventListener("hashchange", () => {
  const tab = tabNamed(location.hash);
  if (tab !== null && session.model !== null && byId("token-form").hidden) openTab(tab);
});
document.addEventListener("nearsure-token-needed", () => {
  // A token that was revoked while the page was open.
  if (session.model !== null && byId("token-form").hidden) showTokenForm();
});

startAnswer();
startThreshold();
startQuestions();
startCompare();
startChanges();
startSuspects();
startGallery();
startSeveral();
startReport();
startOverview();
startPromise();
startLabels();
on("open-labels", () => {
  openTab(byId("tab-labels"));
  byId("tab-labels").focus();
});
on("open-map", () => {
  openTab(byId("tab-gallery"));
  byId("tab-gallery").focus({ preventScroll: true });
});
on("model", showModel);
on("ask-item", (item) => {
  openTab(byId("tab-ask"));
  scrollTo({ top: 0 });
  byId("tab-ask").focus({ preventScroll: true });
  askAboutItem(item);
});

const start = () => open().catch((problem) => {
  if (problem.status !== 401) showProblem(problem, () => start().then(() => byId("main").focus()));
});

start();
