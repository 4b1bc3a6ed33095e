// Conversations in IndexedDB, small choices in localStorage. If the browser allows neither, everything stays in memory.

const NAME = "lamina";
const STORE = "conversations";
let opened = null;

const asPromise = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

const open = () => {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, {keyPath: "id"});
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
};

const inStore = async (mode, action) => asPromise(action((await open()).transaction(STORE, mode).objectStore(STORE)));

/** @returns {Promise<{list: object[], persistent: boolean}>} newest first */
export const loadAll = async () => {
  try {
    const list = await inStore("readonly", (store) => store.getAll());
    return {list: list.sort((a, b) => b.updated - a.updated), persistent: true};
  } catch {
    return {list: [], persistent: false};
  }
};

export const save = (conversation) => inStore("readwrite", (store) => store.put(conversation)).catch(() => {});
export const remove = (id) => inStore("readwrite", (store) => store.delete(id)).catch(() => {});

/** A value of localStorage; `otherwise` if it is missing or damaged. */
export const remembered = (name, otherwise) => {
  try {
    const value = JSON.parse(localStorage.getItem(`lamina-${name}`));
    return value ?? otherwise;
  } catch {
    return otherwise;
  }
};
export const remember = (name, value) => {
  try {
    localStorage.setItem(`lamina-${name}`, JSON.stringify(value));
  } catch { /* full or forbidden: the choice is forgotten on reload */ }
};
