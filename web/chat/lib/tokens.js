// Tokens of an answer: their text, probability classes and statistics.

/**
 * @typedef {{id: number, text: string, bytes: number[], logprob: number|null, top: Alternative[]}} Token
 * @typedef {{id: number, text: string, bytes: number[], logprob: number}} Alternative
 */

/** Lower ends of the classes of probability, from certain to surprising. */
export const CLASSES = [0.9, 0.5, 0.2, 0.05, 0.01, 0];
export const CLASS_NAMES = ["≥ 90 %", "50–90 %", "20–50 %", "5–20 %", "1–5 %", "< 1 %"];

/** Class of a log-probability: 0 (certain) to 5 (surprising); -1 if it is unknown. */
export const classOf = (logprob) => {
  if (logprob === null || logprob === undefined || Number.isNaN(logprob)) return -1;
  const p = Math.exp(logprob);
  return CLASSES.findIndex((least) => p >= least);
};

/** A probability as a percentage with about two digits. */
export const percent = (logprob) => {
  const p = 100 * Math.exp(logprob);
  if (p >= 99.95) return "100 %";
  if (p >= 10) return `${p.toFixed(0)} %`;
  if (p >= 0.1) return `${p.toFixed(1)} %`;
  return p >= 0.001 ? `${p.toPrecision(1)} %` : "< 0.001 %";
};

/** The text of bytes; incomplete characters become U+FFFD. */
export const textOfBytes = (bytes) => new TextDecoder().decode(new Uint8Array(bytes));

const isComplete = (bytes) => {
  try {
    new TextDecoder("utf-8", {fatal: true}).decode(new Uint8Array(bytes));
    return true;
  } catch {
    return false;
  }
};

/**
 * Cuts `text` into one piece per token. A character that is spread over several tokens belongs to the last of them; the
 * others have an empty piece. Tokens beyond the end of the text (of a stop string) have none.
 * @param {Token[]} tokens
 * @returns {{text: string, token: Token, index: number}[]}
 */
export const piecesOf = (text, tokens) => {
  const pieces = [];
  let at = 0;
  let held = [];
  for (const [index, token] of tokens.entries()) {
    held.push(...token.bytes);
    let piece = "";
    if (isComplete(held)) {
      piece = textOfBytes(held);
      held = [];
    } else if (held.length >= 4 || index + 1 === tokens.length) {
      piece = textOfBytes(held);
      held = [];
    }
    if (at >= text.length && piece !== "") break;
    pieces.push({text: text.slice(at, at + piece.length), token, index});
    at += piece.length;
  }
  if (at < text.length && pieces.length > 0) pieces.at(-1).text += text.slice(at);
  return pieces;
};

/** Shows white space and control characters that would otherwise be invisible in a label. */
export const visible = (text) => (text === "" ? "(empty)" : text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥")
  .replace(/[\0-\x1f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0))).replace(/\x7f/g, "␡"));

/** Leading spaces and the rest: the spaces stay uncoloured, or they would show as slivers where a line breaks. */
export const splitLead = (text) => {
  const lead = /^ +(?=\S)/.exec(text)?.[0] ?? "";
  return [lead, text.slice(lead.length)];
};

/** Index of the first token in which two lists of ids differ; null if they are equal. */
export const firstDifference = (a, b) => {
  const common = Math.min(a.length, b.length);
  for (let i = 0; i < common; ++i) if (a[i] !== b[i]) return i;
  return a.length === b.length ? null : common;
};

const BURST_MS = 50;

/**
 * Tokens per second of an answer, without the wait for the first token. If all came in one burst, their distances say
 * nothing, and the wait counts too. Times in ms; null for fewer than two tokens.
 */
export const rateOf = ({began, first, last, tokens}) => {
  if (tokens < 2) return null;
  return last - first >= BURST_MS ? (tokens - 1) * 1000 / (last - first) : tokens * 1000 / Math.max(1, last - began);
};

/** exp of the mean negative log-probability; null without tokens. */
export const perplexity = (tokens) => {
  const scores = tokens.map((token) => token.logprob).filter((value) => value !== null && value !== undefined);
  return scores.length === 0 ? null : Math.exp(-scores.reduce((sum, value) => sum + value, 0) / scores.length);
};

/** 53-bit digest of token ids, to check that an answer is the same again. */
export const digestOf = (ids) => {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (const id of ids) {
    a = Math.imul(a ^ id, 2654435761);
    b = Math.imul(b ^ id, 1597334677);
    a ^= a >>> 15;
    b ^= b >>> 13;
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return (4294967296 * (2097151 & b) + (a >>> 0)).toString(36);
};
