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

// Messages for people, in place of those of the service, which are for programs.
const OWN_MESSAGES = {
  not_fitted_yet: "Nothing is fitted yet, so no query can be answered.",
  too_few_items: "A fit needs two items or more. Add some under Gallery first.",
  too_many_requests: "Too many requests.",
};

const BUSY = [429, 503];
const RETRIES = 3;
const LONGEST_WAIT = 10;

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

async function send(path, { method = "GET", json, body, type, signal }) {
  const headers = new Headers({ Accept: "application/json" });
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  if (json !== undefined) headers.set("Content-Type", "application/json");
  else if (type) headers.set("Content-Type", type);
  try {
    return await fetch(path, {
      method,
      headers,
      signal,
      body: json === undefined ? body : JSON.stringify(json),
      credentials: "omit",
    });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new ApiProblem(0, "unreachable", "The service does not respond. Is it still running?");
  }
}

async function problemOf(response) {
  const problem = await response.json().catch(() => ({}));
  const sentence = OWN_MESSAGES[problem.error] ?? problem.message ?? `The service answered with status ${response.status}.`;
  const again = response.headers.get("Retry-After");
  const wait = again && BUSY.includes(response.status) ? ` Try again in ${again} s.` : "";
  return new ApiProblem(response.status, problem.error || "unknown", sentence + wait);
}

/** Requests that change nothing are retried while the service is busy; others are not. */
export async function request(path, options = {}) {
  const { method = "GET", patient = method === "GET", signal } = options;
  for (let attempt = 0; ; attempt += 1) {
    const response = await send(path, options);
    if (response.ok) return response;
    if (response.status === 401) document.dispatchEvent(new CustomEvent("nearsure-token-needed"));
    const seconds = Number(response.headers.get("Retry-After")) || 1;
    const waits = patient && BUSY.includes(response.status) && attempt < RETRIES && seconds <= LONGEST_WAIT;
    if (!waits) throw await problemOf(response);
    // Spread out, so that refused clients do not all retry at once.
    await pause(1000 * seconds * (1 + 0.5 * Math.random()), signal);
  }
}

export async function call(path, options) {
  const response = await request(path, options);
  return response.status === 204 ? null : response.json();
}

/** Asks again while the service is still making the answer (202). */
export async function callUntilMade(path, waiting = () => {}) {
  // Small galleries take no time, so the first wait is short.
  for (let shortest = true; ; shortest = false) {
    const response = await request(path);
    if (response.status !== 202) return response.json();
    waiting();
    const seconds = Number(response.headers.get("Retry-After")) || 1;
    await pause(shortest ? 200 : 1000 * Math.min(5, Math.max(0.3, seconds)));
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

const change = (name) => (id) => call(`/v1/items/${name}`, { method: "POST", json: { ids: [String(id)] } });

export const remove = change("remove");
export const restore = change("restore");
export const unconfirm = change("unconfirm");

export const confirm = (id, label) =>
  call("/v1/items/confirm", { method: "POST", json: { ids: [String(id)], label: String(label) } });
