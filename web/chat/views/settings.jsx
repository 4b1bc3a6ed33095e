import {DEFAULTS, activeMode, model, modelName, models, panel, settings, system} from "../lib/state.js";
import {IconButton} from "./icons.jsx";

const RANGES = [
  {key: "temperature", name: "Temperature", min: 0, max: 2, step: 0.05, help: "0 always takes the likeliest token"},
  {key: "top_p", name: "Top-p", min: 0, max: 1, step: 0.01, help: "Smallest set of tokens with this probability; 1: all"},
  {key: "top_k", name: "Top-k", min: 0, max: 200, step: 1, help: "The k likeliest tokens; 0: all"},
  {key: "min_p", name: "Min-p", min: 0, max: 1, step: 0.01, help: "Least probability, relative to the likeliest token"},
];
const STYLES = [["Greedy", {temperature: 0, top_p: 1, top_k: 0, min_p: 0}], ["Balanced", {temperature: 0.8, top_p: 1, top_k: 0, min_p: 0.05}],
  ["Wild", {temperature: 1.2, top_p: 1, top_k: 0, min_p: 0}]];

/** Temperature, top-p, top-k and min-p as sliders with numbers. `name` makes ids unique when there are two. */
export const Sampling = ({value, onChange, name}) => (
  <>
    {RANGES.map((range) => {
      const id = `${name}-${range.key}`;
      const set = (event) => onChange({...value, [range.key]: event.currentTarget.value === "" ? "" : Number(event.currentTarget.value)});
      return (
        <div class="field range" key={range.key}>
          <label for={id} title={range.help}>{range.name}</label>
          <input type="number" id={id} min={range.min} max={range.max} step={range.step} value={value[range.key]} onChange={set} />
          <input type="range" aria-label={`${range.name}, slider`} min={range.min} max={range.max} step={range.step}
            value={value[range.key]} onInput={set} />
        </div>
      );
    })}
  </>
);

export const ModelSelect = ({value, onChange, label = "Model", id}) => (
  <select id={id} aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
    {models.value.map((one) => <option key={one.id} value={one.id}>{one.id}</option>)}
  </select>
);

const isStyle = (values) => Object.entries(values).every(([key, value]) => Number(settings.value[key]) === value);

export const Settings = () => {
  const set = (change) => { settings.value = {...settings.value, ...change}; };
  return (
    <aside class="settings" aria-label="Settings">
      <header><h2>Settings</h2><IconButton icon="close" label="Close settings" class="icon-button narrow-only" onClick={() => { panel.value = ""; }} /></header>
      <div class="field">
        <label for="model">Model</label>
        <ModelSelect id="model" value={model.value?.id ?? ""} onChange={(id) => { modelName.value = id; }} />
        {model.value?.fingerprint ? <small>fingerprint <code>{model.value.fingerprint.slice(0, 16)}</code></small> : null}
      </div>
      {activeMode.value === "chat" ? (
        <div class="field">
          <label for="system">System prompt</label>
          <textarea id="system" rows={3} value={system.value} placeholder="None" onInput={(event) => { system.value = event.currentTarget.value; }} />
        </div>
      ) : null}
      <div class="segments wide" role="group" aria-label="Sampling style">
        {STYLES.map(([name, values]) => <button type="button" key={name} aria-pressed={isStyle(values)} onClick={() => set(values)}>{name}</button>)}
      </div>
      <Sampling name="main" value={settings.value} onChange={set} />
      <div class="pair">
        <div class="field">
          <label for="max-tokens" title="0: the rest of the context">Max tokens</label>
          <input type="number" id="max-tokens" min={0} step={1} value={settings.value.max_tokens} onChange={(event) => set({max_tokens: event.currentTarget.value})} />
        </div>
        <div class="field">
          <label for="seed">Seed</label>
          <input type="number" id="seed" step={1} min={0} placeholder="random" value={settings.value.seed} onChange={(event) => set({seed: event.currentTarget.value})} />
        </div>
      </div>
      <div class="field">
        <label for="stop">Stop strings</label>
        <textarea id="stop" rows={2} placeholder="One per line; \n is a line break" value={settings.value.stop} onInput={(event) => set({stop: event.currentTarget.value})} />
      </div>
      <button type="button" class="quiet" onClick={() => { settings.value = DEFAULTS; }}>Reset</button>
    </aside>
  );
};
