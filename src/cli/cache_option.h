#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "lamina/nn/model_cache.h"

namespace lamina::cli {

/// --cache-dtype: the KV cache type for Model::make_cache. Empty: the weights' type.
inline void add_cache_dtype(CLI::App& command, std::optional<DType>& dtype) {
  command.add_option_function<std::string>(
      "--cache-dtype", [&dtype](const std::string& name) { dtype = nn::cache_dtype_named(name); },
      "Keys and values as f32, bf16, f16 or q8: 8 bits and a scale for each token and head (default: the weights' "
      "type)");
}

}  // namespace lamina::cli
