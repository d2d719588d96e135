// The answer: label, confidence, whether it is accepted, and the nearest examples.

import { announce, breakable, byId, confidencePercent, count, distance, element, meter, percent, shortName } from "./elements.js";
import { picture } from "./pictures.js";
import { emit, session } from "./session.js";
import { judgement, setConfidence, whenMoved } from "./threshold.js";

const VERDICTS = {
  known: ["Known", "It looks like what the gallery holds."],
  ambiguous: ["Ambiguous", "It looks like what the gallery holds, but its neighbours disagree about the class."],
  unknown: ["Unknown", "It looks like nothing in the gallery; the label is only the best guess."],
};

// Longer labels are set smaller.
const LONG = 40;
const INVITATION = "Choose a query to see its label, how confident that is, and whether to accept it.";

let shown = null;
let preview = null;

export const subjectOf = (words) => ({ kind: "other", words });

function chip(kind, text) {
  return element("span", { class: `chip ${kind}` }, text);
}

function previewOf(subject) {
  if (preview !== null) URL.revokeObjectURL(preview);
  preview = null;
  if (subject.kind === "item") return picture(subject.item.id, "large", null, subject.item.text);
  if (!subject.file) return null;
  preview = URL.createObjectURL(subject.file);
  return element("span", { class: "thumb large" }, element("img", { src: preview, alt: "The picture of the query" }));
}

function origin(subject, answer) {
  if (subject.kind !== "item") return `Query: ${subject.words}.`;
  const { id, label } = subject.item;
  const agrees = String(label) === String(answer.label);
  return agrees
    ? `Item ${id}, left out of its own answer. Its own label is the same.`
    : `Item ${id}, left out of its own answer. Its own label is “${label}”: one of the two may be wrong.`;
}

function judged() {
  const { accepted, words } = judgement(shown.answer);
  const place = byId("judgement");
  place.className = `judgement ${accepted === null ? "open" : accepted ? "yes" : "no"}`;
  const title = accepted === null ? "No threshold" : accepted ? "Accepted" : "Not accepted";
  place.replaceChildren(
    element("span", { class: "judgement-mark", "aria-hidden": "true" }, accepted === null ? "–" : accepted ? "✓" : "✗"),
    element("p", {}, element("strong", {}, `${title}. `), words),
  );
  return title;
}

function classRow(share, answer) {
  const isAnswer = share.label === answer.label;
  return element("li", { class: isAnswer ? "share chosen" : "share" },
    element("span", { class: "share-label clamped", title: share.label }, ...breakable(share.label)),
    meter(share.probability, isAnswer ? "" : "muted"),
    element("span", { class: "share-number" }, confidencePercent(share.probability)));
}

function neighborCard(neighbor, share, answer, largest) {
  const agrees = neighbor.label === answer.label;
  const askIt = () => emit("ask-item", neighbor);
  const whole = `Ask about item ${neighbor.id}`;
  return element("li", { class: agrees ? "neighbor agrees" : "neighbor differs" },
    picture(neighbor.id, "", null, neighbor.text),
    element("p", { class: "neighbor-label", title: neighbor.label }, ...breakable(neighbor.label),
      agrees ? null : element("span", { class: "unseen" }, " (another label)")),
    element("p", { class: "neighbor-id" },
      element("button", { type: "button", class: "link", title: whole, "aria-label": whole, on: { click: askIt } }, ...breakable(shortName(neighbor.id, 25)))),
    element("p", { class: "neighbor-share" }, meter(largest > 0 ? neighbor.share / largest : 0, agrees ? "" : "other"),
      element("span", {}, element("span", { class: "unseen" }, "share of the vote "), percent(share, 1))),
    element("p", { class: "neighbor-distance" }, element("abbr", { title: "squared distance" }, "d²"), ` ${distance(neighbor.sq_distance)}`));
}

