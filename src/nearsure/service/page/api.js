// The REST API: the token, JSON in and out, and every failure as a sentence.

const TOKEN = "nearsure-token";

export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);
export const forgetToken = () => sessionStorage.removeItem(TOKEN);
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

export class ApiProblem extends Error {
  constructor(status, code, sentence) {
    super(sentence);
    this.name = "ApiProblem";
    this.status = status;
    this.code = code;
  }
}

export async function request(path, { method = "GET", json, body, type, signal } = {}) {
  const headers = new Headers({ Accept: "application/json" });
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  if (json !== undefined) headers.set("Content-Type", "application/json");
  else if (type) headers.set("Content-Type", type);
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      signal,
      body: json === undefined ? body : JSON.stringify(json),
      credentials: "omit",
    });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new ApiProblem(0, "unreachable", "The service does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  const sentence = told.message || `The service answered with status ${response.status}.`;
  const again = response.headers.get("Retry-After");
  const wait = again && [429, 503].includes(response.status) ? ` Try again in ${again} s.` : "";
  if (response.status === 401) document.dispatchEvent(new CustomEvent("nearsure-token-wanted"));
  throw new ApiProblem(response.status, told.error || "unknown", sentence + wait);
}

export async function call(path, options) {
  const response = await request(path, options);
  return response.status === 204 ? null : response.json();
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Asks again while the service is still making the answer (202). */
export async function callUntilMade(path, waiting = () => {}) {
  for (;;) {
    const response = await request(path);
    if (response.status !== 202) return response.json();
    waiting();
    const seconds = Number(response.headers.get("Retry-After")) || 1;
    await pause(1000 * Math.min(5, Math.max(0.3, seconds)));
  }
}

/** Starts a fit and waits for its end. */
export async function refit() {
  let state = await call("/v1/refit", { method: "POST" });
  while (state.state === "running") {
    await pause(500);
    state = await call("/v1/refit");
  }
  if (state.state === "failed") {
    throw new ApiProblem(409, "refit", state.message || "The fit failed; the one before still answers.");
  }
  return state;
}

export const itemAddress = (id) => `/v1/items/${encodeURIComponent(id)}`;

export const relabel = (id, label) =>
  call("/v1/items/relabel", { method: "POST", json: { ids: [String(id)], label: String(label) } });

export const remove = (id) => call("/v1/items/remove", { method: "POST", json: { ids: [String(id)] } });
