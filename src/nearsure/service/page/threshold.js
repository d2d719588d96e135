// The threshold: what it would accept, how often that would be right, and which is in use.

import { call } from "./api.js";
import { attempt, byId, confidencePercent, element, notify, percent, shortThreshold, targetPercent } from "./elements.js";
import { others, queriesDiffer } from "./promise.js";
import { loadModel, on, session } from "./session.js";

// Of the slider: an exact value, such as that for a precision, may lie between its steps.
let value = null;
let promise = null;
let points = [];
let touched = false;
// The threshold of the service, from /v1/threshold.
let inUse = { threshold: null, precision: null, sentence: "" };
const listeners = [];

/** Whether recent queries have left another threshold than the one that was chosen, or none. */
const isReplaced = () => ["adjusted", "withdrawn"].includes(session.promise?.state) && inUse.precision !== null;

/** From which answers are accepted now. */
const accepting = () => (isReplaced() ? session.promise.threshold : inUse.threshold);

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
  if (points.length === 0) return `${begin}the effect is shown once the report is made.`;
  const point = pointAt(threshold);
  if (point === null || point.accepted === 0) return `${begin}no query of the report was that confident.`;
  const doubt = queriesDiffer() ? " Measured on the gallery; recent queries differ." : "";
  return `${begin}${percent(point.coverage)} of queries, ${percent(point.precision.value, 1)} right${interval(point.precision)}.${doubt}`;
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

/** No precision is stated before the report is there, and none for a low threshold. */
function acceptanceText({ verdict, promise: state }) {
  if (DOUBTS[verdict] !== undefined) return DOUBTS[verdict];
  if (isReplaced() && accepting() !== null && value >= accepting() - 1e-9) {
    return `You may act on this: the threshold was adjusted to recent queries, so that ${targetPercent(inUse.precision)} of accepted answers should be right.`;
  }
  if (queriesDiffer() || isReplaced() || ["adjusted", "withdrawn"].includes(state)) {
    return `Its confidence reaches the threshold, but recent queries are not like ${others()}, on which that was measured: look twice.`;
  }
  const right = pointAt(value)?.precision.value ?? null;
  if (right === null) return "Its confidence reaches the threshold; the report will show how often such answers are right.";
  const effect = `at this threshold ${percent(right, 1)} of accepted answers are right.`;
  return right >= 0.9 ? `You may act on this: ${effect}` : `But the threshold is low: ${effect}`;
}

/** Whether the answer is accepted where the slider stands, and what that means for a person. */
export function judgement(answer) {
  if (value === null && isReplaced()) {
    return { accepted: false, words: `Review by hand: nothing can be promised for recent queries, which are not like ${others()}, so nothing is accepted.` };
  }
  if (value === null && inUse.precision !== null) {
    return { accepted: false, words: "No threshold reaches the precision in use, so nothing is accepted." };
  }
  if (value === null) {
    return { accepted: null, words: "Move the slider to see whether a threshold would accept this answer." };
  }
  const accepted = answer.confidence >= value;
  if (accepted) return { accepted, words: acceptanceText(answer) };
  return {
    accepted,
    words: `Review by hand: ${confidencePercent(answer.confidence)} is below the threshold of ${shortThreshold(value)}, so about ${Math.round(100 * (1 - answer.confidence))} of 100 such answers would be wrong.`,
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

function inUseText(same) {
  const { precision } = inUse;
  const threshold = accepting();
  if (threshold === null && isReplaced()) return `The promise of ${targetPercent(precision)} is withdrawn.`;
  if (threshold === null) return precision === null ? "No threshold is in use." : `In use: precision ${targetPercent(precision)}.`;
  const how = isReplaced() ? ", adjusted to recent queries" : "";
  const aim = precision === null ? "." : `, for precision ${targetPercent(precision)}${how}.`;
  return (same ? "This threshold is in use" : `In use: ${shortThreshold(threshold)}`) + aim;
}

function showInUse() {
  const same = accepting() !== null && value !== null && Math.abs(accepting() - value) < 1e-9;
  byId("threshold-in-use").textContent = inUseText(same);
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
  const none = isReplaced() ? "Nothing is accepted while the promise is withdrawn." : inUse.sentence;
  byId("threshold-sentence").textContent = threshold === null ? none : sentenceAt(threshold);
  for (const button of byId("promises").children) {
    button.setAttribute("aria-pressed", String(chosen !== null && button.value === String(chosen.precision)));
  }
  byId("promise-note").textContent = chosen?.sentence ?? "";
  colour();
  showInUse();
  for (const listener of listeners) listener();
}

/** A precision that no threshold reaches is explained, and leaves the slider alone. */
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
  }, `${targetPercent(one.precision)} right`)));
}

/** Sets the threshold of the service: {threshold}, {precision} to reach, or {} for none. */
export async function useThreshold(setting) {
  const chosen = setting.precision === undefined ? null : promise;
  inUse = await call("/v1/threshold", { method: "PUT", json: setting });
  session.inUse = inUse;
  touched = false;
  await loadModel();
  move(inUse.threshold, chosen);
  notify(inUse.sentence);
}

let asked = 0;

/** Also why there is none: none was set, or none reaches the precision. */
async function loadInUse(model) {
  const mine = ++asked;
  byId("scale").hidden = model.model === 0;
  if (accepting() !== model.threshold) inUse = { threshold: model.threshold, precision: null, sentence: "" };
  if (!touched) move(model.threshold, promise?.threshold === model.threshold ? promise : null);
  if (model.model === 0) return;
  const found = await call("/v1/threshold").catch(() => null);
  if (found === null || mine !== asked) return;
  inUse = found;
  session.inUse = inUse;
  move(touched ? value : accepting(), promise);
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
    const setting = promise === null ? { threshold: value } : { precision: promise.precision };
    attempt(() => useThreshold(setting), event.target);
  });
  byId("use-none").addEventListener("click", (event) => attempt(async () => {
    await useThreshold({});
    byId("threshold").focus();
  }, event.target));
  on("model", loadInUse);
  on("promise", () => {
    if (touched) move(value, promise);
    else if (inUse.sentence !== "") move(accepting(), isReplaced() ? null : promise);
  });
  on("report", (report) => {
    points = [...report.operating_points].sort((a, b) => a.threshold - b.threshold);
    showPromises(report.promises);
    move(value, report.promises.find((one) => one.precision === promise?.precision && one.threshold === value) ?? null);
  });
}
