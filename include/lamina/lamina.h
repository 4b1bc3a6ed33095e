#pragma once

/// \mainpage
/// `#include <lamina/lamina.h>` gives the whole library. Each part has its own header and namespace:
///   - lamina/tensors.h: tensors, devices, the gradient tape (lamina)
///   - lamina/ops.h: operators (lamina::ops)
///   - lamina/modules.h, lamina/model.h: modules, architectures, models (lamina::nn, lamina::arch)
///   - lamina/tokenizers.h: tokenizers (lamina::text)
///   - lamina/training.h: recipes, runs, optimizers (lamina::train)
///   - lamina/generation.h: loading, generation, evaluation (lamina::infer)
///   - lamina/search.h: indexes of texts, vector search, kNN-LM (lamina::search, lamina::infer)
///   - lamina/checkpoints.h: file formats (lamina::io)
///
/// The library never prints, exits or aborts: every failure is a lamina::Error that says what was given, what was
/// expected and what to do.

/// \file
/// The whole library. Each part has its own header, which can be included alone.
#include "lamina/base/version.h"
#include "lamina/checkpoints.h"
#include "lamina/generation.h"
#include "lamina/model.h"
#include "lamina/modules.h"
#include "lamina/ops.h"
#include "lamina/search.h"
#include "lamina/tensors.h"
#include "lamina/tokenizers.h"
#include "lamina/training.h"
