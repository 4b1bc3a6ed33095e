#include "lamina/text/load.h"

#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/text/read_json.h"
#include "lamina/text/spec.h"

namespace lamina::text {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, const std::string& name) {
  return make_tokenizer(read_json(text, name), name);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code error;
  const std::string file = fs::is_directory(path, error) ? (fs::path(path) / "tokenizer.json").string() : path;
  return parse_tokenizer(read_text(file), file);
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  json config = json::object();
  if (const auto bos = tokenizer.bos()) config["bos_token"] = tokenizer.token(*bos);
  if (const auto eos = tokenizer.eos()) config["eos_token"] = tokenizer.token(*eos);
  config["add_bos_token"] = tokenizer.bos().has_value();
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  write_text((fs::path(folder) / "tokenizer.json").string(), tokenizer.to_json());
  write_text((fs::path(folder) / "tokenizer_config.json").string(), config.dump(2) + "\n");
}

}  // namespace lamina::text
