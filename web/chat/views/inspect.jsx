// What the model computes for a text: probability and entropy of each token, attention of each layer and head, norms of the
// residual stream, and the block diagram.
import {signal} from "@preact/signals";
import {useEffect, useRef, useState} from "preact/hooks";
import {call} from "../lib/api.js";
import {inspected, model, report} from "../lib/state.js";
import {CLASS_NAMES, classOf, percent, splitLead, textOfBytes, visible} from "../lib/tokens.js";
import {Bars, HeatMap} from "./charts.jsx";
import {Diagram} from "./diagram.jsx";
import {Examples} from "./examples.jsx";
import {Icon} from "./icons.jsx";
import {Failure} from "./message.jsx";
import {ModelSelect} from "./settings.jsx";
import {Legend} from "./tokens.jsx";

const SHADES = 6;
const LABELLED_TOKENS = 32;  // more names than this do not fit beside a map of attention
const text = signal("");
const chosen = signal("");  // model
const result = signal(null);
const failure = signal(null);
const busy = signal(false);
const layer = signal(0);
const head = signal(0);
const maps = signal([]);  // attention of the chosen layer: [{layer, head, weights}]
const selected = signal(-1);
const colours = signal("probability");
let sent = null;
let controller = null;

const loadLayer = async (index) => {
  layer.value = index;
  controller?.abort();
  controller = new AbortController();
  try {
    const answer = await call("/v1/inspect", {body: {...sent, top: 0, attention: {layers: [index]}}, signal: controller.signal});
    maps.value = answer.attention;
    if (head.value >= answer.attention.length) head.value = 0;
  } catch (error) {
    if (error.name !== "AbortError") failure.value = error;
  }
};

const inspect = async (body) => {
  busy.value = true;
  failure.value = null;
  sent = body;
  maps.value = [];
  try {
    const answer = await call("/v1/inspect", {body: {...body, top: 8, hidden: true}});
    result.value = answer;
    selected.value = Math.floor(0.6 * (answer.tokens.length - 1));
    await loadLayer(Math.min(layer.value, answer.hidden_norms.length - 1));
  } catch (error) {
    if (error.kind === "key") report(error);
    failure.value = error;
  }
  busy.value = false;
};

/** Bytes that are not a character by themselves are shown as such. */
const textOf = (token) => (token.text.startsWith("bytes:") ? textOfBytes(token.bytes) : token.text);

const shadeOf = (index, token) => {
  if (colours.value === "probability") return `p${classOf(token.logprob)}`;
  if (colours.value === "entropy") return token.entropy === null ? "" : `e${Math.min(SHADES - 1, Math.floor(token.entropy))}`;
  const weight = maps.value[head.value]?.weights[selected.value]?.[index];
  if (weight === undefined) return "later";
  return `a${Math.min(SHADES, Math.ceil(SHADES * Math.sqrt(weight) - 0.3))}`;
};

const Strip = ({tokens}) => {
  const root = useRef(null);
  const move = (to) => {
    selected.value = Math.min(tokens.length - 1, Math.max(0, to));
    root.current.querySelector(`[data-index="${selected.value}"]`)?.focus();
  };
  const keys = (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step) { event.preventDefault(); move(selected.value + step); }
    if (event.key === "Home" || event.key === "End") { event.preventDefault(); move(event.key === "Home" ? 0 : tokens.length - 1); }
  };
  return (
    <div class="token-text strip" ref={root} role="listbox" aria-label="Tokens of the text; arrow keys select" onKeyDown={keys}>
      {tokens.map((token, index) => [splitLead(textOf(token))[0],
        <span key={index} role="option" data-index={index} aria-selected={index === selected.value} tabindex={index === selected.value ? 0 : -1}
          class={`tok ${shadeOf(index, token)} ${index === selected.value ? "selected" : ""}`} onClick={() => { selected.value = index; }}
          title={token.logprob === null ? visible(token.text) : `${visible(token.text)}: ${percent(token.logprob)}, entropy ${token.entropy.toFixed(2)} nats`}>{splitLead(textOf(token))[1]}</span>,
      ])}
    </div>
  );
};

