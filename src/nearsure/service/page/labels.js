// Recent queries to label: one after the other, then what can be promised with their labels.

import { call } from "./api.js";
import { announce, attempt, byId, confidencePercent, element, meter, notify, plural, targetPercent } from "./elements.js";
import { picture } from "./pictures.js";
import { loadModel, loadReport, on, rememberLabels, session } from "./session.js";

const AT_ONCE = 20;
const FEWEST = 20;
const CERTAINTY = 0.95;

let queries = [];
let place = 0;
let draws = 0;
let learned = { n_labels: 0, sentence: "", promises: [] };
// By key: a label, null for none of the classes, undefined for a query that was skipped.
const given = new Map();

const labelled = () => [...given].filter(([, label]) => label !== undefined);

/** How many answers must be right, and none wrong, for a precision to be promised. */
const needed = (precision) => Math.ceil(Math.log(1 - CERTAINTY) / Math.log(precision));

function look(query) {
  const title = query.name || (query.text === null ? `Query ${query.key}` : null);
  return element("div", { class: "look" },
    query.picture === null ? null : element("span", { class: "thumb large" }, element("img", { src: query.picture, alt: "The picture of the query" })),
    element("div", {},
      title === null ? null : element("p", { class: "look-name" }, title),
      query.text === null ? null : element("blockquote", { class: "asked-text" }, query.text)));
}

function suggestion(share, number) {
  const chosen = given.get(queries[place].key) === String(share.label);
  return element("li", {}, element("button",
    { type: "button", class: "suggestion", "aria-pressed": String(chosen), "aria-keyshortcuts": number, on: { click: () => give(String(share.label)) } },
    element("kbd", { "aria-hidden": "true" }, String(number)),
    element("span", { class: "clamped" }, String(share.label)),
    meter(share.probability, "muted"),
    element("span", { class: "share-number" }, confidencePercent(share.probability))));
}

function neighborOf(neighbor) {
  return element("li", { class: "neighbor" }, picture(neighbor.id, "", null, neighbor.text),
    element("p", { class: "neighbor-label clamped" }, String(neighbor.label)),
    element("p", { class: "neighbor-id" }, String(neighbor.id)));
}

function showProgress() {
  const { length } = labelled();
  const total = length + learned.n_labels;
  const precision = session.inUse?.precision ?? null;
  const lacking = precision === null ? 0 : needed(precision);
  byId("send-labels").disabled = length === 0 || total < FEWEST;
  byId("send-labels").textContent = length === 0 ? "Use the labels" : `Use ${plural(length, "label")}`;
  byId("label-progress").textContent = [
    `${plural(length, "query", "queries")} labelled${learned.n_labels > 0 ? `, and ${learned.n_labels} before` : ""}.`,
    ...(total < FEWEST ? [`${FEWEST} are needed.`] : []),
    ...(total >= lacking ? [] : [
      `The threshold in use promises ${targetPercent(precision)}, for which at least ${lacking} labels are needed: with fewer, nothing is accepted.`,
    ]),
  ].join(" ");
}

function showQuery(focus = true) {
  const query = queries[place];
  byId("label-card").hidden = query === undefined;
  byId("label-end").hidden = queries.length === 0;
  byId("label-back").disabled = place === 0;
  showProgress();
  if (query === undefined) {
    if (focus) byId(byId("send-labels").disabled ? "more-queries" : "send-labels").focus();
    return;
  }
  byId("label-place").textContent = `Query ${place + 1} of ${queries.length}`;
  byId("label-look").replaceChildren(look(query));
  byId("label-suggestions").replaceChildren(...query.answer.classes.map((share, index) => suggestion(share, index + 1)));
  byId("label-neighbors").replaceChildren(...query.answer.neighbors.map(neighborOf));
  const own = given.get(query.key);
  const other = own !== undefined && own !== null && !query.answer.classes.some((share) => String(share.label) === own);
  byId("other-class").value = other ? own : "";
  byId("label-none").hidden = session.model.unknown_share === null;
  byId("label-none").setAttribute("aria-pressed", String(own === null && given.has(query.key)));
  if (focus) byId("label-place").focus();
}

function step(to) {
  place = Math.max(0, Math.min(queries.length, to));
  showQuery();
}

function give(label) {
  given.set(queries[place].key, label);
  announce(label === null ? "None of these." : label === undefined ? "Skipped." : `Labelled ${label}.`);
  step(place + 1);
}

/** Digits choose a suggestion, wherever the focus is but in a field. */
function press(event) {
  if (event.target.closest("input") || event.ctrlKey || event.altKey || event.metaKey) return;
  const chosen = queries[place]?.answer.classes[Number(event.key) - 1];
  if (chosen === undefined) return;
  event.preventDefault();
  give(String(chosen.label));
}

function explain(problem) {
  return problem.code === "too_few_queries"
    ? "Too few different queries came since the service was started: 30 are needed. Items of the gallery do not count."
    : problem.message;
}

async function moreQueries(focus = true) {
  byId("labels-note").textContent = "";
  try {
    const found = await call(`/v1/labels/queries?${new URLSearchParams({ n: AT_ONCE, seed: draws })}`);
    draws += 1;
    const shown = new Set(queries.map((query) => query.key));
    const before = queries.length;
    queries = [...queries, ...found.queries.filter((query) => !shown.has(query.key))];
    rememberLabels(found.queries.flatMap((query) => query.answer.classes.map((share) => share.label)));
    place = before;
    if (queries.length === before) byId("labels-note").textContent = "There are no other queries to label now.";
    showQuery(focus);
  } catch (problem) {
    byId("labels-note").textContent = explain(problem);
    showQuery(false);
  }
}

function showLearned(labels) {
  learned = labels;
  byId("learned").textContent = labels.sentence;
  byId("learned-promises").replaceChildren(...labels.promises.map((one) => element("li", {}, one.sentence)));
  byId("forget-labels").hidden = labels.n_labels === 0;
}

async function changed(labels, sentence) {
  given.clear();
  queries = [];
  place = 0;
  showLearned(labels);
  notify(sentence);
  await loadModel();
  loadReport();
  await moreQueries(false);
  byId("learned-heading").focus();
}

async function send() {
  const json = { queries: labelled().map(([key, label]) => ({ key, label })) };
  await changed(await call("/v1/labels", { method: "POST", json }), "Confidence and promises rest on the labelled queries now.");
}

async function forget() {
  await changed(await call("/v1/labels", { method: "DELETE" }), "The labels are forgotten. Confidence and promises rest on the gallery.");
}

/** Called when the tab opens. */
export async function openLabels() {
  try {
    showLearned(await call("/v1/labels"));
  } catch (problem) {
    byId("learned").textContent = problem.message;
  }
  if (queries.length === 0) await moreQueries(false);
  else showProgress();
}

export function startLabels() {
  byId("panel-labels").addEventListener("keydown", press);
  byId("other-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const label = byId("other-class").value.trim();
    if (label !== "") give(label);
  });
  byId("label-none").addEventListener("click", () => give(null));
  byId("label-skip").addEventListener("click", () => give(undefined));
  byId("label-back").addEventListener("click", () => step(place - 1));
  byId("more-queries").addEventListener("click", (event) => attempt(moreQueries, event.target));
  byId("send-labels").addEventListener("click", (event) => attempt(send, event.target));
  byId("forget-labels").addEventListener("click", (event) => attempt(forget, event.target));
}
