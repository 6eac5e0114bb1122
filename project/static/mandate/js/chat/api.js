// The chat surface's client: a short-lived token, JSON calls, and event streams.

/** A refusal. `code` is stable; `message` is for people. */
export class Problem extends Error {
  constructor({ status = 0, code = "unreachable", detail = "", ...extra } = {}) {
    super(detail);
    this.status = status;
    this.code = code;
    this.extra = extra;
  }

  get requestId() {
    return this.extra.request_id ?? "";
  }
}

const OFFLINE = "The server cannot be reached. Check the connection and try again.";

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // not ours: a proxy between answered
  }
  const detail = body.detail || body.title || `The server answered ${response.status}.`;
  const code = body.code ?? "unexpected_answer";
  return new Problem({ ...body, status: response.status, code, detail });
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ detail: OFFLINE });
  }
}

export class Api {
  #token = null;
  #expires = 0;
  #minting = null;

  /** A token names one environment, and one agent or (without) all of them. */
  constructor({ environment, agent = null }) {
    this.environment = environment;
    this.agent = agent;
  }

  async #mint() {
    const csrf = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
    const response = await send("/apps/v1/tokens", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRFToken": csrf },
      body: JSON.stringify({ environment: this.environment, agent: this.agent }),
    });
    if (!response.ok) throw await problemOf(response);
    const body = await response.json();
    this.#token = body.token;
    this.#expires = Date.parse(body.expires_at);
  }

  async #bearer() {
    if (!this.#token || Date.now() > this.#expires - 30_000) {
      this.#minting ??= this.#mint().finally(() => { this.#minting = null; });
      await this.#minting;
    }
    return `Bearer ${this.#token}`;
  }

  /** The response of one call; a refused token is replaced once. */
  async open(path, { method = "GET", body, signal, accept = "application/json" } = {}) {
    for (let attempt = 0; ; attempt += 1) {
      const headers = { Authorization: await this.#bearer(), Accept: accept };
      if (body !== undefined) headers["Content-Type"] = "application/json";
      const payload = body === undefined ? undefined : JSON.stringify(body);
      const response = await send(path, { method, headers, body: payload, signal, credentials: "omit" });
      if (response.ok) return response;
      if (response.status !== 401 || attempt > 0) throw await problemOf(response);
      this.#token = null;
    }
  }

  async json(path, options) {
    const response = await this.open(path, options);
    return response.status === 204 ? null : response.json();
  }

  stream(path, options) {
    return this.open(path, { ...options, accept: "text/event-stream" });
  }

  threads = (before = null) => this.json(`/apps/v1/threads${before ? `?before=${encodeURIComponent(before)}` : ""}`);
  thread = (id) => this.json(`/apps/v1/threads/${encodeURIComponent(id)}`);
  rename = (id, title) => this.json(`/apps/v1/threads/${encodeURIComponent(id)}`, { method: "PATCH", body: { title } });
  erase = (id) => this.json(`/apps/v1/threads/${encodeURIComponent(id)}`, { method: "DELETE" });
  run = (agent, input, signal) => this.stream(`/apps/v1/agents/${encodeURIComponent(agent)}`, { method: "POST", body: input, signal });
  attach = (thread, run, after, signal) => this.stream(`/apps/v1/threads/${encodeURIComponent(thread)}/runs/${encodeURIComponent(run)}/events?after=${after}`, { signal });
  cancel = (thread, run) => this.json(`/apps/v1/threads/${encodeURIComponent(thread)}/runs/${encodeURIComponent(run)}/cancel`, { method: "POST", body: {} });
}

/** What a run is asked: one new user turn, or decisions, or both. */
export function runInput({ threadId, runId, text, resume }) {
  return {
    protocolVersion: "1.0",
    threadId,
    runId,
    messages: text === undefined ? [] : [{ id: crypto.randomUUID(), role: "user", content: text }],
    tools: [],
    context: [],
    state: {},
    forwardedProps: {},
    ...(resume?.length ? { resume } : {}),
  };
}
