// Routing and grouping.
#include "route_and_group.h"
