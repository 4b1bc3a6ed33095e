#pragma once

/// \file
/// Load a trained model, generate text or tokens, and evaluate.
#include "lamina/infer/evaluate.h"
#include "lamina/infer/generate_text.h"
#include "lamina/infer/generator.h"
#include "lamina/infer/load.h"
#include "lamina/infer/sampler.h"
