// The threshold: what it would accept, how often that would be right, and which one is in use.

import { call } from "./api.js";
import { attempt, byId, confidencePercent, element, percent, say, shortThreshold } from "./elements.js";
import { loadModel, on, session } from "./session.js";

// Of the slider: an exact value, such as that of a promise, may lie between its steps.
let value = null;
let promise = null;
let points = [];
let touched = false;
// What the service goes by, as /v1/threshold tells it.
let inUse = { threshold: null, precision: null, sentence: "" };
const listeners = [];

export const whenMoved = (listener) => listeners.push(listener);

/** The report's point that accepts what the threshold accepts; null if it accepts nothing. */
export function pointAt(threshold) {
  return points.find((point) => point.threshold >= threshold - 1e-9) ?? null;
}

function interval({ low, high }) {
  return low === null || high === null ? "" : ` (${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)})`;
}

export function sentenceAt(threshold) {
  const begin = `Accept above ${shortThreshold(threshold)}: `;
  if (points.length === 0) return `${begin}what that means is known when the report is made.`;
  const point = pointAt(threshold);
  if (point === null || point.accepted === 0) return `${begin}no query of the report was that sure.`;
  return `${begin}${percent(point.coverage)} of queries, ${percent(point.precision.value, 1)} right${interval(point.precision)}.`;
}

/** Where the arrow keys go: most confidences lie near 1, and there the steps are small. */
function neighbouring(threshold, up) {
  const step = (near) => (near < 0.95 - 1e-9 ? 0.005 : near < 0.99 - 1e-9 ? 0.001 : 0.0005);
  const size = step(up ? threshold : threshold - 1e-4);
  const goal = up ? (Math.floor(threshold / size + 1e-6) + 1) * size : (Math.ceil(threshold / size - 1e-6) - 1) * size;
  return Number(Math.min(1, Math.max(0, goal)).toFixed(4));
}

const DOUBTS = {
  unknown: "Its confidence reaches the threshold, but it looks like nothing in the gallery: look twice.",
  ambiguous: "Its confidence reaches the threshold, but its neighbours disagree: look twice.",
};

/** No promise is made before the report is there, and none by a lax threshold. */
function wordsOfAcceptance(verdict) {
  if (DOUBTS[verdict] !== undefined) return DOUBTS[verdict];
  const right = pointAt(value)?.precision.value ?? null;
  if (right === null) return "Its confidence reaches the threshold; how often such answers are right, only a report can say.";
  const told = `at this threshold ${percent(right, 1)} of accepted answers are right.`;
  return right >= 0.9 ? `You may act on this: ${told}` : `But the threshold is lax: ${told}`;
}

/** Whether the answer is accepted where the slider stands, and what that means for a person. */
export function judgement(answer) {
  if (value === null && inUse.precision !== null) {
    return { accepted: false, words: "No threshold keeps the promise that is in use, so nothing is accepted." };
  }
  if (value === null) {
    return { accepted: null, words: "Move the slider to see what a threshold would say about this answer." };
  }
  const accepted = answer.confidence >= value;
  if (accepted) return { accepted, words: wordsOfAcceptance(answer.verdict) };
  return {
    accepted,
    words: `Let a person decide: ${confidencePercent(answer.confidence)} is below the threshold of ${shortThreshold(value)}, so of a hundred such answers about ${Math.round(100 * (1 - answer.confidence))} would be wrong.`,
  };
}

/** Where the answer stands on the scale; null if there is none. */
export function setConfidence(confidence) {
  byId("scale-fill").style.inlineSize = `${100 * (confidence ?? 0)}%`;
  byId("scale").dataset.confidence = confidence ?? "";
  colour();
}

function colour() {
  const confidence = byId("scale").dataset.confidence;
  const state = confidence === "" || value === null ? "open" : Number(confidence) >= value ? "yes" : "no";
  byId("scale").dataset.state = state;
}

const rightPercent = (precision) => `${Number((100 * precision).toFixed(2))}%`;

function wordsInUse(same) {
  const { threshold, precision } = inUse;
  if (threshold === null) return precision === null ? "No threshold is in use." : `In use: the promise of ${rightPercent(precision)} right.`;
  const aim = precision === null ? "." : `, for ${rightPercent(precision)} right.`;
  return (same ? "This threshold is in use" : `In use: ${shortThreshold(threshold)}`) + aim;
}

