#pragma once

#include <CLI/CLI.hpp>

#include "lamina/infer/sampler.h"

namespace lamina::cli {

/// Adds --temperature, --top-k, --seed and the other options of the sampler.
void add_sampling(CLI::App& command, infer::SamplerOptions& sampler);

}  // namespace lamina::cli
