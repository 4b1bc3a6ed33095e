"""Trains a small SentencePiece model on tests/golden/tokenizers/corpus.txt and writes its ids of texts.json next to it.
Needs Debian's python3-sentencepiece."""
import json
import os

import sentencepiece

golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/tokenizers")
prefix = os.path.join(golden, "spm_bpe")
sentencepiece.SentencePieceTrainer.train(
    input=os.path.join(golden, "corpus.txt"), model_prefix=prefix, model_type="bpe", vocab_size=480,
    normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True, character_coverage=0.99,
    user_defined_symbols=["<sep>", "\u2581\u2581\u2581"])
os.remove(prefix + ".vocab")
model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
with open(os.path.join(golden, "texts.json"), encoding="utf-8") as file:
    texts = json.load(file)
with open(prefix + ".ids.json", "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(model.encode(text), separators=(",", ":")) for text in texts) + "\n]\n")
