#include "norm.h"
#include "rope.h"
#include "elementwise.h"
#include "norm_act.h"
