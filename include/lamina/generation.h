#pragma once

/// \file
/// Load a trained model, generate text or tokens, and evaluate.
#include "lamina/infer/beam_search.h"
#include "lamina/infer/embed.h"
#include "lamina/infer/engine/engine.h"
#include "lamina/infer/engine/engine_thread.h"
#include "lamina/infer/evaluate.h"
#include "lamina/infer/generate_text.h"
#include "lamina/infer/generator.h"
#include "lamina/infer/grammar_mask.h"
#include "lamina/infer/load.h"
#include "lamina/infer/runner/model_runner.h"
#include "lamina/infer/sampler.h"
