#pragma once

/// \file
/// Search and retrieval: indexes of texts, vector search, vectors from models, kNN-LM (docs/guides/retrieval.md).
#include "lamina/infer/knn.h"
#include "lamina/infer/retrieval.h"
#include "lamina/infer/text_vectors.h"
#include "lamina/search/flat_search.h"
#include "lamina/search/hnsw.h"
#include "lamina/search/index.h"
#include "lamina/search/index_update.h"
#include "lamina/search/vectors.h"
