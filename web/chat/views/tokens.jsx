// Tokens coloured by probability, and the alternatives of one of them.
import {autoUpdate, computePosition, flip, offset, shift} from "@floating-ui/dom";
import {useEffect, useRef, useState} from "preact/hooks";
import {CLASS_NAMES, classOf, percent, piecesOf, splitLead, visible} from "../lib/tokens.js";

export const Legend = () => (
  <div class="legend" role="img" aria-label={`Colours of tokens by probability: ${CLASS_NAMES.join(", ")}`}>
    <span>Probability</span>
    {CLASS_NAMES.map((name, index) => <span key={name} class={`tok p${index}`}>{name}</span>)}
  </div>
);

const shortage = (token) => token.logprob === null ? "chosen by you" : percent(token.logprob);

/** The candidates at one place of an answer; choosing one starts a branch. */
export const Alternatives = ({token, anchor, onPick, onClose}) => {
  const box = useRef(null);
  useEffect(() => {
    const place = () => computePosition(anchor, box.current, {placement: "bottom-start", strategy: "fixed",
      middleware: [offset(6), flip({padding: 8}), shift({padding: 8})]})
      .then(({x, y}) => box.current && Object.assign(box.current.style, {left: `${x}px`, top: `${y}px`}));
    const stop = autoUpdate(anchor, box.current, place);
    box.current.querySelector("button")?.focus({preventScroll: true});
    const outside = (event) => { if (!box.current?.contains(event.target) && !anchor.contains(event.target)) onClose(); };
    document.addEventListener("pointerdown", outside);
    return () => { stop(); document.removeEventListener("pointerdown", outside); };
  }, [anchor, token]);
  const keys = (event) => {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (step) {
      event.preventDefault();
      const buttons = [...box.current.querySelectorAll("button")];
      const next = buttons.indexOf(document.activeElement) + step;
      buttons[(next + buttons.length) % buttons.length]?.focus();
    }
  };
  const listed = token.top.some((one) => one.id === token.id) || token.logprob === null ? token.top : [...token.top, token];
  const most = Math.max(...listed.map((one) => Math.exp(one.logprob)), 1e-9);
  return (
    <div class="popover alternatives" role="dialog" aria-label={`Alternatives to ${visible(token.text)}`} ref={box} onKeyDown={keys}>
      <p><code>{visible(token.text)}</code> <span>{shortage(token)} · token {token.id}</span></p>
      <ul>
        {listed.map((one) => (
          <li key={one.id}>
            <button type="button" class={one.id === token.id ? "chosen" : ""} onClick={() => onPick(one)}
              title={one.id === token.id ? "Continue again from here" : "Continue from here with this one"}>
              <span class="bar" style={{width: `${100 * Math.exp(one.logprob) / most}%`}} />
              <code>{visible(one.text)}</code>
              <span class="value">{percent(one.logprob)}</span>
            </button>
          </li>
        ))}
      </ul>
      {listed.length === 0 ? <p class="hint">No alternatives were recorded for this token.</p>
        : <p class="hint">Pick one to continue from here with it.</p>}
    </div>
  );
};

/**
 * Text as tokens. One of them can be focused; the arrow keys move on, Enter opens it. `mark` is the index of a token to
 * mark (where two answers begin to differ), `picked` one that the reader chose; `classes` replaces the colours of probabilities.
 */
export const TokenText = ({text, tokens, onPick, mark = -1, picked = -1, live = false, classes}) => {
  const [at, setAt] = useState(0);
  const [open, setOpen] = useState(-1);
  const root = useRef(null);
  const pieces = piecesOf(text, tokens);
  const elementOf = (index) => root.current?.querySelector(`[data-index="${index}"]`);
  const move = (step) => {
    const order = pieces.filter((piece) => piece.text !== "").map((piece) => piece.index);
    const next = order[Math.min(order.length - 1, Math.max(0, order.indexOf(at) + step))] ?? 0;
    setAt(next);
    elementOf(next)?.focus();
  };
  const keys = (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[event.key];
    if (event.key === "Escape" && open >= 0) {  // also before the alternatives have taken the focus
      event.stopPropagation();
      setOpen(-1);
      elementOf(open)?.focus();
    } else if (event.target.closest(".alternatives")) {
      return;
    } else if (step) {
      event.preventDefault();
      move(step);
    } else if ((event.key === "Enter" || event.key === " ") && onPick) {
      event.preventDefault();
      setOpen(at);
    }
  };
  const click = (event) => {
    const index = Number(event.target.dataset?.index ?? -1);
    if (index < 0 || !onPick) return;
    setAt(index);
    setOpen(index === open ? -1 : index);
  };
  const classOfPiece = ({token, index}) => {
    const kind = classes ? classes(index, token) : `p${classOf(token.logprob)}`;
    return `tok ${kind}${index === mark ? " differs" : ""}${index === picked ? " picked" : ""}${token.logprob === null && !classes ? " forced" : ""}${index === open ? " open" : ""}`;
  };
  const anchor = open >= 0 ? elementOf(open) : null;
  return (
    <div class="token-text" ref={root} onClick={click} onKeyDown={keys} role="group" aria-label="Tokens; arrow keys move, Enter shows alternatives">
      {pieces.map((piece) => piece.text === "" ? null : [piece.index === 0 ? "" : splitLead(piece.text)[0],
        <span key={piece.index} data-index={piece.index} class={classOfPiece(piece)} role={onPick ? "button" : undefined}
          tabindex={piece.index === at && onPick ? 0 : -1} title={`${visible(piece.token.text)} · ${shortage(piece.token)}`}>{splitLead(piece.text)[1]}</span>,
      ])}
      {live ? <span class="caret" aria-hidden="true" /> : null}
      {anchor ? <Alternatives token={tokens[open]} anchor={anchor} onClose={() => setOpen(-1)}
        onPick={(one) => { const index = open; setOpen(-1); onPick(index, one); }} /> : null}
    </div>
  );
};
