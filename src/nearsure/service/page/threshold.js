// The threshold: what it would accept, how often that would be right, and which one is in use.

import { call } from "./api.js";
import { attempt, byId, confidencePercent, element, percent, say, shortThreshold } from "./elements.js";
import { loadModel, on, session } from "./session.js";

// Of the slider: an exact value, such as that of a promise, may lie between its steps.
let value = null;
let promise = null;
let points = [];
let touched = false;
let whyNone = "No threshold is set: nothing is accepted or refused.";
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
  if (value === null && answer.accepted === false) {
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

function showInUse() {
  const inUse = session.model?.threshold ?? null;
  const same = inUse !== null && value !== null && Math.abs(inUse - value) < 1e-9;
  byId("threshold-in-use").textContent =
    inUse === null ? "No threshold is in use." : same ? "This threshold is in use." : `In use: ${shortThreshold(inUse)}.`;
  byId("use-threshold").hidden = !session.model?.writable || value === null;
  byId("use-threshold").disabled = same;
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
  byId("threshold-sentence").textContent = threshold === null ? whyNone : sentenceAt(threshold);
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
  }, `${Number((100 * one.precision).toFixed(2))}% right`)));
}

/** Sets the threshold of the service: {threshold}, or {precision} that is to be promised. */
export async function useThreshold(wanted) {
  const now = await call("/v1/threshold", { method: "PUT", json: wanted });
  await loadModel();
  move(now.threshold, wanted.precision === undefined ? null : promise);
  say(now.sentence);
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
  on("model", async (model) => {
    if (!touched) move(model.threshold);
    showInUse();
    if (model.threshold !== null) return;
    // None was set, or none keeps the promise: the service knows which.
    whyNone = (await call("/v1/threshold").catch(() => ({ sentence: whyNone }))).sentence;
    if (value === null) move(null);
  });
  on("report", (report) => {
    points = [...report.operating_points].sort((a, b) => a.threshold - b.threshold);
    showPromises(report.promises);
    move(value, promise);
  });
}
