// Makes answers. Prompts are sent as token ids, so an answer can be continued from any of its tokens and repeated exactly.
import {batch} from "@preact/signals";
import {call, Problem, streamOf} from "./api.js";
import {encodeShare} from "./share.js";
import {active, activeId, activeMode, conversations, ensureActive, model, models, report, running, settings, showProbabilities,
  system, tell, update} from "./state.js";
import {digestOf, rateOf, textOfBytes} from "./tokens.js";
import {newConversation, newId, pathOf, pathTo, withChange, withNode} from "./tree.js";

const ALTERNATIVES = 8;
const REDRAW_MS = 40;

const randomSeed = () => Math.floor(Math.random() * 2 ** 31);
const numberOr = (value, otherwise) => (value === "" || value === null || Number.isNaN(Number(value)) ? otherwise : Number(value));

/** Settings as the API takes them, with a seed. */
export const samplingOf = (chosen) => ({
  temperature: numberOr(chosen.temperature, 1),
  top_k: Math.round(numberOr(chosen.top_k, 0)),
  top_p: numberOr(chosen.top_p, 1),
  min_p: numberOr(chosen.min_p, 0),
  seed: chosen.seed === "" || chosen.seed === undefined ? randomSeed() : Math.round(numberOr(chosen.seed, 0)),
  max_tokens: Math.round(numberOr(chosen.max_tokens, 0)),
  stop: String(chosen.stop ?? "").split("\n").map((one) => one.replace(/\\n/g, "\n")).filter((one) => one !== ""),
});

const tokenOf = (entry) => ({
  id: entry.token_id, text: entry.token, bytes: entry.bytes, logprob: entry.logprob,
  top: (entry.top_logprobs ?? []).map((one) => ({id: one.token_id, text: one.token, bytes: one.bytes, logprob: one.logprob})),
});

/** The prompt's ids, and stop strings of the chat template. */
export const promptOf = async (modelId, kind, path, systemText, signal) => {
  if (kind === "chat") {
    const messages = path.map((node) => ({role: node.role, content: node.text}));
    if (systemText.trim()) messages.unshift({role: "system", content: systemText});
    const answer = await call("/tokenize", {body: {model: modelId, messages}, signal});
    return {ids: answer.tokens, stop: answer.stop ?? []};
  }
  let ids = [];
  for (const [index, node] of path.entries()) {
    if (node.role === "assistant" && node.model === modelId && node.tokens?.length) {
      ids = ids.concat(node.tokens.map((token) => token.id));
    } else if (node.text !== "") {
      const answer = await call("/tokenize", {body: {model: modelId, prompt: node.text, add_special_tokens: index === 0}, signal});
      ids = ids.concat(answer.tokens);
    }
  }
  return {ids, stop: []};
};

/**
 * Streams one answer. `onTokens(text, tokens, usage, finish)` gets what is new.
 * @param {{model: string, ids: number[], sampling: object, stop: string[], signal: AbortSignal}} options
 */
export const streamAnswer = async ({model: modelId, ids, sampling, stop, signal}, onTokens) => {
  const context = models.value.find((one) => one.id === modelId)?.max_model_len ?? 0;
  const room = Math.max(1, context - ids.length);
  const body = {...sampling, model: modelId, prompt: ids, logprobs: ALTERNATIVES, return_token_ids: true,
    max_tokens: sampling.max_tokens > 0 ? Math.min(sampling.max_tokens, room) : room,
    stop: [...sampling.stop, ...stop].slice(0, 16)};
  if (body.stop.length === 0) delete body.stop;
  for await (const event of streamOf("/v1/completions", body, signal)) {
    const choice = event.choices[0];
    onTokens(choice?.text ?? "", (choice?.logprobs?.content ?? []).map(tokenOf), event.usage ?? null, choice?.finish_reason ?? null);
  }
};

const setRunning = (id, value) => {
  const {[id]: _, ...others} = running.value;
  running.value = value ? {...others, [id]: value} : others;
};

