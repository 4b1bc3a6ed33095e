// Calls of the server's API. Every failure becomes a Problem, which the views can explain.
import {readEvents} from "./sse.js";

const KEY = "lamina-api-key";

/** `kind`: key, busy, gone, model, request, server. */
export class Problem extends Error {
  constructor(kind, message, more = {}) {
    super(message);
    Object.assign(this, {kind, ...more});
  }
}

export const apiKey = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY)),
};

const kindOf = (status) => {
  if (status === 401) return "key";
  if (status === 429 || status === 503) return "busy";
  if (status === 404) return "model";
  return status >= 500 ? "server" : "request";
};

const problemOf = async (response) => {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch { /* not JSON: a proxy answered */ }
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  return new Problem(kindOf(response.status), error.message ?? `the server answered ${response.status}`,
    {status: response.status, param: error.param, code: error.code, retryAfter});
};

const request = async (path, {body, signal} = {}) => {
  const headers = {};
  if (apiKey.get()) headers.Authorization = `Bearer ${apiKey.get()}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body)});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("gone", "the server does not answer; is `lamina serve` still running?");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
};

/** @returns {Promise<any>} the JSON of a GET, or of a POST if there is a body */
export const call = async (path, options) => (await request(path, options)).json();

/** Events of a streamed POST. Aborting `signal` cancels the answer on the server. */
export async function* streamOf(path, body, signal) {
  const response = await request(path, {body: {...body, stream: true, stream_options: {include_usage: true}}, signal});
  try {
    for await (const event of readEvents(response.body)) {
      if (event.error) throw new Problem("server", event.error.message ?? "the answer failed");
      yield event;
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Problem) throw error;
    throw new Problem("gone", "the connection broke before the answer was complete");
  }
}
