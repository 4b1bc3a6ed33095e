// A proxy between the browser and `lamina serve` that can slow streams down and answer in the server's place.
import http from "node:http";

/**
 * @param {URL} target
 * @returns {Promise<{address: string, set: (rules: object) => void, seen: object[], close: () => Promise<void>}>}
 * rules: `delay` (milliseconds before each event of a stream), `answer(request)` (a {status, headers, body}, or null to pass
 * the request on).
 */
export const startProxy = async (target) => {
  let rules = {};
  const seen = [];
  // A random model may end its answer at once, and then there is nothing to look at.
  const endless = (body) => Buffer.from(JSON.stringify({...body, ignore_eos: true}));
  const pass = (request, response, body) => {
    const {delay} = rules;
    const headers = {...request.headers, ...(body.length > 0 ? {"content-length": body.length} : {})};
    const upstream = http.request({host: target.hostname, port: target.port, method: request.method, path: request.url, headers}, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      if (!delay || !String(answer.headers["content-type"]).startsWith("text/event-stream")) return answer.pipe(response);
      let waiting = Promise.resolve();
      let rest = "";
      answer.setEncoding("utf8");
      answer.on("data", (piece) => {
        const parts = (rest + piece).split("\n\n");
        rest = parts.pop();
        for (const part of parts) waiting = waiting.then(() => new Promise((done) => { response.write(`${part}\n\n`); setTimeout(done, delay); }));
      });
      answer.on("end", () => waiting.then(() => response.end(rest)));
      return undefined;
    });
    upstream.on("error", () => response.destroy());
    response.on("close", () => upstream.destroy());
    upstream.end(body);
  };
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      const body = Buffer.concat(parts);
      const known = {path: request.url, headers: request.headers, body: body.length > 0 ? JSON.parse(body) : null};
      seen.push(known);
      const own = rules.answer?.(known);
      if (!own) return pass(request, response, known.path === "/v1/completions" ? endless(known.body) : body);
      response.writeHead(own.status, own.headers);
      return response.end(own.body);
    });
  });
  await new Promise((ready) => { server.listen(0, "127.0.0.1", ready); });
  return {
    address: `http://127.0.0.1:${server.address().port}`,
    set: (next) => { rules = next; },
    seen,
    close: () => new Promise((closed) => { server.close(closed); server.closeAllConnections(); }),
  };
};