/** Fills an assistant message that is already in the conversation. */
const fill = async (conversationId, id) => {
  const conversation = conversations.value.find((one) => one.id === conversationId);
  const node = conversation.nodes[id];
  const controller = new AbortController();
  const live = {controller, began: performance.now(), first: 0, last: 0, tokens: 0, prompt: 0};
  const made = {text: node.text, tokens: node.tokens};
  let timer = 0;
  const flush = () => {
    clearTimeout(timer);
    timer = 0;
    batch(() => {
      update(conversationId, (one) => withChange(one, id, {...made}));
      if (running.value[id]) setRunning(id, {...live});
    });
  };
  setRunning(id, live);
  const change = {error: null};
  try {
    const path = pathTo(conversation, id).slice(0, -1);
    const prompt = node.promptIds ? {ids: node.promptIds, stop: node.promptStop ?? []}
      : await promptOf(node.model, conversation.mode, path, node.system ?? "", controller.signal);
    Object.assign(change, {promptIds: prompt.ids, promptStop: prompt.stop});
    live.prompt = prompt.ids.length + node.tokens.length;
    const ids = prompt.ids.concat(node.tokens.map((token) => token.id));
    await streamAnswer({model: node.model, ids, sampling: node.sampling, stop: prompt.stop, signal: controller.signal},
      (text, tokens, usage, finish) => {
        if (tokens.length > 0) {
          live.last = performance.now();
          live.first ||= live.last;
          live.tokens += tokens.length;
          made.tokens = made.tokens.concat(tokens);
        }
        made.text += text;
        if (usage) change.usage = usage;
        if (finish) change.finish = finish;
        timer ||= setTimeout(flush, REDRAW_MS);
      });
  } catch (error) {
    if (error.name === "AbortError") change.finish = "stopped";
    else change.error = {kind: error.kind ?? "page", message: error.message, retryAfter: error.retryAfter ?? null};
    if (error.kind === "key") report(error);
  }
  Object.assign(change, {pending: false, seconds: (live.last - live.began) / 1000, firstSeconds: (live.first - live.began) / 1000,
    rate: rateOf(live), made: live.tokens});
  Object.assign(made, change);
  batch(() => {
    flush();
    setRunning(id, null);
  });
  return conversations.value.find((one) => one.id === conversationId)?.nodes[id];
};

/** Adds an assistant message after `parent` and fills it. */
export const answerAfter = (conversationId, parent, options = {}) => {
  const chosen = options.model ?? model.value?.id;
  const node = {
    id: newId(), parent, role: "assistant", text: textOfBytes((options.forced ?? []).flatMap((token) => token.bytes)),
    tokens: options.forced ?? [], forced: options.forced?.length ?? 0, model: chosen, pending: true,
    fingerprint: models.value.find((one) => one.id === chosen)?.fingerprint ?? "",
    sampling: options.sampling ?? samplingOf(settings.value), system: options.system ?? system.value,
    ...options.fields,
  };
  update(conversationId, (one) => withNode(one, node));
  return fill(conversationId, node.id);
};

/** Sends the user's text: a new message and its answer. In completion mode empty text continues the document. */
export const send = (text) => {
  if (!model.value) return null;
  const conversation = ensureActive();
  const last = pathOf(conversation).at(-1) ?? null;
  if (conversation.mode === "complete" && text === "" && last) return answerAfter(conversation.id, last.id);
  const node = {id: newId(), parent: last?.id ?? null, role: "user", text};
  update(conversation.id, (one) => withNode(one, node));
  return answerAfter(conversation.id, node.id);
};

/** Another text in place of a user message: a new branch. */
export const editMessage = (node, text) => {
  const edited = {id: newId(), parent: node.parent, role: node.role, text};
  update(activeId.value, (one) => withNode(one, edited));
  return node.role === "user" ? answerAfter(activeId.value, edited.id) : null;
};

export const regenerate = (node) => answerAfter(activeId.value, node.parent, {system: node.system ?? system.value});

