// The gallery as a map, its confused classes and every class, drawn by the script of the report.

import { call } from "./api.js";
import { attempt, byId } from "./elements.js";
import { picture } from "./pictures.js";
import { emit, loadReport, on, session } from "./session.js";

const SECTIONS = ["map", "confusion", "classes"];

let drawn = null;
let asked = null;
// The last answer, which can be shown on the map: the query as it was sent, and its neighbours.
let last = null;

function note(words, again = false) {
  byId("overview-note").textContent = words;
  byId("overview-again").hidden = !again;
}

/** Called when the tab opens, too: charts need a visible place. */
export function drawOverview() {
  if (session.report === null || drawn === session.report || byId("panel-gallery").hidden) return;
  drawn = session.report;
  window.nearsureReport.render(byId("overview"), session.report, {
    live: true, sections: SECTIONS, asked, onAsk: (item) => emit("ask-item", item), pictureOf: (id) => picture(id),
  });
  note("");
}

/** Places the last query and its neighbours on the map. */
async function showOnMap() {
  const { query, answer } = last;
  const points = [query, ...answer.neighbors.map((neighbor) => ({ item: String(neighbor.id) }))];
  const { places: [own, ...neighbors] } = await call("/v1/map/places", { method: "POST", json: { points }, patient: true });
  asked = { words: `the query, taken for ${answer.label}`, ...own, neighbors };
  drawn = null;
  emit("open-map");
  byId("overview").querySelector(".part-map")?.scrollIntoView({ block: "start" });
}

export function startOverview() {
  byId("show-on-map").addEventListener("click", (event) => attempt(showOnMap, event.currentTarget));
  byId("overview-again").addEventListener("click", () => loadReport());
  on("answered", (answered) => {
    last = answered;
  });
  on("report", drawOverview);
  on("report-waiting", () => note(drawn === null ? "The map is being made…" : "The map is being updated…"));
  on("report-failed", (problem) => {
    if (problem.code === "not_fitted_yet") note("A map is made as soon as the gallery is fitted.");
    else note(problem.message, true);
  });
  on("gallery", () => {
    if (drawn !== null) note("The gallery has changed since this map was made.", true);
  });
}