function showInUse() {
  const same = inUse.threshold !== null && value !== null && Math.abs(inUse.threshold - value) < 1e-9;
  byId("threshold-in-use").textContent = wordsInUse(same);
  byId("threshold-in-use").classList.toggle("same", same);
  const writable = session.model?.writable ?? false;
  byId("use-threshold").hidden = !writable || value === null;
  byId("use-threshold").disabled = same;
  byId("use-none").hidden = !writable || (inUse.threshold === null && inUse.precision === null);
}

function move(threshold, chosen = null) {
  value = threshold;
  promise = chosen;
  const slider = byId("threshold");
  if (threshold !== null) {
    if (Number(slider.value) !== threshold) slider.value = String(threshold);
    slider.setAttribute("aria-valuetext", shortThreshold(threshold));
    byId("scale-mark").style.insetInlineStart = `${100 * threshold}%`;
  }
  byId("scale-mark").hidden = threshold === null;
  byId("scale").dataset.threshold = threshold === null ? "none" : "set";
  byId("threshold-sentence").textContent = threshold === null ? inUse.sentence : sentenceAt(threshold);
  for (const button of byId("promises").children) {
    button.setAttribute("aria-pressed", String(chosen !== null && button.value === String(chosen.precision)));
  }
  byId("promise-note").textContent = chosen?.sentence ?? "";
  colour();
  showInUse();
  for (const listener of listeners) listener();
}

/** A promise that nothing keeps says so, and leaves the slider alone. */
function choose(one) {
  if (one.threshold !== null) {
    touched = true;
    move(one.threshold, one);
  }
  byId("promise-note").textContent = one.sentence;
}

function showPromises(promises) {
  byId("promises").replaceChildren(...promises.map((one) => element("button", {
    type: "button",
    class: "pill",
    value: one.precision,
    "aria-disabled": one.threshold === null ? "true" : null,
    "aria-pressed": "false",
    on: { click: () => choose(one) },
  }, `${rightPercent(one.precision)} right`)));
}

/** Sets the threshold of the service: {threshold}, {precision} that is to be promised, or {}. */
export async function useThreshold(wanted) {
  const chosen = wanted.precision === undefined ? null : promise;
  inUse = await call("/v1/threshold", { method: "PUT", json: wanted });
  touched = false;
  await loadModel();
  move(inUse.threshold, chosen);
  say(inUse.sentence);
}

let asked = 0;

/** Also why there is none: none was set, or none keeps the promise. */
async function learnInUse(model) {
  const mine = ++asked;
  byId("scale").hidden = model.model === 0;
  if (inUse.threshold !== model.threshold) inUse = { threshold: model.threshold, precision: null, sentence: "" };
  if (!touched) move(model.threshold, promise?.threshold === model.threshold ? promise : null);
  if (model.model === 0) return;
  const told = await call("/v1/threshold").catch(() => null);
  if (told === null || mine !== asked) return;
  inUse = told;
  move(touched ? value : inUse.threshold, promise);
}

export function startThreshold() {
  byId("threshold").addEventListener("input", (event) => {
    touched = true;
    move(Number(event.target.value));
  });
  byId("threshold").addEventListener("keydown", (event) => {
    const up = { ArrowRight: true, ArrowUp: true, ArrowLeft: false, ArrowDown: false }[event.key];
    if (up === undefined) return;
    event.preventDefault();
    touched = true;
    move(neighbouring(value ?? Number(event.target.value), up));
  });
  byId("use-threshold").addEventListener("click", (event) => {
    const wanted = promise === null ? { threshold: value } : { precision: promise.precision };
    attempt(() => useThreshold(wanted), event.target);
  });
  byId("use-none").addEventListener("click", (event) => attempt(async () => {
    await useThreshold({});
    byId("threshold").focus();
  }, event.target));
  on("model", learnInUse);
  on("report", (report) => {
    points = [...report.operating_points].sort((a, b) => a.threshold - b.threshold);
    showPromises(report.promises);
    move(value, report.promises.find((one) => one.precision === promise?.precision && one.threshold === value) ?? null);
  });
}
