// A conversation is a tree of messages. Editing or regenerating adds a sibling; `chosen` remembers, for each parent, which
// child is shown. The path from the root along the chosen children is what the reader sees and what the model gets.

/**
 * @typedef {{id: string, parent: string|null, role: "user"|"assistant", text: string, tokens?: object[]}} Node
 * @typedef {{id: string, title: string, mode: "chat"|"complete", nodes: Record<string, Node>,
 *   chosen: Record<string, string>, updated: number}} Conversation
 */
export const ROOT = "root";

let count = 0;
export const newId = () => `${Date.now().toString(36)}-${(++count).toString(36)}-${Math.random().toString(36).slice(2, 8)}`;

/** @returns {Conversation} */
export const newConversation = (mode = "chat") => (
  {id: newId(), title: "", mode, nodes: {}, chosen: {}, created: Date.now(), updated: Date.now()});

/** Children of a message in the order of their creation; `parent` null is the root. */
export const childrenOf = (conversation, parent) =>
  Object.values(conversation.nodes).filter((node) => node.parent === parent);

/** Messages from the first to the last that is shown. */
export const pathOf = (conversation) => {
  const path = [];
  let parent = null;
  for (;;) {
    const next = conversation.nodes[conversation.chosen[parent ?? ROOT]] ?? childrenOf(conversation, parent).at(-1);
    if (!next) return path;
    path.push(next);
    parent = next.id;
  }
};

/** Messages from the first to `id`, whatever is shown. */
export const pathTo = (conversation, id) => {
  const path = [];
  for (let node = conversation.nodes[id]; node; node = conversation.nodes[node.parent]) path.unshift(node);
  return path;
};

/** The conversation with one more message, which is shown. */
export const withNode = (conversation, node) => ({
  ...conversation,
  nodes: {...conversation.nodes, [node.id]: node},
  chosen: {...conversation.chosen, [node.parent ?? ROOT]: node.id},
  updated: Date.now(),
});

export const withChange = (conversation, id, change) => {
  const node = conversation.nodes[id];
  if (!node) return conversation;
  return {...conversation, nodes: {...conversation.nodes, [id]: {...node, ...change}}, updated: Date.now()};
};

/** Place of a message among its siblings, for "2 / 3". */
export const placeOf = (conversation, node) => {
  const siblings = childrenOf(conversation, node.parent);
  return {siblings, index: siblings.findIndex((one) => one.id === node.id)};
};

/** Shows the sibling `step` places further; the same conversation if there is none. */
export const withSibling = (conversation, node, step) => {
  const {siblings, index} = placeOf(conversation, node);
  const next = siblings[index + step];
  return next ? {...conversation, chosen: {...conversation.chosen, [node.parent ?? ROOT]: next.id}} : conversation;
};

/** The conversation without a message and everything after it. */
export const without = (conversation, id) => {
  const gone = new Set([id]);
  for (let grew = true; grew;) {
    grew = false;
    for (const node of Object.values(conversation.nodes)) {
      if (!gone.has(node.id) && gone.has(node.parent)) grew = Boolean(gone.add(node.id));
    }
  }
  const keep = (entries) => Object.fromEntries(entries.filter(([key, value]) => !gone.has(key) && !gone.has(value)));
  return {...conversation, nodes: keep(Object.entries(conversation.nodes)), chosen: keep(Object.entries(conversation.chosen)),
    updated: Date.now()};
};

/** A short title from the first message. */
export const titleOf = (conversation) => {
  if (conversation.title) return conversation.title;
  const first = pathOf(conversation)[0]?.text.trim().split("\n")[0] ?? "";
  return first.length > 48 ? `${first.slice(0, 47)}…` : first || "New conversation";
};
