// What works row by row: norms, rotations, sums.
#include "norm.h"
#include "rope.h"
#include "elementwise.h"
#include "norm_act.h"
