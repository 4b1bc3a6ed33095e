#pragma once

// Training from C++: a recipe, a run in a folder of its own, or a learner without one.
#include "lamina/train/memory.h"
#include "lamina/train/run_data.h"
#include "lamina/train/trainer.h"
