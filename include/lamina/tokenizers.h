#pragma once

/// \file
/// Tokenizers: load one, learn one from text, encode and decode; chat templates; grammars that constrain output.
#include "lamina/text/grammar/grammar_state.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "lamina/text/template/chat_template.h"
#include "lamina/text/tokenizer.h"
#include "lamina/text/train_bpe.h"
#include "lamina/text/train_unigram.h"
#include "lamina/text/train_wordpiece.h"