const Candidates = ({title, top, taken}) => (
  <div class="candidates">
    <h4>{title}</h4>
    <ul>{top.map((one) => (
      <li key={one.id} class={one.id === taken ? "chosen" : ""}><span class="bar" style={{width: `${100 * Math.exp(one.logprob)}%`}} /><code>{visible(one.text)}</code><span class="value">{percent(one.logprob)}</span></li>
    ))}</ul>
  </div>
);

const TokenCard = ({data}) => {
  const token = data.tokens[selected.value];
  if (!token) return null;
  const weights = maps.value[head.value]?.weights[selected.value] ?? [];
  const most = weights.map((weight, index) => ({weight, index})).sort((a, b) => b.weight - a.weight).slice(0, 5);
  const following = data.tokens[selected.value + 1];
  const next = following ?? {...data.next, logprob: null, id: -1};
  return (
    <section class="card token-card" aria-live="polite">
      <h3><code>{visible(token.text)}</code> <small>token {selected.value + 1} of {data.tokens.length} · id {token.id}{token.logprob === null ? "" : ` · ${percent(token.logprob)} · entropy ${token.entropy.toFixed(2)} nats`}</small></h3>
      <div class="halves">
        <Candidates title="What the model expects after it" top={next.top} taken={next.id} />
        <div class="candidates">
          <h4>What it reads <small>layer {layer.value}, head {head.value}</small></h4>
          <ul>{most.map(({weight, index}) => (
            <li key={index}><span class="bar" style={{width: `${100 * weight}%`}} /><code>{visible(data.tokens[index].text)}</code><span class="value">{weight.toFixed(3)}</span></li>
          ))}</ul>
        </div>
      </div>
    </section>
  );
};

/** The tokens beside a map of attention. The map's own label names them for screen readers. */
const Axis = ({tokens, side}) => (
  <div class={`axis ${side}`} aria-hidden="true">
    {tokens.map((token, index) => <span key={index} class={index === selected.value ? "chosen" : ""}>{visible(token.text)}</span>)}
  </div>
);

const Attention = ({data}) => {
  const [point, setPoint] = useState([-1, -1]);
  const count = data.tokens.length;
  const layers = data.hidden_norms.length;
  const map = maps.value[head.value];
  const [query, key] = point;
  const weight = map?.weights[query]?.[key];
  const nameOf = (index) => visible(data.tokens[index]?.text ?? "");
  return (
    <section class="card attention">
      <h3>Attention <small>layer {layer.value} of {layers}, head {head.value}</small></h3>
      <label class="layer-row">Layer <input type="range" min={0} max={layers - 1} value={layer.value} onInput={(event) => loadLayer(Number(event.currentTarget.value))} /><b>{layer.value}</b></label>
      {maps.value.length === 0 ? <p class="hint">{busy.value ? "Loading…" : "This layer has no attention."}</p> : (
        <div class="attention-parts">
          <div class={`heads ${maps.value.length <= 4 ? "few" : ""}`} role="group" aria-label="Heads">
            {maps.value.map((one, index) => (
              <button type="button" key={one.head} aria-pressed={index === head.value} aria-label={`Head ${one.head}`} onClick={() => { head.value = index; }}>
                <HeatMap rows={one.weights} columns={count} label="" /><span>{one.head}</span>
              </button>
            ))}
          </div>
          <div class="large">
            {map ? (
              <div class={count <= LABELLED_TOKENS ? "labelled" : ""}>
                {count <= LABELLED_TOKENS ? <Axis tokens={data.tokens} side="rows" /> : null}
                <HeatMap rows={map.weights} columns={count} mark={selected.value} onPoint={(row, column) => setPoint([row, column])}
                  onClick={(row) => { selected.value = row; }} label={`Attention of layer ${layer.value}, head ${head.value}: each row is a token, each column what it reads`} />
                {count <= LABELLED_TOKENS ? <Axis tokens={data.tokens} side="columns" /> : null}
              </div>
            ) : null}
            <p class="hint">{weight === undefined ? "Rows read, columns are read. Click a row to select its token." : <><code>{nameOf(query)}</code> reads <code>{nameOf(key)}</code> with weight <b>{weight.toFixed(3)}</b></>}</p>
          </div>
        </div>
      )}
    </section>
  );
};

