// node tokenizers_speed.js TOKENIZER.json TEXT: prints the throughput (MB/s) of Hugging Face tokenizers on one thread, as
// JSON. The text is split at line ends into pieces of about 100 kB, because the library is slower on one long text.
'use strict';
const fs = require('fs');
const path = require('path');
process.env.TOKENIZERS_PARALLELISM = 'false';
process.env.RAYON_NUM_THREADS = '1';
const modules = process.env.PEERS || path.join(__dirname, '../../build/peers/node_modules');
const { Tokenizer } = require(path.join(modules, 'tokenizers'));

async function main() {
  const [file, text_file, repeats = '3'] = process.argv.slice(2);
  const tokenizer = Tokenizer.fromFile(file);
  const text = fs.readFileSync(text_file, 'utf8');
  const parts = [];
  for (let at = 0; at < text.length;) {
    const line = text.indexOf('\n', at + 100000);
    const end = line < 0 ? text.length : line + 1;
    parts.push(text.slice(at, end));
    at = end;
  }
  let best = Infinity;
  let tokens = 0;
  for (let i = 0; i < Number(repeats); ++i) {
    const start = process.hrtime.bigint();
    tokens = 0;
    for (const part of parts) tokens += (await tokenizer.encode(part, null, { addSpecialTokens: false })).getLength();
    best = Math.min(best, Number(process.hrtime.bigint() - start) / 1e9);
  }
  console.log(JSON.stringify({ encode_mb_s: Buffer.byteLength(text) / 1e6 / best, tokens }));
}
main();
