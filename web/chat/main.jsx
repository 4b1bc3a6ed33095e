// The page of `lamina serve`. README.md says what is where.
import {render} from "preact";
import "./style/base.css";
import "./style/chat.css";
import "./style/views.css";
import {openShared, regenerate} from "./lib/generate.js";
import {decodeShare} from "./lib/share.js";
import {activePath, dialog, isBusy, loadConversations, loadModels, models, panel, report, saveNow, showProbabilities, showSibling,
  startNew, stopAll, view} from "./lib/state.js";
import {App, VIEWS, toggleSettings} from "./views/app.jsx";

const lastAnswer = () => activePath.value.findLast((node) => node.role === "assistant");
const focusPrompt = () => { view.value = "chat"; setTimeout(() => document.getElementById("prompt")?.focus()); };

const WITH_ALT = {
  KeyN: () => { startNew(); focusPrompt(); },
  KeyP: () => { showProbabilities.value = !showProbabilities.value; },
  KeyR: () => { if (lastAnswer() && !isBusy.value) regenerate(lastAnswer()); },
  KeyS: toggleSettings,
  ArrowLeft: () => { if (lastAnswer()) showSibling(lastAnswer(), -1); },
  ArrowRight: () => { if (lastAnswer()) showSibling(lastAnswer(), 1); },
  ...Object.fromEntries(VIEWS.map(([name], index) => [`Digit${index + 1}`, () => { view.value = name; }])),
};

const isTyping = (target) => target instanceof HTMLElement && (target.matches("input, textarea, select") || target.isContentEditable);

/** On a Mac, Alt and an arrow move by words in a text. */
const movesInText = (event) => /^Mac|^iP/.test(navigator.platform) && event.code.startsWith("Arrow") && isTyping(event.target) && event.target.value !== "";

document.addEventListener("keydown", (event) => {
  if (event.altKey && !event.ctrlKey && !event.metaKey && WITH_ALT[event.code] && !movesInText(event)) {
    event.preventDefault();
    WITH_ALT[event.code]();
  } else if (event.key === "Escape" && !dialog.value) {
    if (panel.value) panel.value = "";
    else stopAll();
  } else if (!event.ctrlKey && !event.metaKey && !isTyping(event.target) && event.key === "?") {
    dialog.value = "help";
  } else if (!event.ctrlKey && !event.metaKey && !isTyping(event.target) && event.key === "/") {
    event.preventDefault();
    focusPrompt();
  }
});
addEventListener("pagehide", saveNow);

const openLink = async () => {
  try {
    const shared = await decodeShare(location.hash);
    if (!shared || models.value.length === 0) return;
    history.replaceState(null, "", location.pathname);
    view.value = "chat";
    await openShared(shared);
  } catch (error) {
    report(error);
  }
};
addEventListener("hashchange", openLink);

render(<App />, document.getElementById("app"));
loadConversations();
// A key may come later: the link is opened once there are models.
let opened = false;
models.subscribe((list) => {
  if (list.length === 0 || opened) return;
  opened = true;
  openLink();
});
loadModels();
