#pragma once

/// \file
/// Tokenizers: load one, learn one from text, encode and decode.
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "lamina/text/tokenizer.h"
#include "lamina/text/train_bpe.h"
