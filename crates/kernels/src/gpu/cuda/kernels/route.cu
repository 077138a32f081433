// Routing and grouping.
#include "route.h"
#include "group.h"
