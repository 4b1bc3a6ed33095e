#include "lamina/lab/study/data.h"

#include <filesystem>

#include "lamina/base/files.h"
#include "lamina/base/mapped_file.h"
#include "lamina/data/sha256.h"
#include "lamina/data/synthetic.h"
#include "lamina/data/token_file.h"
#include "lamina/text/load.h"
#include "lamina/train/run_data.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPlayBytes = 1 << 20;
constexpr uint64_t kPlaySeed = 1;
constexpr size_t kDataHashDigits = 16;

std::string hash_of_file(const std::string& path) {
  const MappedFile file = map_file(path, "a token file");
  return data::sha256_hex({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
}

/// Hash of everything from which the token files are made.
std::string hash_of_texts(const train::DataChoice& choice) {
  data::Sha256 hash;
  const auto add_text = [&](const std::string& source) {
    if (source.empty()) return;
    data::Sources({source}).each([&](const data::Piece& piece) {
      hash.add(piece.text);
      if (piece.last) hash.add(std::string_view("\0document", 9));
    });
    hash.add(std::string_view("\0source", 7));
  };
  add_text(choice.train);
  add_text(choice.validation);
  hash.add(str(choice.tokenizer, " ", choice.validation_share));
  const auto digest = hash.finish();
  return data::sha256_hex({reinterpret_cast<const char*>(digest.data()), digest.size()}).substr(0, kDataHashDigits);
}

/// Writes the synthetic play as a text file, unless it exists.
std::string synthetic_text(const std::string& folder) {
  std::string path = (fs::path(folder) / "synthetic.txt").string();
  if (!path_exists(path)) write_text(path, data::synthetic_play(kPlayBytes, kPlaySeed));
  return path;
}

bool is_text(const std::string& train) {
  return !train.ends_with(".bin") && !path_exists(fs::path(train) / "train.bin");
}

void count_validation(StudyData& data) {
  const fs::path tokenizer = fs::path(data.choice.train).parent_path() / "tokenizer.json";
  if (data.choice.validation.empty() || !path_exists(tokenizer)) return;
  const data::TokenFile file = data::TokenFile::open(data.choice.validation);
  if (file.size() < 2) return;
  std::vector<int64_t> ids(static_cast<size_t>(file.size()));
  file.read(0, ids);
  const std::vector<text::TokenId> targets(ids.begin() + 1, ids.end());
  data.validation_targets = file.size() - 1;
  data.validation_bytes = static_cast<int64_t>(
      text::parse_tokenizer(read_text(tokenizer.string()), tokenizer.string())->decode(targets).size());
}

}  // namespace

StudyData prepare_study_data(const train::Recipe& recipe, const std::string& folder, const data::PrepareWatch& watch) {
  if (recipe.data.task) {
    // Runs generate task data from their seed. The run's description identifies it.
    StudyData data;
    data.choice = recipe.data;
    data.vocab_size = data::task_vocab_size(*recipe.data.task);
    return data;
  }
  train::Recipe settled = recipe;
  std::error_code unmade;  // ignored: writing into the folder will report the error
  fs::create_directories(folder, unmade);
  if (settled.data.train == "synthetic") settled.data.train = synthetic_text(folder);
  if (is_text(settled.data.train)) {
    settled = train::with_token_files(settled, (fs::path(folder) / hash_of_texts(settled.data)).string(), watch);
  } else {
    settled = train::with_token_files(settled, "", watch);
  }
  StudyData data;
  data.choice = settled.data;
  const data::TokenFile train = data::TokenFile::open(data.choice.train);
  data.vocab_size = train.vocab_size();
  data.hash = hash_of_file(data.choice.train);
  if (!data.choice.validation.empty()) {
    data.vocab_size = std::max(data.vocab_size, data::TokenFile::open(data.choice.validation).vocab_size());
    data.hash = data::sha256_hex(data.hash + hash_of_file(data.choice.validation));
  }
  count_validation(data);
  return data;
}

}  // namespace lamina::lab
