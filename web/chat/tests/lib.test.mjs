// The pure functions of the page. Run: node --test tests
import assert from "node:assert/strict";
import {test} from "node:test";
import {blocksOf, spansOf} from "../lib/markup.js";
import {decodeShare, encodeShare} from "../lib/share.js";
import {eventSplitter, readEvents} from "../lib/sse.js";
import {classOf, digestOf, firstDifference, percent, perplexity, piecesOf, rateOf, visible} from "../lib/tokens.js";
import {childrenOf, newConversation, pathOf, pathTo, placeOf, withNode, withSibling, without} from "../lib/tree.js";

const token = (bytes, logprob = -0.1) => ({id: bytes.length, text: "", bytes, logprob, top: []});
const bytesOf = (text) => [...new TextEncoder().encode(text)];

test("a burst of tokens does not count as speed", () => {
  assert.equal(rateOf({began: 0, first: 100, last: 1100, tokens: 11}), 10);
  assert.equal(rateOf({began: 0, first: 99, last: 100, tokens: 20}), 200);
  assert.equal(rateOf({began: 0, first: 99, last: 99, tokens: 1}), null);
});

test("labels show what has no shape", () => {
  assert.equal(visible(""), "(empty)");
  assert.equal(visible(" a\n\t"), "␣a⏎⇥");
  assert.equal(visible("\0\x1b\x7fé"), "␀␛␡é");
});

test("events are found wherever the stream is cut", () => {
  const whole = "data: {\"a\": 1}\n\n: ping\n\ndata: two\ndata: lines\r\n\r\ndata: [DONE]\n\n";
  for (let cut = 1; cut < whole.length; ++cut) {
    const splitter = eventSplitter();
    const events = [...splitter.push(whole.slice(0, cut)), ...splitter.push(whole.slice(cut))];
    assert.deepEqual(events, ["{\"a\": 1}", "two\nlines", "[DONE]"], `cut at ${cut}`);
  }
});

test("a stream ends at [DONE] and splits no character", async () => {
  const bytes = new TextEncoder().encode("data: {\"text\": \"é😀\"}\n\ndata: [DONE]\n\ndata: {\"late\": 1}\n\n");
  const stream = new ReadableStream({start: (out) => { for (const byte of bytes) out.enqueue(Uint8Array.of(byte)); out.close(); }});
  const events = [];
  for await (const event of readEvents(stream)) events.push(event);
  assert.deepEqual(events, [{text: "é😀"}]);
});

test("pieces of tokens make up the text, also with characters of several tokens", () => {
  const text = "a😀b";
  const [one, two] = [bytesOf("😀").slice(0, 2), bytesOf("😀").slice(2)];
  const pieces = piecesOf(text, [token(bytesOf("a")), token(one), token(two), token(bytesOf("b"))]);
  assert.deepEqual(pieces.map((piece) => piece.text), ["a", "", "😀", "b"]);
});

test("tokens of a stop string, beyond the text, have no piece", () => {
  const pieces = piecesOf("one", [token(bytesOf("one")), token(bytesOf("\nuser:"))]);
  assert.deepEqual(pieces.map((piece) => piece.text), ["one"]);
});

test("pieces never lose text, whatever the bytes are", () => {
  for (let round = 0; round < 300; ++round) {
    const tokens = Array.from({length: 6}, () => token(Array.from({length: 1 + Math.floor(3 * Math.random())}, () => Math.floor(256 * Math.random()))));
    const text = new TextDecoder().decode(new Uint8Array(tokens.flatMap((one) => one.bytes)));
    assert.equal(piecesOf(text, tokens).map((piece) => piece.text).join(""), text);
  }
});

test("classes and names of probabilities", () => {
  assert.deepEqual([0.95, 0.9, 0.5, 0.3, 0.06, 0.02, 0.001].map((p) => classOf(Math.log(p) + 1e-12)), [0, 0, 1, 2, 3, 4, 5]);
  assert.equal(classOf(null), -1);
  assert.equal(percent(Math.log(0.12345)), "12 %");
  assert.equal(percent(0), "100 %");
  assert.equal(percent(-9999), "< 0.001 %");
  assert.ok(Math.abs(perplexity([token([1], Math.log(0.25)), token([1], Math.log(0.25))]) - 4) < 1e-9);
  assert.equal(perplexity([]), null);
});

