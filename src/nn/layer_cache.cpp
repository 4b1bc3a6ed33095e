#include "lamina/nn/layer_cache.h"

#include <algorithm>

namespace lamina::nn {

void reorder_rows(Tensor& tensor, std::span<const int64_t> sources) {
  const int64_t rows = tensor.dim(0);
  LAMINA_CHECK(static_cast<int64_t>(sources.size()) == rows, "cache: ", sources.size(), " source rows for ", rows,
               " rows; give one for each");
  // If the rows that are copied from all stay in place (for example one row overwrites another), no temporary is
  // needed.
  const bool apart = std::all_of(sources.begin(), sources.end(), [&](int64_t source) {
    return source >= 0 && source < rows && sources[static_cast<size_t>(source)] == source;
  });
  const Tensor before = apart ? tensor : tensor.clone();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t source = sources[static_cast<size_t>(row)];
    LAMINA_CHECK(source >= 0 && source < rows, "cache: row ", row, " has source row ", source, "; expected one in [0, ",
                 rows, ")");
    if (source != row) tensor.slice(0, row, 1).copy_(before.slice(0, source, 1));
  }
}

}  // namespace lamina::nn
