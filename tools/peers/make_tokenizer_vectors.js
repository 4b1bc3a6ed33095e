// node make_tokenizer_vectors.js: encodes tests/golden/tokenizers/texts.json with other tokenizer libraries. Writes to the
// same folder NAME.ids.json for each vocabulary in build/tokenizers (tools/fetch-tokenizers) and for each tokenizer that
// lamina wrote to build/tokenizers/ours-NAME/tokenizer.json, and hf_trained.json, a tokenizer trained on corpus.txt.
// Needs: npm install --prefix build/peers tokenizers@0.23.2 tiktoken@1.0.22
'use strict';
const fs = require('fs');
const path = require('path');

const root = path.join(__dirname, '../..');
const golden = path.join(root, 'tests/golden/tokenizers');
const modules = process.env.PEERS || path.join(root, 'build/peers/node_modules');
const hf = require(path.join(modules, 'tokenizers'));
const { Tiktoken } = require(path.join(modules, 'tiktoken'));
const texts = JSON.parse(fs.readFileSync(path.join(golden, 'texts.json'), 'utf8'));

function write(name, ids) {
  const lines = ids.map((list) => JSON.stringify(list)).join(',\n');
  fs.writeFileSync(path.join(golden, name + '.ids.json'), '[\n' + lines + '\n]\n');
}

// Special tokens in a text become their ids; no BOS or EOS is added.
async function with_hf(name, file) {
  const tokenizer = hf.Tokenizer.fromFile(file);
  const ids = [];
  for (const text of texts) {
    ids.push(Array.from((await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds()));
  }
  write(name, ids);
}

function with_tiktoken(name, encoder) {
  const data = JSON.parse(fs.readFileSync(path.join(modules, 'tiktoken/encoders', encoder + '.json'), 'utf8'));
  const tokenizer = new Tiktoken(data.bpe_ranks, data.special_tokens, data.pat_str);
  write(name, texts.map((text) => Array.from(tokenizer.encode(text, 'all'))));
}

function train() {
  const tokenizer = new hf.Tokenizer(hf.BPE.empty());
  tokenizer.setPreTokenizer(hf.byteLevelPreTokenizer(false));
  tokenizer.train([path.join(golden, 'corpus.txt')]);
  tokenizer.save(path.join(golden, 'hf_trained.json'), false);
}

async function main() {
  train();
  await with_hf('hf_trained', path.join(golden, 'hf_trained.json'));
  const folder = path.join(root, 'build/tokenizers');
  for (const name of fs.readdirSync(folder).sort()) {
    const file = path.join(folder, name, 'tokenizer.json');
    if (fs.existsSync(file)) await with_hf(name, file);
  }
  with_tiktoken('gpt2-files', 'gpt2');
  with_tiktoken('cl100k', 'cl100k_base');
  with_tiktoken('o200k', 'o200k_base');
}
main();
