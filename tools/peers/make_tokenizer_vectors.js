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

// Vectors of encoders' vocabularies, for texts.json followed by encoder_texts.json. Lamina writes the tokenizers first:
//   spm_unigram_json: lamina's tokenizer.json of spm_unigram.model; trained_KIND: lamina tokenizer train --kind KIND
//   --vocab-size 300 corpus.txt. All in build/tokenizers/encoders/NAME.json.
async function encoders() {
  const more = texts.concat(JSON.parse(fs.readFileSync(path.join(golden, 'encoder_texts.json'), 'utf8')));
  const ids_of = async (tokenizer) => {
    const ids = [];
    for (const text of more) {
      ids.push(Array.from((await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds()));
    }
    return ids;
  };
  const vocab = path.join(root, 'build/tokenizers/bert/vocab.txt');
  if (fs.existsSync(vocab)) {
    const bert = new hf.Tokenizer(await hf.WordPiece.fromFile(vocab, { unkToken: '[UNK]' }));
    bert.setNormalizer(hf.bertNormalizer());
    bert.setPreTokenizer(hf.bertPreTokenizer());
    bert.addSpecialTokens(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']);
    write('bert', await ids_of(bert));
  }
  write('unigram_words', await ids_of(hf.Tokenizer.fromFile(path.join(golden, 'unigram_words.json'))));
  for (const name of ['spm_unigram_json', 'trained_wordpiece', 'trained_unigram']) {
    const file = path.join(root, 'build/tokenizers/encoders', name + '.json');
    if (fs.existsSync(file)) write(name, await ids_of(hf.Tokenizer.fromFile(file)));
  }
}

async function main() {
  train();
  await encoders();
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
