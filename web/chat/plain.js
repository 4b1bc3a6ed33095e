// The page of a server that was built without npm: a form that completes a text. Needs no bundling.
"use strict";
(() => {
  const make = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const models = make("select", {"aria-label": "Model"});
  const prompt = make("textarea", {rows: "5", "aria-label": "Prompt", placeholder: "Begin a text; the model continues it", required: ""});
  const count = make("input", {type: "number", min: "1", value: "128", "aria-label": "Max tokens", size: "6"});
  const key = make("input", {type: "password", placeholder: "API key, if one is needed", "aria-label": "API key", autocomplete: "off"});
  const send = make("button", {type: "submit"}, "Continue");
  const stop = make("button", {type: "button", disabled: ""}, "Stop");
  const answer = make("pre", {"aria-live": "polite", "aria-label": "Answer"});
  const form = make("form", {}, prompt, make("div", {class: "row"}, models, make("label", {}, "Tokens ", count), key, send, stop), answer);
  document.getElementById("app").append(
    make("h1", {}, "Lamina"),
    make("p", {class: "note"}, "This server was built without npm, so this is a plain form. To get the full page (chat, token " +
      "probabilities, attention, side by side) install npm, build again and restart the server."), form);

  const headers = () => (key.value ? {Authorization: `Bearer ${key.value}`} : {});
  const loadModels = async () => {
    try {
      const list = await (await fetch("/v1/models", {headers: headers()})).json();
      if (list.error) throw new Error(list.error.message);
      models.replaceChildren(...list.data.map((one) => make("option", {value: one.id}, one.id)));
      answer.textContent = "";
    } catch (error) {
      answer.textContent = `The models cannot be listed: ${error.message}`;
    }
  };
  key.addEventListener("change", loadModels);

  let controller = null;
  stop.addEventListener("click", () => controller?.abort());
  // Events may be cut anywhere; a complete one ends with an empty line.
  const read = async (response) => {
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, {stream: true})).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        if (!part.startsWith("data: ") || part === "data: [DONE]") continue;
        const event = JSON.parse(part.slice(6));
        if (event.error) throw new Error(event.error.message);
        answer.append(event.choices[0]?.text ?? "");
      }
    }
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    controller = new AbortController();
    send.disabled = true;
    stop.disabled = false;
    answer.textContent = prompt.value;
    try {
      const body = JSON.stringify({model: models.value, prompt: prompt.value, max_tokens: Number(count.value), stream: true});
      const response = await fetch("/v1/completions", {method: "POST", headers: headers(), body, signal: controller.signal});
      if (!response.ok) throw new Error((await response.json()).error.message);
      await read(response);
    } catch (error) {
      if (error.name !== "AbortError") answer.textContent = `Failed: ${error.message}`;
    }
    send.disabled = false;
    stop.disabled = true;
  });
  loadModels();
})();
