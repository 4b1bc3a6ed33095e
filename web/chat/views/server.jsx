// A live view of the scheduler: rows, cache pages, queue and speed of each model.
import {useEffect, useState} from "preact/hooks";
import {call} from "../lib/api.js";
import {models, report} from "../lib/state.js";
import {Icon} from "./icons.jsx";
import {Failure} from "./message.jsx";
import {Sparkline} from "./charts.jsx";

const EVERY_MS = 500;
const KEPT = 120;
const BURST_TOKENS = [48, 80, 112, 144];
const BURST_PROMPTS = 5;

const shortNumber = (value) => (value >= 1e6 ? `${(value / 1e6).toFixed(1)} M` : value >= 1e4 ? `${(value / 1e3).toFixed(1)} k` : `${value}`);

/** Speeds between two answers of /v1/scheduler. */
const ratesOf = (before, now, seconds) => ({
  tokens: Math.max(0, now.generated_tokens - before.generated_tokens) / seconds,
  prompt: Math.max(0, now.prompt_tokens - before.prompt_tokens) / seconds,
  waiting: now.waiting,
  running: now.rows.running,
});

const Rows = ({engine}) => {
  const byRow = new Map(engine.running.map((one) => [one.row, one]));
  return (
    <div class="row-grid" role="img" aria-label={`${engine.rows.running} of ${engine.rows.max} rows are in use`}>
      {Array.from({length: engine.rows.max}, (_, row) => {
        const one = byRow.get(row);
        const title = one ? `row ${row}: ${one.state}, ${one.computed} tokens in the cache, ${one.generated} generated` : `row ${row}: free`;
        return <i key={row} class={one ? one.state : "free"} title={title} />;
      })}
    </div>
  );
};

const Pages = ({pages}) => {
  const part = (count) => ({width: `${100 * count / Math.max(1, pages.total)}%`});
  return (
    <>
      <div class="pages" role="img" aria-label={`${pages.used} pages used, ${pages.cached} cached, ${pages.free} free`}>
        <span class="used" style={part(pages.used)} /><span class="cached" style={part(pages.cached)} />
      </div>
      <p class="key"><span><i class="used" />{pages.used} used</span><span><i class="cached" />{pages.cached} cached prefixes</span><span><i class="free" />{pages.free} free</span>
        <span>{pages.total} pages of {pages.tokens_per_page} tokens</span></p>
    </>
  );
};

const Fact = ({name, value, unit}) => <div><dt>{name}</dt><dd>{value}{unit ? <small> {unit}</small> : null}</dd></div>;

const Engine = ({engine, history}) => {
  const now = history.at(-1);
  const last = now?.tokens ?? 0;
  const fastest = Math.max(0, ...history.map((one) => one.tokens));
  return (
    <section class="card engine">
      <h3>{engine.model}</h3>
      <dl class="numbers-row">
        <Fact name="Generating" value={last.toFixed(last < 10 ? 1 : 0)} unit="tokens/s" />
        <Fact name="Prompts" value={(now?.prompt ?? 0).toFixed(0)} unit="tokens/s" />
        <Fact name="Queue" value={engine.waiting} unit="waiting" />
        <Fact name="Mean step" value={engine.steps ? (1000 * engine.step_seconds / engine.steps).toFixed(1) : "–"} unit="ms" />
      </dl>
      <h4>Speed <small>{fastest > 0 ? `last minute, up to ${fastest.toFixed(0)} tokens/s` : "idle"}</small></h4>
      <Sparkline values={history.map((one) => one.tokens)} most={KEPT} label="Generated tokens per second over the last minute" />
      <h4>Rows <small>{engine.rows.running} of {engine.rows.max}</small></h4>
      <Rows engine={engine} />
      <p class="key"><span><i class="decode" />generating</span><span><i class="prompt" />reading its prompt</span><span><i class="free" />free</span></p>
      <h4>KV cache</h4>
      <Pages pages={engine.pages} />
      <dl class="numbers-row small">
        <Fact name="Generated" value={shortNumber(engine.generated_tokens)} unit="tokens" />
        <Fact name="Prompts, computed" value={shortNumber(engine.prompt_tokens)} unit="tokens" />
        <Fact name="Prompts, cached" value={shortNumber(engine.cached_tokens)} unit="tokens" />
        <Fact name="Preempted" value={engine.preemptions} />
      </dl>
    </section>
  );
};

/**
 * Answers of different lengths, to see rows come and go. Few requests with several prompts each: a browser opens six
 * connections to a server, and this view needs one.
 */
const sendBurst = () => Promise.all(BURST_TOKENS.map(async (tokens, index) => {
  const prompt = Array.from({length: BURST_PROMPTS}, (_, repeats) => "Once upon a time ".repeat(1 + 2 * repeats + index));
  const body = {model: models.value[index % models.value.length].id, prompt, max_tokens: tokens, seed: index};
  await call("/v1/completions", {body}).catch(report);
}));

export const ServerView = () => {
  const [bursting, setBursting] = useState(false);
  const burst = async () => {
    setBursting(true);
    await sendBurst();
    setBursting(false);
  };
  const [state, setState] = useState({engines: [], histories: {}, error: null, at: 0});
  useEffect(() => {
    let timer = 0;
    let stopped = false;
    let before = null;
    const histories = {};
    const poll = async () => {
      try {
        if (!document.hidden) {
          const answer = await call("/v1/scheduler");
          const now = {at: performance.now(), engines: Object.fromEntries(answer.models.map((one) => [one.model, one]))};
          for (const engine of answer.models) {
            const earlier = before?.engines[engine.model];
            if (!earlier) continue;
            histories[engine.model] = [...(histories[engine.model] ?? []), ratesOf(earlier, engine, (now.at - before.at) / 1000)].slice(-KEPT);
          }
          before = now;
          if (!stopped) setState({engines: answer.models, histories: {...histories}, error: null, at: now.at});
        }
      } catch (error) {
        if (!stopped) setState((old) => ({...old, error}));
      }
      if (!stopped) timer = setTimeout(poll, EVERY_MS);
    };
    poll();
    return () => { stopped = true; clearTimeout(timer); };
  }, []);
  return (
    <div class="view server-view">
      <header class="view-head">
        <div><h2>Scheduler</h2><p>What the engine computes right now. Each row is one answer; new rows join at every step.</p></div>
        <button type="button" disabled={bursting} onClick={burst}><Icon name="play" size={15} />{bursting ? "Running…" : `Send ${BURST_TOKENS.length * BURST_PROMPTS} prompts`}</button>
      </header>
      {state.error ? <Failure error={state.error} /> : null}
      {state.engines.length === 0 && !state.error ? <p class="hint" role="status">Loading…</p> : null}
      <div class="engines">{state.engines.map((engine) => <Engine key={engine.model} engine={engine} history={state.histories[engine.model] ?? []} />)}</div>
    </div>
  );
};
