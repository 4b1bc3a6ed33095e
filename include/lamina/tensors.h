#pragma once

/// \namespace lamina
/// Tensors, devices, the gradient tape and errors.
/// \namespace lamina::ops
/// Operators: checked, differentiable functions of tensors with a kernel per device.
/// \namespace lamina::arch
/// Architectures as data: read, change, resolve, check, count, plan.
/// \namespace lamina::nn
/// Modules, and models built from an architecture.
/// \namespace lamina::io
/// Checkpoints in Lamina's, Hugging Face's and llama2.c's formats.
/// \namespace lamina::text
/// Tokenizers.
/// \namespace lamina::train
/// Recipes, runs in folders, learners and optimizers.
/// \namespace lamina::infer
/// Loading, generation, sampling and evaluation.

/// \file
/// Tensors, devices and automatic differentiation.
#include "lamina/autograd/tape.h"
#include "lamina/base/dtype.h"
#include "lamina/base/error.h"
#include "lamina/base/shape.h"
#include "lamina/tensor/device.h"
#include "lamina/tensor/tensor.h"
