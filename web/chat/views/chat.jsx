import {useEffect, useRef} from "preact/hooks";
import {active, activeMode, activePath, loading, model, showProbabilities} from "../lib/state.js";
import {Composer, draft} from "./composer.jsx";
import {Examples} from "./examples.jsx";
import {Logo} from "./icons.jsx";
import {Message} from "./message.jsx";
import {Legend} from "./tokens.jsx";

const Empty = () => {
  if (!model.value) return <div class="empty"><Logo size={56} /><p role="status">{loading.value ? "Connecting…" : "No model."}</p></div>;
  return (
    <div class="empty">
      <Logo size={56} />
      <h1>{model.value.id}</h1>
      <p>{activeMode.value === "chat" ? "Ask it something." : "Begin a text; the model continues it."} Turn on <b>Probabilities</b> to see every choice it makes.</p>
      <Examples mode={activeMode.value} field="prompt" onPick={(text) => { draft.value = text; }} />
    </div>
  );
};

export const ChatView = () => {
  const scroller = useRef(null);
  const follow = useRef(true);
  const path = activePath.value;
  useEffect(() => { follow.current = true; }, [active.value?.id, path.length]);
  useEffect(() => {
    if (follow.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [path, showProbabilities.value]);
  const scrolled = (event) => {
    const {scrollTop, scrollHeight, clientHeight} = event.currentTarget;
    follow.current = scrollHeight - scrollTop - clientHeight < 60;
  };
  return (
    <div class="chat-view">
      <div class="scroller" ref={scroller} onScroll={scrolled} tabindex="-1">
        {path.length === 0 ? <Empty /> : (
          <div class={`messages ${activeMode.value}`} role="log" aria-label="Conversation">
            {path.map((node) => <Message key={node.id} node={node} />)}
          </div>
        )}
      </div>
      <div class="bottom">
        {showProbabilities.value && path.length > 0 ? <Legend /> : null}
        <Composer />
      </div>
    </div>
  );
};
