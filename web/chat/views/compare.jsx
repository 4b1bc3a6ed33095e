// Two models, formats or samplings on one prompt, side by side.
import {signal} from "@preact/signals";
import {useState} from "preact/hooks";
import {call} from "../lib/api.js";
import {promptOf, samplingOf, streamAnswer} from "../lib/generate.js";
import {activeMode, model, models, report, settings, system} from "../lib/state.js";
import {classOf, percent, piecesOf, rateOf, visible} from "../lib/tokens.js";
import {Bars} from "./charts.jsx";
import {Examples} from "./examples.jsx";
import {Icon} from "./icons.jsx";
import {Failure} from "./message.jsx";
import {ModelSelect, Sampling} from "./settings.jsx";
import {Legend, TokenText} from "./tokens.jsx";

const emptySide = () => ({text: "", tokens: [], ids: [], busy: false, error: null, rate: null});
const prompt = signal("");
const sides = signal([emptySide(), emptySide()]);
const setups = signal(null);  // [{model, settings}, …]; null until the view was opened
const divergence = signal(null);  // {values, of} or {message}
const colours = signal("difference");
const chosenMode = signal("");  // empty: as the conversation
const modeOf = () => chosenMode.value || activeMode.value;
let controller = null;

/** Character at which two texts begin to differ; null if they are equal. */
const textDifference = (a, b) => {
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) ++at;
  return at === a.length && at === b.length ? null : at;
};
/** Index of the token that holds the character `at`. */
const tokenAt = (side, at) => {
  let end = 0;
  for (const piece of piecesOf(side.text, side.tokens)) {
    end += piece.text.length;
    if (end > at) return piece.index;
  }
  return side.tokens.length;
};

const shortNats = (value) => `${value === 0 || value >= 0.01 ? value.toFixed(3) : value.toExponential(1)} nats`;

const setSide = (index, change) => { sides.value = sides.value.map((one, i) => (i === index ? {...one, ...change} : one)); };

const runSide = async (index, setup, signal_) => {
  const made = {...emptySide(), busy: true};
  setSide(index, made);
  const began = performance.now();
  let first = 0;
  try {
    const path = [{role: "user", text: prompt.value}];
    const start = await promptOf(setup.model, modeOf(), path, system.value, signal_);
    made.ids = start.ids;
    await streamAnswer({model: setup.model, ids: start.ids, sampling: samplingOf(setup.settings), stop: start.stop, signal: signal_}, (text, tokens) => {
      made.text += text;
      made.tokens = made.tokens.concat(tokens);
      const now = performance.now();
      first ||= now;
      made.rate = rateOf({began, first, last: now, tokens: made.tokens.length});
      setSide(index, {...made});
    });
  } catch (error) {
    if (error.kind === "key") report(error);
    if (error.name !== "AbortError") made.error = error;
  }
  setSide(index, {...made, busy: false});
};

/** KL(A || B) at each token of A's answer. */
const measure = async ([a, b], signal_) => {
  const [side] = sides.value;
  if (side.tokens.length === 0 || side.error) return;
  if (a.model === b.model) {
    divergence.value = {message: `Both sides use ${a.model}: its distributions are the same for the same text (KL 0). Only sampling can make the answers differ.`};
    return;
  }
  divergence.value = {message: "Measuring…"};
  try {
    const ids = side.ids.concat(side.tokens.map((token) => token.id));
    const answer = await call("/v1/inspect", {body: {model: a.model, compare_with: b.model, prompt: ids, top: 0}, signal: signal_});
    divergence.value = {values: answer.kl.slice(side.ids.length)};
  } catch (error) {
    if (error.name !== "AbortError") divergence.value = {message: error.message};
  }
};

const run = async () => {
  controller?.abort();
  controller = new AbortController();
  const {signal: signal_} = controller;
  divergence.value = null;
  const both = setups.value;
  // One seed for both, so that equal distributions give equal draws.
  const seed = samplingOf(both[0].settings).seed;
  const seeded = both.map((one) => ({...one, settings: {...one.settings, seed: one.settings.seed === "" ? seed : one.settings.seed}}));
  await Promise.all(seeded.map((setup, index) => runSide(index, setup, signal_)));
  if (!signal_.aborted) await measure(seeded, signal_);
};

const Setup = ({index}) => {
  const setup = setups.value[index];
  const set = (change) => { setups.value = setups.value.map((one, i) => (i === index ? {...one, ...change} : one)); };
  const name = "AB"[index];
  return (
    <details class="setup">
      <summary>Sampling <small>temperature {setup.settings.temperature} · top-p {setup.settings.top_p} · top-k {setup.settings.top_k || "all"} · seed {setup.settings.seed === "" ? "shared" : setup.settings.seed}</small></summary>
      <Sampling name={`side-${name}`} value={setup.settings} onChange={(value) => set({settings: value})} />
      <div class="field"><label for={`seed-${name}`}>Seed</label>
        <input id={`seed-${name}`} type="number" min={0} placeholder="random, the same for both" value={setup.settings.seed}
          onChange={(event) => set({settings: {...setup.settings, seed: event.currentTarget.value}})} /></div>
    </details>
  );
};

