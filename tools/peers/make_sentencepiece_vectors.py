"""Trains small SentencePiece models (BPE and unigram) on tests/golden/tokenizers/corpus.txt and writes their ids next to
them: spm_bpe of texts.json, spm_unigram (nmt_nfkc normalization) of texts.json and encoder_texts.json.
Needs Debian's python3-sentencepiece."""
import json
import os

import sentencepiece

golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/tokenizers")


def texts(name):
    with open(os.path.join(golden, name), encoding="utf-8") as file:
        return json.load(file)


def make(name, all_texts, **options):
    prefix = os.path.join(golden, name)
    sentencepiece.SentencePieceTrainer.train(input=os.path.join(golden, "corpus.txt"), model_prefix=prefix, **options)
    os.remove(prefix + ".vocab")
    model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    lines = ",\n".join(json.dumps(model.encode(text), separators=(",", ":")) for text in all_texts)
    with open(prefix + ".ids.json", "w") as file:
        file.write("[\n" + lines + "\n]\n")


make("spm_bpe", texts("texts.json"), model_type="bpe", vocab_size=480, normalization_rule_name="identity",
     remove_extra_whitespaces=False, byte_fallback=True, character_coverage=0.99,
     user_defined_symbols=["<sep>", "\u2581\u2581\u2581"])
make("spm_unigram", texts("texts.json") + texts("encoder_texts.json"), model_type="unigram", vocab_size=400,
     normalization_rule_name="nmt_nfkc", byte_fallback=True, hard_vocab_limit=False)
