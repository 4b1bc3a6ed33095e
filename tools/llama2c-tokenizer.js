// llama2c-tokenizer.js IN OUT: the tokenizer that llama2.c keeps in a binary file (i32 longest token, then for each
// token f32 score, i32 length, bytes), as a tokenizer.json. Pieces merge in the order of their scores.
const fs = require('fs');
const [input, output] = process.argv.slice(2);
const data = fs.readFileSync(input);
const pieces = [];
const scores = [];
for (let at = 4; at < data.length;) {
  scores.push(data.readFloatLE(at));
  const length = data.readInt32LE(at + 4);
  pieces.push(data.subarray(at + 8, at + 8 + length).toString('utf8').replaceAll(' ', '\u2581'));
  at += 8 + length;
}
// The first three are special, then come the 256 bytes.
pieces.splice(0, 3, '<unk>', '<s>', '</s>');
for (let byte = 0; byte < 256; ++byte) pieces[3 + byte] = `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
const vocab = Object.create(null);
pieces.forEach((piece, id) => { if (!(piece in vocab)) vocab[piece] = id; });
const merges = [];
pieces.forEach((piece, id) => {
  if (id < 259) return;
  const letters = [...piece];
  for (let cut = 1; cut < letters.length; ++cut) {
    const left = letters.slice(0, cut).join('');
    const right = letters.slice(cut).join('');
    if (left in vocab && right in vocab) merges.push({ left, right, score: scores[id] });
  }
});
merges.sort((a, b) => b.score - a.score || vocab[a.left] - vocab[b.left] || vocab[a.right] - vocab[b.right]);
const special = (id) => ({ id, content: pieces[id], single_word: false, lstrip: false, rstrip: false, normalized: false, special: true });
fs.writeFileSync(output, JSON.stringify({
  version: '1.0', truncation: null, padding: null, added_tokens: [special(0), special(1), special(2)],
  normalizer: { type: 'Sequence', normalizers: [
    { type: 'Prepend', prepend: '\u2581' }, { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' }] },
  pre_tokenizer: null,
  post_processor: { type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
    pair: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: '<s>', type_id: 1 } }, { Sequence: { id: 'B', type_id: 1 } }],
    special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } } },
  decoder: { type: 'Sequence', decoders: [
    { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' }, { type: 'ByteFallback' }, { type: 'Fuse' },
    { type: 'Strip', content: ' ', start: 1, stop: 0 }] },
  model: { type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: null, end_of_word_suffix: null,
    fuse_unk: true, byte_fallback: true, ignore_merges: false, vocab, merges: merges.map((m) => `${m.left} ${m.right}`) },
}));
