#pragma once

// Training from C++: recipes, runs that write to a folder, or a bare learner without one.
#include "lamina/train/memory.h"
#include "lamina/train/run_data.h"
#include "lamina/train/trainer.h"
