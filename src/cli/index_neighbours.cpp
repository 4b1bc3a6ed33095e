#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/retriever.h"
#include "lamina/cli/usage.h"
#include "lamina/data/neighbours.h"
#include "lamina/data/token_writer.h"
#include "lamina/data/tokenizer_identity.h"
#include "lamina/infer/chunk_retriever.h"
#include "lamina/text/load.h"
#include "lamina/train/run_tokens.h"

namespace lamina::cli {
namespace {

struct NeighboursArguments {
  std::string index;
  std::string data;
  std::string tokenizer;
  arch::Retrieval sizes;
  std::string exclude = "document";
  RetrieverOptions options;
  DeviceChoice device;
};

/// The token files in a folder of `lamina data prepare`, or the given token file.
std::vector<std::string> token_files_of(const std::string& data) {
  if (!folder_exists(data)) {
    LAMINA_CHECK(data::is_token_file(data), data,
                 ": is not a token file; prepare the text first (lamina data prepare TEXT --out FOLDER)");
    return {data};
  }
  std::vector<std::string> files;
  for (const char* name : {train::kTrainTokens, train::kValidationTokens}) {
    const std::string path = (std::filesystem::path(data) / name).string();
    if (path_exists(path)) files.push_back(path);
  }
  LAMINA_CHECK(!files.empty(), data, ": is a folder without train.bin; give one that `lamina data prepare` made");
  return files;
}

std::vector<text::TokenId> read_ids(const data::TokenFile& file, int64_t begin, int64_t end) {
  std::vector<int64_t> wide(static_cast<size_t>(end - begin));
  file.read(begin, wide);
  return {wide.begin(), wide.end()};
}

/// The passages of the documents around a chunk of a token file. Chunks must be visited in order.
class OwnPassages {
 public:
  OwnPassages(const data::TokenFile& file, const search::Index& index, const infer::ChunkRetriever& retriever)
      : file_(file), index_(index), retriever_(retriever) {}

  /// Moves to the documents that have a token in [begin, end).
  void move_to(int64_t begin, int64_t end) {
    const int64_t first = file_.document_of(begin);
    std::erase_if(documents_, [&](const auto& entry) { return entry.first < first; });
    for (int64_t d = first; d < file_.document_count() && file_.document_start(d) < end; ++d) {
      if (documents_.contains(d)) continue;
      const auto ids = read_ids(file_, file_.document_start(d), file_.document_start(d + 1));
      documents_.emplace(d, infer::PassagesOfText(index_, retriever_.text_of(ids)));
    }
  }
  bool has(int64_t row) {
    return std::any_of(documents_.begin(), documents_.end(), [&](auto& entry) { return entry.second.has(row); });
  }

 private:
  const data::TokenFile& file_;
  const search::Index& index_;
  const infer::ChunkRetriever& retriever_;
  std::map<int64_t, infer::PassagesOfText> documents_;
};

/// Finds the neighbours of every complete chunk of a token file, and writes them to the same folder.
void write_neighbours(const NeighboursArguments& arguments, const Retriever& retriever, const std::string& path) {
  const data::TokenFile file = data::TokenFile::open(path);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const std::string named = arguments.tokenizer.empty() ? folder : arguments.tokenizer;
  const std::string tokenizer_path = text::tokenizer_file(named);
  LAMINA_CHECK(!tokenizer_path.empty(), path, ": there is no tokenizer in its folder; name it with --tokenizer");
  const auto tokenizer = text::load_tokenizer(tokenizer_path);
  data::check_same_tokenizer({"the token file " + path, data::identity_of(file)},
                             {"the tokenizer", data::identity_of(*tokenizer, tokenizer_path)},
                             "name the tokenizer that the tokens were made with (--tokenizer)");
  const arch::Retrieval& sizes = arguments.sizes;
  LAMINA_CHECK(sizes.padding_token < tokenizer->vocab_size(), "--padding-token ", sizes.padding_token,
               ": the vocabulary has ", tokenizer->vocab_size(), " tokens");
  const infer::ChunkRetriever chunks(
      retriever.index(), [&](const std::string& text, int64_t top) { return retriever.search(text, top); }, *tokenizer,
      sizes);
  const int64_t count = file.size() / sizes.chunk;
  LAMINA_CHECK(count > 0, path, ": has ", file.size(), " tokens and no whole chunk of ", sizes.chunk,
               "; give a smaller --chunk or more text");
  OwnPassages own(file, retriever.index(), chunks);
  infer::ChunkRetriever::Excludes excludes;
  if (arguments.exclude == "document") excludes = [&](int64_t row) { return own.has(row); };
  const std::string target = data::neighbours_path(path);
  data::TokenWriter writer(target, std::max(file.vocab_size(), tokenizer->vocab_size()), file.tokenizer_hash());
  const auto progress = progress_of(target, count_of_tokens);
  int64_t without = 0;
  for (int64_t c = 0; c < count; ++c) {
    const int64_t begin = c * sizes.chunk;
    // The next chunk attends to these neighbours, so the passages of its document are excluded, too.
    if (excludes) own.move_to(begin, begin + 2 * sizes.chunk);
    const std::vector<int64_t> found = chunks.find(read_ids(file, begin, begin + sizes.chunk), excludes);
    without += std::all_of(found.begin(), found.end(), [&](int64_t id) { return id == sizes.padding_token; }) ? 1 : 0;
    const std::vector<int32_t> ids(found.begin(), found.end());
    writer.write(ids);
    writer.end_document();
    progress(begin + sizes.chunk, file.size());
  }
  writer.publish();
  std::printf("%s: neighbours of %lld chunks, %lld of them without any\n", target.c_str(),
              static_cast<long long>(count), static_cast<long long>(without));
}

void find_neighbours(const NeighboursArguments& arguments) {
  const Device device = arguments.device.open();
  const Retriever retriever(arguments.index, arguments.options, device);
  for (const std::string& path : token_files_of(arguments.data)) write_neighbours(arguments, retriever, path);
}

}  // namespace

void add_index_neighbours(CLI::App& index) {
  auto arguments = std::make_shared<NeighboursArguments>();
  CLI::App* command = index.add_subcommand(
      "neighbours", "Find the neighbours of every chunk of a token file, to train a model with retrieval");
  command->add_option("index", arguments->index, "The folder of the index")->required();
  command->add_option("data", arguments->data, "A folder of `lamina data prepare`, or a token file")->required();
  command->add_option("--chunk", arguments->sizes.chunk, "Tokens of a chunk, as retrieval.chunk")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--neighbours", arguments->sizes.neighbours, "Neighbours of a chunk, as retrieval.neighbours")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--length", arguments->sizes.length,
                   "Tokens of a neighbour and its continuation, as retrieval.length")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--padding-token", arguments->sizes.padding_token,
                   "Id that fills short neighbours, as retrieval.padding_token")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--exclude", arguments->exclude,
                   "document: no passages of the chunk's own document; none: all passages")
      ->capture_default_str()
      ->check(CLI::IsMember({"document", "none"}));
  command->add_option("--tokenizer", arguments->tokenizer, "Tokenizer file or folder (default: next to the tokens)");
  arguments->options.add_to(*command);
  arguments->device.add_to(*command);
  command->callback([arguments] { find_neighbours(*arguments); });
}

}  // namespace lamina::cli
