import {memo} from "preact/compat";
import {useEffect, useRef, useState} from "preact/hooks";
import {continueWith, editMessage, regenerate, shareLink} from "../lib/generate.js";
import {active, activeMode, deleteMessage, inspected, running, showProbabilities, showSibling, stop, tell, view} from "../lib/state.js";
import {perplexity, splitLead} from "../lib/tokens.js";
import {placeOf} from "../lib/tree.js";
import {Icon, IconButton} from "./icons.jsx";
import {Markup} from "./markup.jsx";
import {TokenText} from "./tokens.jsx";

/** Copies text and says so; where the clipboard is not allowed (plain HTTP), shows it for copying by hand. */
const copy = async (text, said) => {
  try {
    await navigator.clipboard.writeText(text);
    tell(said);
  } catch {
    window.prompt("Copy this:", text);
  }
};

const Branches = ({node}) => {
  const {siblings, index} = placeOf(active.value, node);
  if (siblings.length < 2) return null;
  return (
    <span class="branches" role="group" aria-label="Branches">
      <IconButton icon="left" size={15} label="Previous branch" disabled={index === 0} onClick={() => showSibling(node, -1)} />
      <span aria-live="polite">{index + 1} / {siblings.length}</span>
      <IconButton icon="right" size={15} label="Next branch" disabled={index + 1 === siblings.length} onClick={() => showSibling(node, 1)} />
    </span>
  );
};

const Editor = ({node, onDone}) => {
  const [text, setText] = useState(node.text);
  const area = useRef(null);
  useEffect(() => { area.current.focus(); area.current.setSelectionRange(text.length, text.length); }, []);
  // Enter may follow a keystroke before the redraw, when `text` is still the old one.
  const submit = () => { const edited = area.current.value; onDone(); editMessage(node, edited); };
  const keys = (event) => {
    if (event.key === "Escape") { event.stopPropagation(); onDone(); }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  };
  return (
    <div class="editor">
      <textarea ref={area} aria-label="Edit the message" rows={Math.min(12, text.split("\n").length + 1)} value={text}
        onInput={(event) => setText(event.currentTarget.value)} onKeyDown={keys} />
      <div class="row">
        <button type="button" onClick={onDone}>Cancel</button>
        <button type="button" class="primary" onClick={submit}>{node.role === "user" ? "Send as a new branch" : "Save as a new branch"}</button>
      </div>
    </div>
  );
};

const HINTS = {
  busy: (error) => `The server is busy. Try again${error.retryAfter ? ` in ${error.retryAfter} s` : ""}.`,
  gone: () => "Start the server again, then retry.",
  model: () => "Choose another model, then retry.",
};

export const Failure = ({error, onRetry}) => (
  <div class="failure" role="alert">
    <p><strong>{error.message}</strong></p>
    {HINTS[error.kind] ? <p>{HINTS[error.kind](error)}</p> : null}
    {onRetry ? <button type="button" onClick={onRetry}><Icon name="retry" size={15} />Retry</button> : null}
  </div>
);

const REASONS = {length: "reached the token limit", stopped: "stopped", stop: ""};

const Facts = ({node}) => {
  const spread = perplexity(node.tokens.slice(node.forced));
  const facts = [
    node.made ? `${node.made} tokens` : "",
    node.rate ? `${node.rate.toFixed(node.rate < 10 ? 1 : 0)} tokens/s` : "",
    node.firstSeconds > 0 ? `first after ${node.firstSeconds < 1 ? `${Math.round(1000 * node.firstSeconds)} ms` : `${node.firstSeconds.toFixed(1)} s`}` : "",
    spread ? `perplexity ${spread.toFixed(spread < 10 ? 2 : 1)}` : "",
    `seed ${node.sampling.seed}`, node.model, REASONS[node.finish] ?? "",
  ].filter(Boolean);
  return <p class="facts">{facts.join(" · ")}</p>;
};

const Tools = ({node, onEdit}) => {
  const share = async () => copy(await shareLink(node), "Share link copied");
  const inspect = () => {
    inspected.value = {model: node.model, ids: node.promptIds.concat(node.tokens.map((token) => token.id)), from: "conversation"};
    view.value = "inspect";
  };
  const isAnswer = node.role === "assistant";
  const done = isAnswer && !node.pending && node.tokens?.length > 0;
  return (
    <div class="tools">
      <Branches node={node} />
      {isAnswer && node.sampling ? <IconButton icon="retry" label="Regenerate" onClick={() => regenerate(node)} /> : null}
      <IconButton icon="edit" label="Edit" onClick={onEdit} />
      <IconButton icon="copy" label="Copy" onClick={() => copy(node.text, "Copied")} />
      {done ? <IconButton icon="share" label="Copy share link" onClick={share} /> : null}
      {done && node.promptIds ? <IconButton icon="inspect" label="Inspect tokens and attention" onClick={inspect} /> : null}
      <IconButton icon="trash" label="Delete from here" onClick={() => deleteMessage(node)} />
    </div>
  );
};

const Answer = ({node, live}) => {
  const coloured = showProbabilities.value && node.tokens?.length > 0;
  if (node.text === "" && live) return <div class="waiting" role="status"><i /><i /><i /><span class="hidden">Waiting for the first token</span></div>;
  if (coloured) {
    return <TokenText text={node.text} tokens={node.tokens} live={live} picked={node.forced - 1} onPick={live ? null : (index, one) => continueWith(node, index, one)} />;
  }
  if (activeMode.value === "complete") return <div class="plain-text">{splitLead(node.text)[1]}{live ? <span class="caret" aria-hidden="true" /> : null}</div>;
  return <div class={`markup ${live ? "live" : ""}`}><Markup text={node.text.trimStart()} /></div>;
};

export const Message = memo(({node}) => {
  const [editing, setEditing] = useState(false);
  const live = Boolean(running.value[node.id]);
  const isUser = node.role === "user";
  return (
    <article class={`message ${node.role}`} aria-label={isUser ? "You" : `Answer of ${node.model ?? "the model"}`} aria-busy={live}>
      {node.shared ? <p class={`verdict ${node.shared.good ? "good" : "bad"}`} role="status"><Icon name={node.shared.good ? "check" : "help"} size={16} />{node.shared.text}</p> : null}
      {editing ? <Editor node={node} onDone={() => setEditing(false)} />
        : <div class="body">{isUser ? <div class="plain-text">{node.text}</div> : <Answer node={node} live={live} />}</div>}
      {node.error ? <Failure error={node.error} onRetry={() => regenerate(node)} /> : null}
      {!isUser && !live && node.sampling && node.tokens.length > 0 ? <Facts node={node} /> : null}
      {live ? <button type="button" class="stop-here" onClick={() => stop(node.id)}><Icon name="stop" size={14} />Stop</button> : editing ? null : <Tools node={node} onEdit={() => setEditing(true)} />}
    </article>
  );
});
