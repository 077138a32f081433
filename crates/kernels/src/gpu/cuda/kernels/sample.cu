// Tokens from logits.
#include "sample.h"
