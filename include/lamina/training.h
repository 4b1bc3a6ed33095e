#pragma once

/// \file
/// Training: a recipe from start to end (train_recipe), runs in folders (Trainer), a learner without files (Learner),
/// and optimizers.
#include "lamina/train/learner.h"
#include "lamina/train/memory.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/recipe.h"
#include "lamina/train/run_data.h"
#include "lamina/train/run_folder.h"
#include "lamina/train/train_recipe.h"
#include "lamina/train/trainer.h"
