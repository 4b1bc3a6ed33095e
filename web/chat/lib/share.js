// Share links. The fragment of the address holds everything an answer depends on: messages, settings, seed, forced tokens,
// the model's fingerprint, and a digest of the answer's tokens to compare with. Fragments never reach a server.

const KEY = "share=";
const VERSION = 1;
const MAX_BYTES = 1 << 20;

const toBase64 = (bytes) => {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
};
const fromBase64 = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));

/** The transformed bytes. Throws if they are more than MAX_BYTES: a short link can expand to gigabytes. */
const through = async (bytes, transform) => {
  const reader = new Blob([bytes]).stream().pipeThrough(transform).getReader();
  const parts = [];
  let length = 0;
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    length += value.length;
    if (length > MAX_BYTES) {
      reader.cancel().catch(() => {});
      throw new Error(`more than ${MAX_BYTES} bytes`);
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
};

/** The fragment of a share link, without "#". "z" marks compressed text, "j" plain JSON. */
export const encodeShare = async (answer) => {
  const bytes = new TextEncoder().encode(JSON.stringify({v: VERSION, ...answer}));
  if (typeof CompressionStream === "undefined") return `${KEY}j${toBase64(bytes)}`;
  return `${KEY}z${toBase64(await through(bytes, new CompressionStream("deflate-raw")))}`;
};

const isStrings = (list) => Array.isArray(list) && list.every((one) => typeof one === "string");
const isIds = (list) => Array.isArray(list) && list.every((one) => Number.isInteger(one) && one >= 0);
const problemOf = (answer) => {
  if (answer?.v !== VERSION) return `it has version ${answer?.v}, this page reads version ${VERSION}`;
  if (answer.mode !== "chat" && answer.mode !== "complete") return "its mode is neither chat nor complete";
  if (!isStrings(answer.messages) || answer.messages.length === 0) return "it has no messages";
  if (typeof answer.roles !== "string" || answer.roles.length !== answer.messages.length) return "its roles do not fit its messages";
  if (!isIds(answer.forced ?? []) || typeof answer.model !== "string") return "its model or tokens are damaged";
  if (typeof answer.settings !== "object" || answer.settings === null) return "it has no settings";
  return "";
};

/** Reads a fragment; null if it is not a share link. Throws an Error if it is damaged. */
export const decodeShare = async (fragment) => {
  const text = fragment.replace(/^#/, "");
  if (!text.startsWith(KEY)) return null;
  let answer;
  try {
    const bytes = fromBase64(text.slice(KEY.length + 1));
    const plain = text[KEY.length] === "z" ? await through(bytes, new DecompressionStream("deflate-raw")) : bytes;
    answer = JSON.parse(new TextDecoder().decode(plain));
  } catch {
    throw new Error("The share link is damaged: copy it again, whole.");
  }
  const problem = problemOf(answer);
  if (problem) throw new Error(`The share link cannot be opened: ${problem}.`);
  return answer;
};