const Side = ({index, difference}) => {
  const side = sides.value[index];
  const mark = difference === null ? -1 : tokenAt(side, difference);
  const classes = colours.value === "probability" ? (_, token) => `p${classOf(token.logprob)}`
    : (at) => (mark >= 0 && at >= mark ? "after" : "same");
  const set = (id) => { setups.value = setups.value.map((one, i) => (i === index ? {...one, model: id} : one)); };
  return (
    <section class="card side" aria-label={`Side ${"AB"[index]}`} aria-busy={side.busy}>
      <header><b class="badge">{"AB"[index]}</b><ModelSelect label={`Model ${"AB"[index]}`} value={setups.value[index].model} onChange={set} />
        <span class="spacer" />{side.tokens.length > 0 ? <small>{side.tokens.length} tokens{side.rate ? ` · ${side.rate.toFixed(0)}/s` : ""}</small> : null}</header>
      <Setup index={index} />
      {side.error ? <Failure error={side.error} /> : null}
      {side.text ? <TokenText text={side.text} tokens={side.tokens} mark={mark} live={side.busy} classes={classes} />
        : <p class="hint">{side.busy ? "Waiting for the first token…" : "The answer appears here."}</p>}
    </section>
  );
};

const Verdict = ({difference}) => {
  const [a, b] = sides.value;
  if (a.text === "" && b.text === "") return null;
  const busy = a.busy || b.busy;
  if (difference === null) return <p class="verdict good" role="status"><Icon name="check" size={16} />{busy ? "Identical so far" : `Both answers are identical (${a.tokens.length} tokens)`}</p>;
  const at = tokenAt(a, difference);
  const [one, other] = [a.tokens[at], b.tokens[tokenAt(b, difference)]];
  return (
    <p class="verdict" role="status"><Icon name="branch" size={16} /><span>They begin to differ at token <b>{at + 1}</b>: A
      {one ? <> writes <code>{visible(one.text)}</code> ({percent(one.logprob)})</> : " ends"}, B
      {other ? <> writes <code>{visible(other.text)}</code> ({percent(other.logprob)})</> : " ends"}.</span></p>
  );
};

const Divergence = ({difference}) => {
  const found = divergence.value;
  if (!found) return null;
  if (!found.values) return <p class="hint" role="status">{found.message}</p>;
  const {tokens} = sides.value[0];
  const mean = found.values.reduce((sum, value) => sum + (value ?? 0), 0) / Math.max(1, found.values.length);
  return (
    <section class="card">
      <h3>KL(A ‖ B) per token of A <small>mean {shortNats(mean)}</small></h3>
      <Bars values={found.values} unit="nats" label={`KL divergence at each of ${found.values.length} tokens`} mark={difference === null ? -1 : tokenAt(sides.value[0], difference)}
        title={(index) => `${visible(tokens[index]?.text ?? "")}: ${shortNats(found.values[index] ?? 0)}`} />
      <p class="hint">How many nats B's prediction loses against A's before each token. The marked bar is where the answers part.</p>
    </section>
  );
};

export const CompareView = () => {
  const [, redraw] = useState(0);
  if (!model.value) return null;
  if (!setups.value) {
    const second = models.value.find((one) => one.id !== model.value.id) ?? model.value;
    const other = second === model.value ? {...settings.value, temperature: 0} : settings.value;
    setups.value = [{model: model.value.id, settings: {...settings.value}}, {model: second.id, settings: {...other}}];
  }
  const [a, b] = sides.value;
  const busy = a.busy || b.busy;
  const common = busy ? Math.min(a.text.length, b.text.length) : Infinity;
  const difference = textDifference(a.text.slice(0, common), b.text.slice(0, common));
  const submit = (event) => { event.preventDefault(); if (prompt.value.trim() && !busy) run(); };
  return (
    <div class="view compare-view">
      <header class="view-head"><div><h2>Side by side</h2><p>One prompt, two models, weight formats or samplings: where they part, and by how much.</p></div></header>
      <form class="card ask" onSubmit={submit}>
        <textarea id="compare-prompt" rows={2} aria-label="Prompt for both sides" placeholder="A prompt for both sides" value={prompt.value}
          onInput={(event) => { prompt.value = event.currentTarget.value; redraw((n) => n + 1); }}
          onKeyDown={(event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event); }} />
        <div class="row">
          <div class="segments" role="group" aria-label="Mode">
            {[["chat", "Chat"], ["complete", "Completion"]].map(([value, name]) => (
              <button type="button" key={value} aria-pressed={modeOf() === value} onClick={() => { chosenMode.value = value; }}>{name}</button>
            ))}
          </div>
          <div class="segments" role="group" aria-label="Colours">
            {[["difference", "Difference"], ["probability", "Probability"]].map(([value, name]) => (
              <button type="button" key={value} aria-pressed={colours.value === value} onClick={() => { colours.value = value; }}>{name}</button>
            ))}
          </div>
          <span class="spacer" />
          {busy ? <button type="button" class="primary" onClick={() => controller.abort()}><Icon name="stop" size={15} />Stop</button>
            : <button type="submit" class="primary" disabled={!prompt.value.trim()}><Icon name="play" size={15} />Run both</button>}
        </div>
        {colours.value === "probability" ? <Legend /> : null}
      </form>
      {prompt.value === "" && a.text === "" && b.text === "" ? <Examples mode={modeOf()} field="compare-prompt" onPick={(text) => { prompt.value = text; }} /> : null}
      <Verdict difference={difference} />
      <div class="sides">{[0, 1].map((index) => <Side key={index} index={index} difference={difference} />)}</div>
      <Divergence difference={difference} />
    </div>
  );
};
