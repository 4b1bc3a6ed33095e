#pragma once

#include <CLI/CLI.hpp>

#include "lamina/infer/sampler.h"

namespace lamina::cli {

/// Adds the sampling options: --temperature, --top-k, penalties, --seed.
void add_sampling(CLI::App& command, infer::SamplerOptions& sampler);

}  // namespace lamina::cli
