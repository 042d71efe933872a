/**
 * Server: how the page asks its own routes, which lie below the page's address; every refusal becomes an Error with the server's line.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const GONE = "The dashboard does not answer; is it still running?";
  const OTHER_TOKEN = "This vramscope was started anew, with another token: open the URL that it printed.";

  const prefix = () => JSON.parse(document.getElementById("_dash-config").textContent).requests_pathname_prefix;

  function address(path, params) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(params || {})) {
      if (value !== null && value !== undefined && value !== "") query.set(name, value);
    }
    return `${prefix()}${path}${query.size ? `?${query}` : ""}`;
  }

  /** Fetch a route; throws an Error with one line, its `status` and what else the answer holds. An aborted request throws AbortError. */
  async function ask(path, params, options) {
    let response;
    try {
      response = await fetch(address(path, params), options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw Object.assign(new Error(GONE), { status: 0 });
    }
    if (response.ok) return response;
    const told = await response.json().catch(() => ({}));
    const line = response.status === 401 || response.status === 403 ? OTHER_TOKEN : told.error;
    throw Object.assign(new Error(line || `The dashboard answered ${response.status}.`), told, { status: response.status });
  }

  /** Fetch JSON. */
  async function json(path, params, signal) {
    return (await ask(path, params, { signal })).json();
  }

  /** Fetch a binary frame. */
  async function bytes(path, params, signal) {
    return (await ask(path, params, { signal })).arrayBuffer();
  }

  /** Send something and return the JSON answer; `body` is an object, raw bytes, or nothing. */
  async function send(method, path, { params, body, signal } = {}) {
    const raw = body instanceof Blob;
    const headers = { "Content-Type": raw ? "application/octet-stream" : "application/json" };
    const sent = raw || body === undefined ? body : JSON.stringify(body);
    return (await ask(path, params, { method, body: sent, headers: body === undefined ? {} : headers, signal })).json();
  }

  const isAbort = (error) => error.name === "AbortError";

  vramscope.server = { json, bytes, send, isAbort };
})();
