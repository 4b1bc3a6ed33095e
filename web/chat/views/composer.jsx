import {useEffect, useRef} from "preact/hooks";
import {signal} from "@preact/signals";
import {send} from "../lib/generate.js";
import {activeMode, activePath, isBusy, model, running, setMode, stop} from "../lib/state.js";
import {Icon} from "./icons.jsx";

export const draft = signal("");

/** Tokens of the context that the conversation takes, and the speed of the current or last answer. */
const Meter = () => {
  const node = activePath.value.findLast((one) => one.role === "assistant");
  const live = node && running.value[node.id];
  const context = model.value?.max_model_len ?? 0;
  const used = live ? live.prompt + live.tokens : node ? (node.promptIds?.length ?? 0) + (node.tokens?.length ?? 0) : 0;
  const rate = live ? (live.tokens > 1 ? (live.tokens - 1) * 1000 / (live.last - live.first) : null) : node?.rate;
  const share = context ? Math.min(1, used / context) : 0;
  return (
    <div class="meter-row">
      <div class="meter" role="meter" aria-label="Context used" aria-valuemin={0} aria-valuemax={context} aria-valuenow={used}>
        <span class={share > 0.9 ? "full" : ""} style={{width: `${100 * share}%`}} />
      </div>
      <span class="numbers"><b>{used}</b> / {context} tokens{rate ? <> · <b class="rate">{rate.toFixed(rate < 10 ? 1 : 0)}</b> tokens/s</> : null}</span>
    </div>
  );
};

export const Composer = () => {
  const area = useRef(null);
  const complete = activeMode.value === "complete";
  const resize = () => {
    const element = area.current;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, 0.4 * window.innerHeight)}px`;
  };
  useEffect(resize, [draft.value]);
  useEffect(() => { if (matchMedia("(min-width: 760px)").matches) area.current.focus(); }, []);
  const canContinue = complete && activePath.value.length > 0;
  const ready = () => model.value && !isBusy.value && (draft.value.trim() !== "" || canContinue);
  const submit = () => {
    if (!ready()) return;
    const text = complete ? draft.value : draft.value.trim();
    draft.value = "";
    send(text);
  };
  const keys = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  };
  const stopAnswer = () => activePath.value.forEach((node) => stop(node.id));
  const hint = complete ? (canContinue ? "Add text, or press Enter to continue" : "Begin a text; the model continues it") : "Message the model";
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); submit(); }}>
      <div class="box">
        <textarea id="prompt" ref={area} rows={1} value={draft.value} placeholder={hint} aria-label={hint} enterkeyhint="send"
          onInput={(event) => { draft.value = event.currentTarget.value; }} onKeyDown={keys} />
        <div class="row">
          <div class="segments" role="group" aria-label="Mode">
            {[["chat", "Chat"], ["complete", "Completion"]].map(([value, name]) => (
              <button type="button" key={value} aria-pressed={activeMode.value === value} onClick={() => setMode(value)}>{name}</button>
            ))}
          </div>
          <span class="spacer" />
          {isBusy.value
            ? <button type="button" class="round stop" onClick={stopAnswer} aria-label="Stop" title="Stop (Esc)"><Icon name="stop" /></button>
            : <button type="submit" class="round send" disabled={!ready()} aria-label={canContinue && draft.value === "" ? "Continue" : "Send"} title="Send (Enter)"><Icon name="send" /></button>}
        </div>
      </div>
      <Meter />
    </form>
  );
};