/** A new branch: the same tokens up to `index`, then `alternative`, then what the model writes after it. */
export const continueWith = (node, index, alternative) => {
  const forced = node.tokens.slice(0, index).concat({...alternative, top: node.tokens[index].top});
  tell("New branch from this token");
  return answerAfter(activeId.value, node.parent, {forced, model: node.model, system: node.system,
    sampling: {...node.sampling}, fields: {promptIds: node.promptIds, promptStop: node.promptStop}});
};

// ---- share links

const ownPart = (node) => node.tokens.slice(node.forced).map((token) => token.id);

export const shareLink = async (node) => {
  const path = pathTo(active.value, node.id).slice(0, -1);
  const exact = activeMode.value === "complete" && path.some((one) => one.role === "assistant");
  const answer = {
    mode: activeMode.value, model: node.model, fingerprint: node.fingerprint, system: node.system || undefined,
    messages: path.map((one) => one.text), roles: path.map((one) => one.role[0]).join(""), settings: {...node.sampling, max_tokens: ownPart(node).length},
    forced: node.forced ? node.tokens.slice(0, node.forced).map((token) => token.id) : undefined,
    forcedText: node.forced ? textOfBytes(node.tokens.slice(0, node.forced).flatMap((token) => token.bytes)) : undefined,
    promptIds: exact ? node.promptIds : undefined, count: ownPart(node).length, digest: digestOf(ownPart(node)),
  };
  return `${location.origin}${location.pathname}#${await encodeShare(answer)}`;
};

/** The served model of a share link: the one with the same fingerprint, or else the same name. */
const modelOfShare = (shared) => {
  const same = shared.fingerprint && models.value.find((one) => one.fingerprint === shared.fingerprint);
  return same || models.value.find((one) => one.id === shared.model);
};

/** Forced tokens of a share link; the text of each is not in the link, so the first one carries all of it. */
const forcedOf = (shared) => (shared.forced ?? []).map((id, index) => {
  const text = index === 0 ? shared.forcedText ?? "" : "";
  return {id, text, bytes: [...new TextEncoder().encode(text)], logprob: null, top: []};
});

const verdictOf = (shared, node, warning) => {
  const ids = ownPart(node);
  if (node.error || node.finish === "stopped") return warning;
  if (ids.length === shared.count && digestOf(ids) === shared.digest) {
    return {good: true, text: `Reproduced: all ${ids.length} tokens are identical to the shared answer.`};
  }
  const reason = warning?.text ?? "Model and settings are the same. Products of other batch sizes may round differently; try again on an idle server.";
  return {good: false, text: `This answer differs from the shared one. ${reason}`};
};

/** Opens a shared answer: a new conversation in which it is generated again and compared. */
export const openShared = async (shared) => {
  const served = modelOfShare(shared);
  if (!served) {
    throw new Problem("model", `The shared answer is of the model "${shared.model}", which this server does not have.`);
  }
  const warning = served.fingerprint === shared.fingerprint ? null
    : {good: false, text: `The fingerprint of ${served.id} is ${served.fingerprint || "unknown"}; the shared answer was made with ${shared.fingerprint || "an unknown one"}.`};
  const made = newConversation(shared.mode);
  let parent = null;
  shared.messages.forEach((text, index) => {
    const node = {id: newId(), parent, role: shared.roles[index] === "a" ? "assistant" : "user", text};
    made.nodes[node.id] = node;
    parent = node.id;
  });
  batch(() => {
    conversations.value = [made, ...conversations.value];
    activeId.value = made.id;
    showProbabilities.value = showProbabilities.value || Boolean(shared.forced);
  });
  const node = await answerAfter(made.id, parent, {
    model: served.id, system: shared.system ?? "", sampling: {...shared.settings, stop: shared.settings.stop ?? []},
    forced: forcedOf(shared), fields: {shared: warning, promptIds: shared.promptIds},
  });
  update(made.id, (one) => withChange(one, node.id, {shared: verdictOf(shared, node, warning)}));
};
