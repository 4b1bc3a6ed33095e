#include "lamina/data/neighbours.h"

#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/base/files.h"

namespace lamina::data {

std::string neighbours_path(const std::string& tokens_path) {
  const std::filesystem::path path = tokens_path;
  return (path.parent_path() / (path.stem().string() + ".neighbours.bin")).string();
}

Neighbours Neighbours::open(const TokenFile& tokens, const NeighbourSizes& sizes, int64_t padding) {
  const std::string path = neighbours_path(tokens.name());
  const std::string make = str("find them with `lamina index neighbours INDEX ", tokens.name(), " --chunk ",
                               sizes.chunk, " --neighbours ", sizes.count, " --length ", sizes.length, "`");
  LAMINA_CHECK(path_exists(path), path, ": the neighbours of the chunks do not exist; ", make,
               ", or train without (--set data.neighbours=false)");
  TokenFile file = TokenFile::open(path);
  const int64_t chunks = tokens.size() / sizes.chunk;
  const int64_t each = sizes.count * sizes.length;
  const bool fits = file.document_count() == chunks && file.size() == chunks * each &&
                    (chunks == 0 || file.document_start(1) == each);
  LAMINA_CHECK(fits, path, ": has ", file.size(), " tokens of neighbours for ", file.document_count(), " chunks, ",
               tokens.name(), " has ", chunks, " chunks of ", sizes.chunk, " tokens with ", sizes.count, " x ",
               sizes.length, " each; ", make);
  LAMINA_CHECK(file.tokenizer_hash() == tokens.tokenizer_hash(), path, ": was made with another tokenizer than ",
               tokens.name(), "; ", make);
  return {std::move(file), sizes, padding};
}

void Neighbours::add_to(Batch& batch) const {
  const int64_t chunks = batch.length / sizes_.chunk;
  const auto each = static_cast<size_t>(sizes_.count * sizes_.length);
  batch.neighbour_shape = {chunks, sizes_.count, sizes_.length};
  batch.neighbours.assign(static_cast<size_t>(batch.rows * chunks) * each, padding_);
  LAMINA_CHECK(static_cast<int64_t>(batch.first_tokens.size()) == batch.rows,
               "neighbours are for windows of a token file; use an order that is not packed");
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t first = batch.first_tokens[static_cast<size_t>(row)];
    LAMINA_CHECK(first % sizes_.chunk == 0, "a window begins at token ", first, ", inside of a chunk of ", sizes_.chunk,
                 " tokens; use a length that is a multiple of it");
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t chunk = first / sizes_.chunk + c;
      if (chunk >= file_.document_count()) break;
      file_.read(chunk * static_cast<int64_t>(each),
                 std::span(batch.neighbours).subspan(static_cast<size_t>(row * chunks + c) * each, each));
    }
  }
}

}  // namespace lamina::data
