import {useState} from "preact/hooks";
import {activeId, conversations, deleteConversation, openConversation, panel, persistent, rename, startNew} from "../lib/state.js";
import {titleOf} from "../lib/tree.js";
import {Icon, IconButton} from "./icons.jsx";

/** Offers JSON as a file. */
const download = (value, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], {type: "application/json"}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

const ageOf = (time) => {
  const minutes = (Date.now() - time) / 60000;
  if (minutes < 1) return "now";
  if (minutes < 60) return `${Math.floor(minutes)} min`;
  return minutes < 1440 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`;
};

const Entry = ({one}) => {
  const [editing, setEditing] = useState(false);
  const [asking, setAsking] = useState(false);
  const finish = (event) => {
    rename(one.id, event.currentTarget.value);
    setEditing(false);
  };
  if (editing) {
    return <li><input class="rename" aria-label="Name of the conversation" value={titleOf(one)} ref={(input) => input?.focus()} onBlur={finish}
      onKeyDown={(event) => { if (event.key === "Enter") finish(event); if (event.key === "Escape") { event.stopPropagation(); setEditing(false); } }} /></li>;
  }
  if (asking) {
    return <li class="asking"><span>Delete?</span><button type="button" class="danger" onClick={() => deleteConversation(one.id)}>Delete</button>
      <button type="button" onClick={() => setAsking(false)}>Keep</button></li>;
  }
  return (
    <li class={one.id === activeId.value ? "active" : ""}>
      <button type="button" class="open" aria-current={one.id === activeId.value ? "true" : undefined} onClick={() => openConversation(one.id)}>
        <span>{titleOf(one)}</span><small>{one.mode === "complete" ? "completion" : "chat"} · {ageOf(one.updated)}</small>
      </button>
      <span class="actions">
        <IconButton icon="edit" size={15} label="Rename" onClick={() => setEditing(true)} />
        <IconButton icon="download" size={15} label="Export as JSON" onClick={() => download(one, `${titleOf(one).replace(/[^\w-]+/g, "-")}.json`)} />
        <IconButton icon="trash" size={15} label="Delete" onClick={() => setAsking(true)} />
      </span>
    </li>
  );
};

export const Sidebar = () => (
  <nav class="sidebar" aria-label="Conversations">
    <header>
      <button type="button" class="new" onClick={startNew}><Icon name="plus" />New conversation</button>
      <IconButton icon="close" label="Close the list" class="icon-button narrow-only" onClick={() => { panel.value = ""; }} />
    </header>
    {conversations.value.length === 0 ? <p class="hint">Your conversations appear here. They stay in this browser.</p>
      : <ul>{conversations.value.map((one) => <Entry key={one.id} one={one} />)}</ul>}
    {persistent.value ? null : <p class="hint">This browser does not allow storage: conversations are lost when the page closes.</p>}
    {conversations.value.length > 1
      ? <button type="button" class="quiet" onClick={() => download(conversations.value, "lamina-conversations.json")}><Icon name="download" size={15} />Export all</button> : null}
  </nav>
);
