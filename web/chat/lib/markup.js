// Reads the little markup that models write: fenced code, headings, lists, quotes, bold, italics and inline code. The result
// is a list of plain objects; views/markup.jsx makes elements from them, so the text can never become HTML.

/**
 * @typedef {{kind: "code", language: string, text: string, open: boolean} | {kind: "paragraph"|"quote", text: string}
 *   | {kind: "heading", level: number, text: string} | {kind: "list", ordered: boolean, start: number, items: string[]}} Block
 */

const LIST = /^\s*(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;

const textBlocks = (lines) => {
  const blocks = [];
  let open = null;
  const close = () => { open = null; };
  const continueWith = (kind, line, extra = {}) => {
    if (open?.kind === kind) open.text += `\n${line}`;
    else blocks.push(open = {kind, text: line, ...extra});
  };
  for (const line of lines) {
    const heading = /^(#{1,4})\s+(.*)$/.exec(line);
    const item = LIST.exec(line);
    if (line.trim() === "") {
      close();
    } else if (heading) {
      close();
      blocks.push({kind: "heading", level: heading[1].length, text: heading[2]});
    } else if (item) {
      const ordered = item[1] === undefined;
      if (open?.kind === "list" && open.ordered === ordered) open.items.push(item[3]);
      else blocks.push(open = {kind: "list", ordered, start: Number(item[2] ?? 1), items: [item[3]]});
    } else if (/^>\s?/.test(line)) {
      continueWith("quote", line.replace(/^>\s?/, ""));
    } else if (open?.kind === "list" && /^\s{2,}\S/.test(line)) {
      open.items[open.items.length - 1] += `\n${line.trim()}`;
    } else {
      continueWith("paragraph", line);
    }
  }
  return blocks;
};

/** @returns {Block[]} */
export const blocksOf = (text) => {
  const blocks = [];
  let plain = [];
  let code = null;
  const flush = () => { blocks.push(...textBlocks(plain)); plain = []; };
  for (const line of text.split("\n")) {
    const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)\s*$/.exec(line);
    if (code) {
      if (fence && fence[1].startsWith(code.fence) && fence[2] === "") {
        blocks.push({kind: "code", language: code.language, text: code.lines.join("\n"), open: false});
        code = null;
      } else {
        code.lines.push(line);
      }
    } else if (fence) {
      flush();
      code = {fence: fence[1], language: fence[2], lines: []};
    } else {
      plain.push(line);
    }
  }
  flush();
  if (code) blocks.push({kind: "code", language: code.language, text: code.lines.join("\n"), open: true});
  return blocks;
};

/**
 * Cuts a line into plain text, `code`, **bold** and *italics*; an unmatched sign stays text.
 * @returns {{kind: "text"|"code"|"bold"|"italic", text: string}[]}
 */
export const spansOf = (text) => {
  const spans = [];
  const pattern = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*/g;
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) spans.push({kind: "text", text: text.slice(at, match.index)});
    const kind = match[1] !== undefined ? "code" : match[2] !== undefined ? "bold" : "italic";
    spans.push({kind, text: match[1] ?? match[2] ?? match[3]});
    at = match.index + match[0].length;
  }
  if (at < text.length) spans.push({kind: "text", text: text.slice(at)});
  return spans;
};
