// The state of the page, as signals. Views read it; the functions here and in generate.js change it.
import {batch, computed, effect, signal} from "@preact/signals";
import {Problem, apiKey, call} from "./api.js";
import {loadAll, remember, remembered, remove, save} from "./store.js";
import {newConversation, pathOf, withSibling, without} from "./tree.js";

export const DEFAULTS = {temperature: 0.8, top_k: 0, top_p: 1, min_p: 0.05, seed: "", max_tokens: 256, stop: ""};

const kept = (name, otherwise) => {
  const value = signal(remembered(name, otherwise));
  effect(() => remember(name, value.value));
  return value;
};

export const models = signal([]);
export const loading = signal(true);
export const problem = signal(null);  // shown as a banner
export const notice = signal("");     // read out and shown for a few seconds
export const view = signal("chat");   // chat, compare, inspect, server
export const panel = signal("");      // narrow screens: "list", "settings" or none
export const dialog = signal("");     // "help", "key" or none
export const persistent = signal(true);

export const settings = kept("settings", DEFAULTS);
export const system = kept("system", "");
export const modelName = kept("model", "");
export const mode = kept("mode", "");  // chat or complete; empty: what suits the model
export const showProbabilities = kept("probabilities", false);
export const theme = kept("theme", "");  // light, dark, or as the system
export const showSettings = kept("show-settings", true);

export const conversations = signal([]);
export const activeId = signal("");
export const running = signal({});  // by message: {controller, began, first, tokens}
export const inspected = signal(null);  // what the inspect view shows: {model, prompt} and how it was chosen

export const model = computed(() => models.value.find((one) => one.id === modelName.value) ?? models.value[0] ?? null);
export const active = computed(() => conversations.value.find((one) => one.id === activeId.value) ?? null);
export const activePath = computed(() => (active.value ? pathOf(active.value) : []));
export const activeMode = computed(() => active.value?.mode || mode.value || (model.value?.chat_template === false ? "complete" : "chat"));
export const isBusy = computed(() => activePath.value.some((node) => running.value[node.id]));

let noticeTimer = 0;
export const tell = (text) => {
  notice.value = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { notice.value = ""; }, 4000);
};

/** Shows a failure that belongs to no message. */
export const report = (error) => {
  if (error.name === "AbortError") return;
  if (error.kind === "key") dialog.value = "key";
  problem.value = error instanceof Problem ? error : new Problem("page", String(error.message ?? error));
};

export const loadModels = async () => {
  loading.value = true;
  try {
    const answer = await call("/v1/models");
    batch(() => {
      models.value = answer.data;
      if (["gone", "key"].includes(problem.value?.kind)) problem.value = null;
      if (dialog.value === "key") dialog.value = "";
    });
  } catch (error) {
    report(error);
  }
  loading.value = false;
};

export const useKey = (key) => {
  apiKey.set(key.trim());
  return loadModels();
};

// ---- conversations

export const loadConversations = async () => {
  const loaded = await loadAll();
  const still = loaded.list.map((one) => ({...one}));
  batch(() => {
    conversations.value = [...conversations.value, ...still];
    persistent.value = loaded.persistent;
  });
};

const timers = new Map();
const saveSoon = (conversation) => {
  clearTimeout(timers.get(conversation.id));
  timers.set(conversation.id, setTimeout(() => {
    timers.delete(conversation.id);
    const latest = conversations.value.find((one) => one.id === conversation.id);
    if (latest) save(latest);
  }, 300));
};
/** Saves what is still waiting, before the page closes. */
export const saveNow = () => {
  for (const [id, timer] of timers) {
    clearTimeout(timer);
    const latest = conversations.value.find((one) => one.id === id);
    if (latest) save(latest);
  }
  timers.clear();
};

/** Replaces a conversation by what `change` makes of it. */
export const update = (id, change) => {
  let changed = null;
  conversations.value = conversations.value.map((one) => (one.id === id ? (changed = change(one)) : one));
  if (changed) saveSoon(changed);
};

/** The open conversation; a new one if there is none. */
export const ensureActive = () => {
  if (active.value) return active.value;
  const made = newConversation(activeMode.value);
  batch(() => {
    conversations.value = [made, ...conversations.value];
    activeId.value = made.id;
  });
  return made;
};

export const startNew = () => batch(() => {
  activeId.value = "";
  view.value = "chat";
  panel.value = "";
});

export const openConversation = (id) => batch(() => {
  activeId.value = id;
  view.value = "chat";
  panel.value = "";
});

export const rename = (id, title) => update(id, (one) => ({...one, title: title.trim()}));

export const deleteConversation = (id) => {
  for (const node of Object.keys(conversations.value.find((one) => one.id === id)?.nodes ?? {})) stop(node);
  conversations.value = conversations.value.filter((one) => one.id !== id);
  if (activeId.value === id) activeId.value = "";
  remove(id);
};

export const showSibling = (node, step) => update(activeId.value, (one) => withSibling(one, node, step));
export const deleteMessage = (node) => {
  stop(node.id);
  update(activeId.value, (one) => without(one, node.id));
};

/** Cancels an answer; the server stops computing it. */
export const stop = (id) => running.value[id]?.controller.abort();
export const stopAll = () => Object.keys(running.value).forEach(stop);

export const setMode = (value) => {
  mode.value = value;
  if (active.value && activePath.value.length > 0) startNew();
  else if (active.value) update(activeId.value, (one) => ({...one, mode: value}));
};

export const setTheme = (value) => {
  theme.value = value;
};
effect(() => {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
});