/** Sums of shares as they are printed, so that they add up. */
function supportNote(answer, shares) {
  const total = (chosen) => shares.filter((_, place) => chosen(answer.neighbors[place])).reduce((sum, share) => sum + share, 0);
  const agree = total((neighbor) => neighbor.label === answer.label);
  const all = total(() => true);
  const number = count(answer.neighbors.length);
  const which = session.model.k > answer.neighbors.length ? `The ${number} nearest of ${count(session.model.k)} neighbours` : `The ${number} neighbours`;
  return `${which} hold ${percent(all, 1)} of the vote: ${percent(agree, 1)} for this label, ${percent(all - agree, 1)} for others. The nearest come first.`;
}

/** What the answer rests on, where neighbours and the class as a whole have answered together. */
function headNote(answer) {
  if (answer.p_neighbors === null) return "";
  const whole = answer.p_head === null ? "the class is newer than the fit" : `${percent(answer.p_head)} by the class as a whole`;
  const isAmong = answer.p_neighbors > 0 || answer.neighbors.some((neighbor) => neighbor.label === answer.label);
  const near = isAmong ? `${percent(answer.p_neighbors)} by the neighbours alone` : "no neighbour is of this class";
  return `Support of this label: ${near}, ${whole}.`;
}

/** Shows an answer, and announces it to screen readers. */
export function showAnswer(answer, subject) {
  shown = { answer, subject };
  const verdict = answer.verdict === null ? null : VERDICTS[answer.verdict];
  byId("answer-body").replaceChildren(
    element("div", { class: "answer-head" },
      previewOf(subject),
      element("div", { class: "answer-words" },
        element("p", { class: String(answer.label).length > LONG ? "answer-label long" : "answer-label", id: "answer-label" }, ...breakable(answer.label)),
        element("p", { class: "answer-confidence" },
          element("strong", { id: "answer-confidence" }, confidencePercent(answer.confidence)), " sure",
          verdict === null ? null : chip(answer.verdict, verdict[0])),
        verdict === null ? null : element("p", { class: "note", id: "verdict-words" },
          `${verdict[1]}${answer.p_known === null ? "" : ` Chance that it is known: ${confidencePercent(answer.p_known)}.`}`),
        subject.text ? element("blockquote", { class: "asked-text" }, subject.text) : null,
        element("p", { class: "note" }, origin(subject, answer)))),
    element("div", { id: "judgement" }));
  setConfidence(answer.confidence);
  const title = judged();
  byId("class-shares").replaceChildren(...answer.classes.map((share) => classRow(share, answer)));
  byId("classes").hidden = answer.classes.length === 0;
  const largest = Math.max(0, ...answer.neighbors.map((neighbor) => neighbor.share));
  const { shares, surprise } = window.nearsureReport;
  const written = shares(answer.neighbors.map((neighbor) => neighbor.share));
  byId("neighbors").replaceChildren(...answer.neighbors.map((neighbor, place) => neighborCard(neighbor, written[place], answer, largest)));
  byId("support-note").textContent = supportNote(answer, written);
  byId("share-note").replaceChildren(...breakable(surprise(answer.neighbors) ?? ""));
  byId("head-note").textContent = headNote(answer);
  byId("support").hidden = answer.neighbors.length === 0;
  if (matchMedia("(max-width: 52rem)").matches) byId("answer").scrollIntoView({ block: "start" });
  announce(`${answer.label}: ${confidencePercent(answer.confidence)} sure. ${title}.`);
}

function showNone(words) {
  shown = null;
  byId("answer-body").replaceChildren(element("p", { class: "empty" }, words));
  byId("classes").hidden = true;
  byId("support").hidden = true;
  setConfidence(null);
}

/** Hides the old answer, which would be taken for the answer to the query that failed. */
export const showFailure = () => showNone("No answer to this query.");

/** Clears a failure that belongs to an earlier state of the gallery. */
export function forgetFailure() {
  if (shown === null) showNone(INVITATION);
}

export function startAnswer() {
  forgetFailure();
  whenMoved(() => {
    if (shown !== null && session.model !== null) judged();
  });
}
