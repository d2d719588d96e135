// Whether the promise of the threshold holds for recent queries: a banner if it does not.

import { call } from "./api.js";
import { byId, element, percent, plural, shortThreshold, targetPercent } from "./elements.js";
import { emit, on, session } from "./session.js";

const EVERY = 30_000;
// Fewer queries are not compared.
const FEWEST = 30;
const SOON = 1000;
// A range that says nothing.
const WIDE = 0.5;
const TITLES = { adjusted: "Promise adjusted.", withdrawn: "Promise withdrawn.", none: "Recent queries differ." };

/** Whether what was measured on the gallery is in doubt for recent queries. */
export const queriesDiffer = () => session.promise !== null && session.promise.reasons.length > 0;

/** What recent queries are compared with. */
export const others = () => (session.promise?.compared_with === "labelled queries" ? "those labelled" : "the gallery");

function consequence({ state, threshold }, precision) {
  if (state === "adjusted") {
    return `Answers are accepted only from a confidence of ${shortThreshold(threshold)} on, which should keep ${targetPercent(precision)} of them right.`;
  }
  if (state === "withdrawn") return "Nothing can be promised for them, so no answer is accepted.";
  return "What this page says about precision was measured on the gallery, and may not hold for them.";
}

const listed = (reasons) => [reasons.slice(0, -1).join(", "), reasons.at(-1)].filter(Boolean).join(" and ");

function estimate(accuracy) {
  if (accuracy === null || accuracy.high - accuracy.low > WIDE) return "How many answers are right cannot be told without labels.";
  return `Between ${percent(accuracy.low)} and ${percent(accuracy.high)} of all answers should be right.`;
}

function words(promise, precision) {
  if (promise.reasons.length === 0) return [promise.sentence];
  return [
    `The last ${plural(promise.n_queries, "query", "queries")} are not like ${others()}: ${listed(promise.reasons)}.`,
    consequence(promise, precision),
    estimate(promise.accuracy),
    session.model.writable ? "Label some of them to find out more." : "Somebody with a write token can label some of them to find out more.",
  ];
}

let asked = 0;
let soon = null;

function show(promise, precision) {
  const shown = promise !== null && (promise.state === "withdrawn" || promise.reasons.length > 0);
  byId("promise").hidden = !shown;
  byId("label-queries").hidden = !shown || !session.model.writable || promise.reasons.length === 0;
  const title = shown ? TITLES[promise.state === "holds" ? "none" : promise.state ?? "none"] : "";
  const text = shown ? words(promise, precision).join(" ") : "";
  // Written only if it is new: screen readers read it out each time.
  if (byId("promise-text").textContent === `${title} ${text}`) return;
  byId("promise-text").replaceChildren(...(shown ? [element("strong", {}, title), ` ${text}`] : []));
}

export async function loadPromise() {
  const mine = ++asked;
  if (session.model === null || session.model.model === 0) return;
  const [promise, threshold] = await Promise.all([call("/v1/promise"), call("/v1/threshold")]).catch(() => [null, null]);
  if (promise === null || mine !== asked) return;
  session.promise = promise;
  show(promise, threshold.precision);
  emit("promise", promise);
  // It is being looked up.
  clearTimeout(soon);
  if (promise.checked === null && promise.window >= FEWEST) soon = setTimeout(loadPromise, SOON);
}

export function startPromise() {
  byId("label-queries").addEventListener("click", () => emit("open-labels"));
  on("model", (model) => {
    if (model.model === 0) {
      session.promise = null;
      show(null);
    } else {
      loadPromise();
    }
  });
  on("answered", loadPromise);
  setInterval(() => {
    if (!document.hidden && byId("token-form").hidden) loadPromise();
  }, EVERY);
}
