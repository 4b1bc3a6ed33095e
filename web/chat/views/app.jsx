import {activePath, loadModels, model, modelName, notice, panel, problem, setTheme, showProbabilities, showSettings, view} from "../lib/state.js";
import {isDark} from "./charts.jsx";
import {ChatView} from "./chat.jsx";
import {CompareView} from "./compare.jsx";
import {Banner, Dialogs} from "./dialogs.jsx";
import {dialog} from "../lib/state.js";
import {Icon, IconButton, Logo} from "./icons.jsx";
import {InspectView} from "./inspect.jsx";
import {ServerView} from "./server.jsx";
import {ModelSelect, Settings} from "./settings.jsx";
import {Sidebar} from "./sidebar.jsx";

export const VIEWS = [["chat", "Chat", ChatView], ["compare", "Compare", CompareView], ["inspect", "Inspect", InspectView], ["server", "Server", ServerView]];

export const toggleSettings = () => {
  if (matchMedia("(max-width: 1099px)").matches) panel.value = panel.value === "settings" ? "" : "settings";
  else showSettings.value = !showSettings.value;
};

/** Arrow keys move among the tabs, as screen readers announce. */
const moveTab = (event) => {
  const names = VIEWS.map(([name]) => name);
  const place = {ArrowRight: names.indexOf(view.value) + 1, ArrowLeft: names.indexOf(view.value) - 1, Home: 0, End: names.length - 1}[event.key];
  if (place === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  view.value = names[(place + names.length) % names.length];
  document.getElementById(`tab-${view.value}`).focus();
};

const Tabs = () => (
  <div class="tabs" role="tablist" aria-label="Views" onKeyDown={moveTab}>
    {VIEWS.map(([name, title]) => (
      <button type="button" role="tab" key={name} id={`tab-${name}`} tabindex={view.value === name ? 0 : -1} aria-selected={view.value === name}
        aria-controls="main" onClick={() => { view.value = name; }}>
        <Icon name={name} size={16} /><span>{title}</span>
      </button>
    ))}
  </div>
);

const Top = () => (
  <header class="top">
    <IconButton icon="menu" label="Conversations" aria-expanded={panel.value === "list"} class="icon-button list-toggle" onClick={() => { panel.value = panel.value === "list" ? "" : "list"; }} />
    <span class="brand"><Logo size={24} /><b>Lamina</b></span>
    <ModelSelect label="Model" value={model.value?.id ?? ""} onChange={(id) => { modelName.value = id; }} />
    <Tabs />
    <span class="spacer" />
    <button type="button" class="toggle" aria-pressed={showProbabilities.value} title="Colour tokens by probability (Alt P)"
      onClick={() => { showProbabilities.value = !showProbabilities.value; }}><i aria-hidden="true" /><span>Probabilities</span></button>
    <IconButton icon={isDark() ? "sun" : "moon"} label={isDark() ? "Light theme" : "Dark theme"} onClick={() => setTheme(isDark() ? "light" : "dark")} />
    <IconButton icon="help" label="Keyboard shortcuts" onClick={() => { dialog.value = "help"; }} />
    <IconButton icon="settings" label="Settings" aria-expanded={panel.value === "settings" || showSettings.value} class="icon-button" onClick={toggleSettings} />
  </header>
);

export const App = () => {
  const View = VIEWS.find(([name]) => name === view.value)[2];
  const isChat = view.value === "chat";
  const retry = () => { problem.value = null; loadModels(); };
  return (
    <div class={`app ${isChat ? "with-list" : ""} ${isChat && showSettings.value ? "with-settings" : ""} panel-${panel.value || "none"}`}>
      <Top />
      {isChat || panel.value === "list" ? <Sidebar /> : null}
      <main id="main" role="tabpanel" aria-labelledby={`tab-${view.value}`} class={activePath.value.length === 0 && isChat ? "fresh" : ""}>
        <Banner onRetry={retry} />
        <View />
      </main>
      {(isChat && showSettings.value) || panel.value === "settings" ? <Settings /> : null}
      {panel.value ? <div class="shade" onClick={() => { panel.value = ""; }} /> : null}
      <Dialogs />
      <div class={`notice ${notice.value ? "shown" : ""}`} role="status" aria-live="polite">{notice.value}</div>
    </div>
  );
};
