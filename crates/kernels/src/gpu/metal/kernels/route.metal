#include "route_and_group.h"
