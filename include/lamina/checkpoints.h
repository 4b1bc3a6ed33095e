#pragma once

/// \file
/// Checkpoints: safetensors files, Lamina's own folders, Hugging Face folders and llama2.c files.
#include "lamina/io/checkpoint.h"
#include "lamina/io/hf.h"
#include "lamina/io/llama2c.h"
#include "lamina/io/model_file.h"
#include "lamina/io/safetensors.h"