const Norms = ({data}) => {
  const most = Math.max(...data.hidden_norms.flat(), 1e-9);
  const rows = data.hidden_norms.map((row) => row.map((norm) => norm / most)).reverse();
  return (
    <section class="card">
      <h3>Residual stream <small>Euclidean norm after each layer, up to {most.toFixed(1)}</small></h3>
      <HeatMap rows={rows} columns={data.tokens.length} stretch label={`Norms of the residual stream of ${rows.length} layers and ${data.tokens.length} tokens`} />
      <p class="hint">Tokens from left to right, the last layer on top.</p>
    </section>
  );
};

const Uncertainty = ({data}) => (
  <section class="card">
    <h3>Surprise <small>−log p of each token</small></h3>
    <Bars values={data.tokens.map((token) => (token.logprob === null ? null : -token.logprob))} unit="nats" mark={selected.value} onPick={(index) => { selected.value = index; }}
      label="Surprise of each token" title={(index) => `${visible(data.tokens[index].text)}: ${data.tokens[index].logprob === null ? "first token" : percent(data.tokens[index].logprob)}`} />
    <h3>Entropy <small>of the prediction at each token</small></h3>
    <Bars values={data.tokens.map((token) => token.entropy)} unit="nats" mark={selected.value} onPick={(index) => { selected.value = index; }}
      label="Entropy of each prediction" title={(index) => `${visible(data.tokens[index].text)}: ${data.tokens[index].entropy?.toFixed(2) ?? "first token"}`} />
  </section>
);

const Result = ({data}) => (
  <>
    <section class="card">
      <div class="row">
        <div class="segments" role="group" aria-label="Colours">
          {[["probability", "Probability"], ["entropy", "Entropy"], ["attention", "Attention"]].map(([value, name]) => (
            <button type="button" key={value} aria-pressed={colours.value === value} onClick={() => { colours.value = value; }}>{name}</button>
          ))}
        </div>
        <span class="spacer" /><small>{data.tokens.length} tokens · {data.cache.bytes >= 1e6 ? `${(data.cache.bytes / 1e6).toFixed(1)} MB` : `${Math.round(data.cache.bytes / 1e3)} kB`} of KV cache</small>
      </div>
      {colours.value === "probability" ? <Legend names={CLASS_NAMES} />
        : colours.value === "entropy" ? <div class="legend"><span>Entropy in nats</span>{["< 1", "1–2", "2–3", "3–4", "4–5", "≥ 5"].map((name, index) => <span key={name} class={`tok e${index}`}>{name}</span>)}</div>
          : <p class="hint">Darker tokens are read more by the selected one.</p>}
      <Strip tokens={data.tokens} />
    </section>
    <TokenCard data={data} />
    <Attention data={data} />
    <Uncertainty data={data} />
    <Norms data={data} />
  </>
);

export const InspectView = () => {
  const current = chosen.value || model.value?.id || "";
  useEffect(() => {
    if (!inspected.value) return;
    const {model: id, ids} = inspected.value;
    inspected.value = null;
    chosen.value = id;
    inspect({model: id, prompt: ids});
  }, [inspected.value]);
  const submit = (event) => {
    event.preventDefault();
    if (text.value !== "" && !busy.value) inspect({model: current, prompt: text.value});
  };
  return (
    <div class="view inspect-view">
      <header class="view-head"><div><h2>Inspect</h2><p>Look inside: how likely each token is, what each head reads, how the residual stream grows.</p></div></header>
      <form class="card ask" onSubmit={submit}>
        <textarea id="inspect-text" rows={2} aria-label="Text to inspect" placeholder="A text to inspect, or use the magnifier under an answer" value={text.value}
          onInput={(event) => { text.value = event.currentTarget.value; }}
          onKeyDown={(event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event); }} />
        <div class="row"><ModelSelect value={current} onChange={(id) => { chosen.value = id; }} /><span class="spacer" />
          <button type="submit" class="primary" disabled={text.value === "" || busy.value}><Icon name="inspect" size={15} />{busy.value ? "Computing…" : "Inspect"}</button></div>
      </form>
      {text.value === "" && !result.value && !busy.value ? <Examples mode="complete" field="inspect-text" onPick={(one) => { text.value = one; }} /> : null}
      {failure.value ? <Failure error={failure.value} /> : null}
      {result.value ? <Result data={result.value} /> : null}
      <Diagram model={current} />
    </div>
  );
};
