#include "lamina/base/error.h"
#include "lamina/text/formats.h"
#include "lamina/text/patterns.h"
#include "lamina/text/spec_build.h"

namespace lamina::text {

bool is_bert_vocab(std::string_view text) {
  for (const std::string_view token : {"[UNK]", "[CLS]", "[SEP]"}) {
    const std::string line = str('\n', token);
    if (!text.starts_with(token) && text.find(line) == std::string_view::npos) return false;
  }
  return true;
}

TokenizerSpec read_bert_vocab(std::string_view text, const std::string& name, const BertVocabOptions& options) {
  JsonLists lists;
  for (int64_t id = 0; !text.empty(); ++id) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    LAMINA_CHECK(!line.empty(), name, ": line ", id + 1, " is empty; expected one token per line");
    lists.vocab.emplace_back(line, id);
  }
  TokenizerSpec spec;
  spec.algorithm = Algorithm::wordpiece;
  spec.symbols = Symbols::characters;
  spec.continuation = "##";
  spec.cleanup = true;
  NormalizerStep normalizer{NormalizerStep::Kind::bert};
  normalizer.lowercase = options.lowercase;
  normalizer.strip_accents = options.strip_accents.value_or(options.lowercase);
  normalizer.space_cjk = options.space_cjk;
  spec.normalizers.push_back(normalizer);
  spec.splits = bert_splits();
  add_lists(spec, lists, name);
  add_bert_specials(spec, name);
  return spec;
}

void add_bert_specials(TokenizerSpec& spec, const std::string& name) {
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    const std::string token = spec.vocab[i].bytes;
    const auto id = static_cast<TokenId>(i);
    if (token == "[UNK]") spec.unknown = id;
    if (token == "[CLS]") spec.bos = id;
    if (token == "[SEP]") spec.eos = id;
    if (token == "[UNK]" || token == "[CLS]" || token == "[SEP]" || token == "[PAD]" || token == "[MASK]") {
      add_token(spec, {id, token});
    }
  }
  LAMINA_CHECK(spec.unknown && spec.bos && spec.eos, name,
               ": [UNK], [CLS] or [SEP] is missing; expected the vocabulary of a BERT model, one token per line");
  spec.appended = spec.eos;
}

}  // namespace lamina::text