test("differences and digests of token ids", () => {
  assert.equal(firstDifference([1, 2, 3], [1, 2, 3]), null);
  assert.equal(firstDifference([1, 2, 3], [1, 9, 3]), 1);
  assert.equal(firstDifference([1, 2], [1, 2, 3]), 2);
  const digests = new Set([[1, 2, 3], [3, 2, 1], [1, 2], [1, 2, 4], [], [0]].map(digestOf));
  assert.equal(digests.size, 6);
  assert.equal(digestOf([1, 2, 3]), digestOf([1, 2, 3]));
});

test("branches: siblings, the way to the leaf, deletion", () => {
  let tree = newConversation();
  const add = (id, parent, role) => { tree = withNode(tree, {id, parent, role, text: id}); };
  add("q", null, "user");
  add("a1", "q", "assistant");
  add("f", "a1", "user");
  add("a2", "q", "assistant");
  const shown = () => pathOf(tree).map((node) => node.id).join(" ");
  assert.equal(shown(), "q a2");
  assert.deepEqual(placeOf(tree, tree.nodes.a2).index, 1);
  tree = withSibling(tree, tree.nodes.a2, -1);
  assert.equal(shown(), "q a1 f");
  assert.equal(withSibling(tree, tree.nodes.a1, -1), tree);
  assert.equal(pathTo(tree, "f").length, 3);
  tree = without(tree, "a1");
  assert.equal(shown(), "q a2");
  assert.deepEqual(Object.keys(tree.nodes), ["q", "a2"]);
  assert.equal(childrenOf(tree, "q").length, 1);
});

test("markup: code, lists, headings, quotes, and an open fence", () => {
  const blocks = blocksOf("# Head\ntext\nmore\n\n- one\n  still one\n- two\n\n1. x\n\n> said\n\n```py\na = 1\n\n```\n~~~\n<script>");
  assert.deepEqual(blocks.map((block) => block.kind), ["heading", "paragraph", "list", "list", "quote", "code", "code"]);
  assert.deepEqual(blocks[2].items, ["one\nstill one", "two"]);
  assert.equal(blocks[3].ordered, true);
  assert.deepEqual(blocks[5], {kind: "code", language: "py", text: "a = 1\n", open: false});
  assert.deepEqual(blocks[6], {kind: "code", language: "", text: "<script>", open: true});
  assert.deepEqual(spansOf("a `b*c*` **d** *e* 2 * 3 * 4").map((span) => span.kind), ["text", "code", "text", "bold", "text", "italic", "text"]);
  assert.equal(spansOf("**open `x").map((span) => span.text).join(""), "**open `x");
});

test("share links hold everything and refuse damage", async () => {
  const answer = {mode: "chat", model: "m", fingerprint: "f", messages: ["Grüße 😀"], roles: "u", settings: {seed: 5, stop: []}, forced: [1, 2], count: 3, digest: "x"};
  const fragment = await encodeShare(answer);
  assert.match(fragment, /^share=[zj][\w-]+$/);
  assert.deepEqual(await decodeShare(`#${fragment}`), {v: 1, ...answer});
  assert.equal(await decodeShare("#elsewhere"), null);
  await assert.rejects(decodeShare(`#${fragment.slice(0, -8)}`), /damaged/);
  await assert.rejects(decodeShare("#share=z!!"), /damaged/);
  await assert.rejects(decodeShare(`#${await encodeShare({...answer, messages: [1]})}`), /no messages/);
  await assert.rejects(decodeShare(`#${await encodeShare({...answer, forced: [-1]})}`), /damaged/);
  await assert.rejects(decodeShare(`#${await encodeShare({...answer, roles: "uu"})}`), /roles/);
  await assert.rejects(decodeShare(`#${await encodeShare({...answer, v: 2})}`), /version 2/);
});

test("a short link that expands to megabytes is refused", async () => {
  const fragment = await encodeShare({mode: "chat", model: "m", messages: ["a".repeat(1 << 22)], roles: "u", settings: {}});
  assert.ok(fragment.length < 20000);
  await assert.rejects(decodeShare(`#${fragment}`), /damaged/);
});
