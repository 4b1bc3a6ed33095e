#include "lamina/text/load.h"

#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/text/formats.h"
#include "lamina/text/read_json.h"
#include "lamina/text/spec.h"

namespace lamina::text {
namespace {

namespace fs = std::filesystem;

/// Reads vocab.json or encoder.json, and the merges from merges.txt or vocab.bpe in the same folder.
TokenizerSpec read_vocab_and_merges(const fs::path& vocab) {
  for (const char* merges : {"merges.txt", "vocab.bpe"}) {
    const fs::path beside = vocab.parent_path() / merges;
    if (file_exists(beside))
      return read_gpt2_files(read_text(vocab.string()), read_text(beside.string()), vocab.string());
  }
  throw Error(str(vocab.string(), ": is a vocabulary without merges; expected merges.txt or vocab.bpe in its folder"));
}

/// Reads BERT's vocab.txt, with the settings of a tokenizer_config.json in the same folder.
TokenizerSpec read_bert_files(std::string_view text, const fs::path& path) {
  BertVocabOptions options;
  const fs::path beside = path.parent_path() / "tokenizer_config.json";
  if (file_exists(beside)) {
    const std::string name = beside.string();
    const json config = parse_object(read_text(name), name);
    options.lowercase = value_or(config, "do_lower_case", true, name);
    if (config.contains("strip_accents") && !config["strip_accents"].is_null()) {
      options.strip_accents = value_or(config, "strip_accents", true, name);
    }
    options.space_cjk = value_or(config, "tokenize_chinese_chars", true, name);
  }
  return read_bert_vocab(text, path.string(), options);
}

/// Reads a file of any known format, which is recognized by its first bytes.
TokenizerSpec read_file(const fs::path& path, const LoadOptions& options) {
  const std::string name = path.string();
  const std::string text = read_text(name);
  const size_t first = text.find_first_not_of(" \n\r\t");
  LAMINA_CHECK(first != std::string::npos, name, ": is empty; expected a tokenizer");
  if (text[first] == '{') {
    const bool tokenizer_json = path.filename() != "vocab.json" && path.filename() != "encoder.json";
    return tokenizer_json ? read_json(text, name) : read_vocab_and_merges(path);
  }
  if (is_bert_vocab(text)) return read_bert_files(text, path);
  if (is_tiktoken(text)) return read_tiktoken(text, options.pattern, name);
  if (is_sentencepiece(text)) return read_sentencepiece(text, name);
  LAMINA_CHECK(path.extension() == ".bin", name,
               ": is not a tokenizer of a known kind; expected a tokenizer.json, vocab.json with merges.txt, BERT's "
               "vocab.txt, a tiktoken file, a SentencePiece tokenizer.model or llama2.c's tokenizer.bin");
  return read_llama2c(text, name);
}

std::optional<TokenId> id_of(const TokenizerSpec& spec, const std::string& content) {
  for (const AddedToken& token : spec.added) {
    if (token.content == content) return token.id;
  }
  return {};
}

/// The text of a token that is given as a string, or as an object with "content".
std::string token_in(const json& config, const char* key, const std::string& name) {
  const json value = config.value(key, json());
  if (value.is_object()) return value_or(value, "content", std::string(), name);
  return value.is_string() ? value.get<std::string>() : "";
}

/// Sets BOS and EOS. A BOS that equals EOS is ignored unless the file says to add it, because GPT-2's files name one
/// token as both and put nothing before a text.
void read_tokenizer_config(const std::string& path, TokenizerSpec& spec) {
  const json config = parse_object(read_text(path), path);
  const std::string bos = token_in(config, "bos_token", path);
  const std::string eos = token_in(config, "eos_token", path);
  if (const auto id = id_of(spec, eos)) spec.eos = id;
  const bool named = !bos.empty() || !eos.empty();
  const bool adds = value_or(config, "add_bos_token", named ? bos != eos : spec.bos.has_value(), path);
  if (const auto id = id_of(spec, bos); id && adds) spec.bos = id;
  if (!adds) spec.bos.reset();
}

void read_model_config(const std::string& path, TokenizerSpec& spec) {
  const json config = parse_object(read_text(path), path);
  json eos = config.value("eos_token_id", json());
  if (eos.is_array() && !eos.empty()) eos = json(eos[0]);
  if (!eos.is_number_integer()) return;
  for (const AddedToken& token : spec.added) {
    if (token.id == eos.get<int64_t>()) spec.eos = token.id;
  }
}

}  // namespace

std::string tokenizer_file(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json", "tokenizer.model", "spiece.model",
                           "sentencepiece.bpe.model", "tokenizer.bin", "vocab.txt"}) {
    const fs::path file = fs::path(folder) / name;
    if (file_exists(file)) return file.string();
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".tiktoken") return entry.path().string();
  }
  return {};
}

std::string tokenizer_of_model(const std::string& model) {
  if (folder_exists(model)) return tokenizer_file(model);
  for (const char* ending : {".tokenizer.json", ".tokenizer.bin"}) {
    const fs::path own = fs::path(model).replace_extension(ending);
    if (file_exists(own)) return own.string();
  }
  return tokenizer_file(fs::absolute(model).parent_path().string());
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, const std::string& name) {
  return make_tokenizer(read_json(text, name), name);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, const LoadOptions& options) {
  std::error_code error;
  LAMINA_CHECK(fs::exists(path, error), path, ": does not exist; expected a tokenizer's file or folder");
  const fs::path file = fs::is_directory(path, error) ? tokenizer_file(path) : path;
  LAMINA_CHECK(
      !file.empty(), path,
      ": has no tokenizer; expected tokenizer.json, vocab.json with merges.txt, tokenizer.model, tokenizer.bin, "
      "vocab.txt or a .tiktoken file");
  TokenizerSpec spec = read_file(file, options);
  const fs::path folder = file.parent_path();
  if (file_exists(folder / "tokenizer_config.json")) {
    read_tokenizer_config((folder / "tokenizer_config.json").string(), spec);
  } else if (!spec.eos) {
    for (const char* name : {"config.json", "generation_config.json"}) {
      if (file_exists(folder / name)) read_model_config((folder / name).string(), spec);
    }
  }
  return make_tokenizer(std::move(spec), file.string());
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  write_text((fs::path(folder) / "tokenizer.json").string(), tokenizer.to_json());
  save_tokenizer_config(tokenizer, folder);
}

void save_tokenizer_config(const Tokenizer& tokenizer, const std::string& folder) {
  json config = json::object();
  if (const auto bos = tokenizer.bos()) config["bos_token"] = tokenizer.token(*bos);
  if (const auto eos = tokenizer.eos()) config["eos_token"] = tokenizer.token(*eos);
  config["add_bos_token"] = tokenizer.bos().has_value();
  // Special tokens that encoders use. The names are those of BERT and of SentencePiece's models.
  const auto name_role = [&](const char* role, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto id = tokenizer.id_of(name);
      if (!config.contains(role) && id && tokenizer.is_special(*id)) config[role] = name;
    }
  };
  name_role("unk_token", {"[UNK]", "<unk>"});
  name_role("pad_token", {"[PAD]", "<pad>"});
  name_role("cls_token", {"[CLS]"});
  name_role("sep_token", {"[SEP]"});
  name_role("mask_token", {"[MASK]", "<mask>"});
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  write_text((fs::path(folder) / "tokenizer_config.json").string(), config.dump(2) + "\n");
}

}  // namespace lamina::text
