import {useEffect, useRef, useState} from "preact/hooks";
import {dialog, problem, useKey} from "../lib/state.js";
import {apiKey} from "../lib/api.js";
import {Icon, IconButton} from "./icons.jsx";

/** A modal dialog while `name` is the open one; Escape closes it. */
const Dialog = ({name, title, children}) => {
  const element = useRef(null);
  const open = dialog.value === name;
  useEffect(() => {
    if (open && !element.current.open) element.current.showModal();
    if (!open && element.current.open) element.current.close();
  }, [open]);
  const close = () => { if (dialog.value === name) dialog.value = ""; };
  const click = (event) => { if (event.target === element.current) close(); };
  return (
    <dialog ref={element} onClose={close} onClick={click} aria-label={title}>
      {open ? <div class="dialog"><header><h2>{title}</h2><IconButton icon="close" label="Close" onClick={close} /></header>{children}</div> : null}
    </dialog>
  );
};

export const SHORTCUTS = [
  ["Enter", "Send; continue the text in completion mode"],
  ["Shift Enter", "New line"],
  ["Esc", "Stop the answer; close what is open"],
  ["/", "Go to the prompt"],
  ["Alt N", "New conversation"],
  ["Alt P", "Colour tokens by probability"],
  ["Alt R", "Regenerate the last answer"],
  ["Alt ← →", "Previous or next branch of the last answer"],
  ["Alt 1 … 4", "Chat, Compare, Inspect, Server"],
  ["Alt S", "Settings"],
  ["← → Enter", "Among coloured tokens: move, show alternatives"],
  ["?", "This help"],
];

const Help = () => (
  <Dialog name="help" title="Keyboard shortcuts">
    <dl class="shortcuts">
      {SHORTCUTS.map(([keys, what]) => <div key={keys}><dt>{keys.split(" ").map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{what}</dd></div>)}
    </dl>
    <p class="hint">Conversations stay in this browser. A share link holds the prompt, the settings and the seed in the address itself; opening it generates the answer again and compares it token by token.</p>
  </Dialog>
);

const KeyDialog = () => {
  const [key, setKey] = useState(apiKey.get());
  const [failed, setFailed] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    await useKey(key);
    setFailed(problem.value?.kind === "key" ? problem.value.message : "");
  };
  return (
    <Dialog name="key" title="API key">
      <form onSubmit={submit}>
        <p class="hint">This server needs an API key. It is kept until this tab closes.</p>
        <div class="field"><label for="api-key">Key</label>
          <input id="api-key" type="password" autocomplete="off" value={key} onInput={(event) => setKey(event.currentTarget.value)} ref={(input) => { if (input && !key) input.focus(); }} /></div>
        {failed ? <p class="failure" role="alert">{failed}</p> : null}
        <div class="row"><span class="spacer" /><button type="submit" class="primary" disabled={key.trim() === ""}>Use this key</button></div>
      </form>
    </Dialog>
  );
};

const TITLES = {key: "An API key is needed", gone: "The server is gone", busy: "The server is busy", model: "Not found", page: "Something went wrong"};

export const Banner = ({onRetry}) => {
  const shown = problem.value;
  if (!shown) return null;
  return (
    <div class="banner" role="alert">
      <p><strong>{TITLES[shown.kind] ?? "The request failed"}.</strong> {shown.message}{shown.retryAfter ? ` Try again in ${shown.retryAfter} s.` : ""}</p>
      {shown.kind === "key" ? <button type="button" onClick={() => { dialog.value = "key"; }}>Enter key</button>
        : <button type="button" onClick={onRetry}><Icon name="retry" size={15} />Try again</button>}
      <IconButton icon="close" label="Dismiss" onClick={() => { problem.value = null; }} />
    </div>
  );
};

export const Dialogs = () => <><Help /><KeyDialog /></>;
